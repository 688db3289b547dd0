package engine

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// Meter is how the calls of models that an engine makes can be led through the model proxy, where each is counted as
// it happens (RUN-48).
type Meter struct {
	Provider string // as the proxy names it
	Key      string // the variable with the provider's key
	Token    string // another one, "" if there is none
	Base     string // the variable with the address that the engine calls
	Headers  string // the variable with headers that the engine adds, "" if there is none
}

// Metered is where an engine makes its calls of models instead of at the provider.
type Metered struct {
	URL      string // ends with /v1
	Variable string // of its environment, with the secret
}

// Meter is how the engine's calls can be led through the proxy, nil if they cannot.
func (e *Engine) Meter() *Meter { return e.meter }

// Late is why a budget cannot be kept by what the engine writes, "" if it says what it has used after each call of a
// model.
func (e *Engine) Late() string { return e.late }

// Costs reports whether a budget in dollars holds without a server: the engine says what each call costs, or stops by
// itself.
func (e *Engine) Costs() bool { return e.costs }

// proxyPath is where the model proxy is below the address of a server.
const proxyPath = "/v1/proxy"

// Led finds out whether an environment already leads the engine's calls through the proxy of a server at one of the
// addresses, and with which key: that in the path of the address, or the one in place of the provider's.
func (m *Meter) Led(variable func(name string) string, addresses ...string) (key string, led bool) {
	if m == nil {
		return "", false
	}
	at, err := url.Parse(variable(m.Base))
	if err != nil || !slices.ContainsFunc(addresses, func(address string) bool { return sameServer(at, address) }) {
		return "", false
	}
	rest, ok := strings.CutPrefix(at.Path, proxyPath)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	if inPath, ok := strings.CutPrefix(rest, "/a/"); ok {
		key, _, _ = strings.Cut(inPath, "/")
		return key, true
	}
	for _, name := range []string{m.Key, m.Token} {
		if name != "" && variable(name) != "" {
			return variable(name), true
		}
	}
	return "", true
}

// IsAgentKey reports whether a key has the form of one of Signalbox, which stands for an agent.
func IsAgentKey(key string) bool {
	return strings.HasPrefix(key, "rs-amp-") || strings.HasPrefix(key, "amp_live_sk_")
}

// SameServer reports whether two addresses are of one server.
func SameServer(a, b string) bool {
	at, err := url.Parse(a)
	return err == nil && sameServer(at, b)
}

// sameServer reports whether a URL is one of the server at an address. All names of this machine are one.
func sameServer(at *url.URL, address string) bool {
	other, err := url.Parse(address)
	if err != nil || at.Host == "" || at.Scheme != other.Scheme {
		return false
	}
	local := func(u *url.URL) bool {
		ip := net.ParseIP(u.Hostname())
		return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
	}
	port := func(u *url.URL) string {
		if u.Port() == "" {
			return map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		return u.Port()
	}
	return port(at) == port(other) && (strings.EqualFold(at.Hostname(), other.Hostname()) || local(at) && local(other))
}
