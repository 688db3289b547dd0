package proxy

// Known is how many calls are known by their fingerprint, in memory.
func (p *Proxy) Known() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.approvals)
}
