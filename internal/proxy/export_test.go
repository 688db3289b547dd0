package proxy

import "net/http"

// Known is how many calls are known by their fingerprint, in memory.
func (p *Proxy) Known() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.approvals)
}

// Reach has the providers whose address has the scheme answer from memory, for benchmarks of what we do ourselves.
func (p *Proxy) Reach(scheme string, answer http.RoundTripper) {
	p.transport.RegisterProtocol(scheme, answer)
}
