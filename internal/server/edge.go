package server

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/harness"
	"signalbox/internal/mail/directory"
	"signalbox/internal/roster/key"
	"signalbox/internal/server/forwarded"
	"signalbox/internal/wire"
)

// The edge: who can reach this server, and what is open to those who show no credential.
//
// The configuration says who can: this machine alone, or others too ([Config.reachable]). A server
// that others can reach closes what is open to this machine by default. A reverse proxy that the
// configuration does not know makes a server reachable that should not be; it is recognised by
// what it adds to a request, and then the same is closed for that request.

// byReach leaves a setting to who can reach the server.
const byReach = "auto"

// Who may read /metrics, beside byReach.
const (
	metricsOpen      = "open"
	metricsOperators = "operators"
)

// edgeSettings are the keys of the edge.
func edgeSettings() []Setting {
	return []Setting{
		networks("server.trusted_proxies", "reverse proxies whose X-Forwarded-For, -Proto and -Host are believed, by "+
			"address or network, such as 127.0.0.1", func(c *Config) *[]netip.Prefix { return &c.Proxies }),
		{
			Key: "server.hosts",
			Meaning: "further names by which this server is called, with commas between; those of public_url, of the " +
				"listener and of this machine are known", List: true,
			set: setHosts, get: func(c *Config) string { return strings.Join(c.Hosts, ",") },
		},
		text("server.shared_folder", "", "a folder, such as /run/signalbox, in which users whom it lets in find the address of "+
			"this server and the Unix socket of AHP; the data folder when empty",
			func(c *Config) *string { return &c.Shared }),
		choice("server.metrics", byReach, []string{byReach, metricsOpen, metricsOperators},
			"who may read /metrics; "+byReach+" is anybody while only this machine can reach the server, else "+
				"operators with their token", func(c *Config) *string { return &c.Metrics }),
		onByDefault(flag("server.url_keys", "whether a key may be part of an address, as AHP over WebSocket and the model "+
			"proxy allow; logs of proxies keep addresses", func(c *Config) *bool { return &c.URLKeys })),
	}
}

// networks is a setting that lists networks. An address is a network of one; host bits are
// cleared, so 10.1.2.3/16 means 10.1.0.0/16.
func networks(name, meaning string, field func(*Config) *[]netip.Prefix) Setting {
	return Setting{
		Key: name, Meaning: meaning, List: true,
		set: func(c *Config, v string) error {
			*field(c) = nil
			for _, item := range splitList(v) {
				p, err := netip.ParsePrefix(item)
				if ip, e := netip.ParseAddr(item); e == nil {
					p, err = ip.Prefix(ip.BitLen())
				}
				if err != nil {
					return fmt.Errorf("should be addresses and networks, such as 127.0.0.1 or 10.1.0.0/16")
				}
				*field(c) = append(*field(c), p.Masked())
			}
			return nil
		},
		get: func(c *Config) string {
			var list []string
			for _, p := range *field(c) {
				list = append(list, strings.TrimSuffix(p.String(), map[bool]string{true: fmt.Sprintf("/%d", p.Bits())}[p.IsSingleIP()]))
			}
			return strings.Join(list, ",")
		},
	}
}

// setHosts reads names of this server, without a scheme or a port.
func setHosts(c *Config, v string) error {
	c.Hosts = splitList(strings.ToLower(v))
	if slices.ContainsFunc(c.Hosts, func(name string) bool { return strings.ContainsAny(name, "/:*") }) {
		return fmt.Errorf("should be names without a scheme and a port, such as signalbox.example.com")
	}
	return nil
}

// reachable says why others than this machine can reach the server, "" if they cannot. It is the
// one place that decides; defaults and doctor follow it.
func (c *Config) reachable() string {
	host, _, _ := net.SplitHostPort(c.Listen)
	public, _ := url.Parse(c.PublicURL)
	switch {
	case !isLoopback(host):
		return "listen is " + c.Listen
	case c.PublicURL != "" && !isLoopback(public.Hostname()):
		return "public_url is " + c.PublicURL
	case len(c.Proxies) > 0:
		return "server.trusted_proxies names a proxy"
	}
	return ""
}

// isLoopback reports whether a host without its port is this machine for everybody who says it.
// Browsers and resolvers answer names below localhost themselves (RFC 6761).
func isLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.Unmap().IsLoopback()
}

// registration is the mode in force. On this machine anybody may register; a server that others
// can reach takes an owner's key, unless the configuration says otherwise.
func (c *Config) registration() string {
	switch {
	case c.Registration != byReach:
		return c.Registration
	case c.reachable() == "":
		return directory.Open
	}
	return directory.ByOwner
}

// ownTargets are the networks that outgoing calls may reach while only this machine can reach the
// server: whoever can call the server can call this machine too.
func (c *Config) ownTargets() []string {
	if c.reachable() != "" {
		return nil
	}
	return []string{"127.0.0.0/8", "::1/128", "localhost"}
}

// socketPath is where the Unix socket of AHP is.
func (c *Config) socketPath() string {
	return filepath.Join(cmp.Or(c.Shared, c.Data), harness.SocketFile)
}

// edge tells for each request which way it took, and refuses strangers whom a browser sends.
type edge struct {
	inForce  atomic.Pointer[Config]
	names    atomic.Pointer[[]string] // of this server, beside loopback
	sameSite http.CrossOriginProtection
	// unknown is the last request of a proxy that the configuration does not name, for doctor.
	unknown atomic.Pointer[Forwarder]
}

// Forwarder is a reverse proxy that the configuration does not name.
type Forwarder struct {
	Address string    `json:"address"`
	Sign    string    `json:"sign"` // what gave it away
	At      time.Time `json:"at"`
}

// newEdge makes the edge of a server.
func newEdge(c *Config) *edge {
	e := &edge{}
	e.use(c)
	return e
}

// config is the configuration in force.
func (e *edge) config() *Config { return e.inForce.Load() }

// use puts a configuration in force.
func (e *edge) use(c *Config) {
	names := slices.Clone(c.Hosts)
	host, _, _ := net.SplitHostPort(c.Listen)
	public, _ := url.Parse(c.PublicURL)
	machine, _ := os.Hostname()
	for _, name := range []string{host, public.Hostname(), machine} {
		if name != "" {
			names = append(names, strings.ToLower(name))
		}
	}
	e.names.Store(&names)
	e.inForce.Store(c)
}

// settle finds out which way a request took. Headers of a proxy that is trusted replace the address,
// the host and the scheme; those of others are ignored, but show that there is a proxy.
func (e *edge) settle(r *http.Request) *http.Request {
	reach, sign := wire.Reach{Secure: r.TLS != nil}, forwarded.By(r)
	if len(e.config().Proxies) == 0 && sign == "" && !reach.Secure {
		return r // which is what most calls are
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err == nil && e.trusts(peer.Addr()):
		r, reach.Secure = e.believe(r, peer.Addr())
	case sign != "":
		reach.Forwarded, reach.Unexpected = true, e.config().reachable() == ""
		e.unknown.Store(&Forwarder{peer.Addr().String(), sign, time.Now().UTC()})
	}
	if reach == (wire.Reach{}) {
		return r
	}
	return r.WithContext(wire.WithReach(r.Context(), reach))
}

// trusts reports whether an address is that of a trusted proxy.
func (e *edge) trusts(ip netip.Addr) bool {
	return slices.ContainsFunc(e.config().Proxies, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) })
}

// believe is the request as the client of a trusted proxy sent it, and whether that was over TLS. The client is the
// last address of X-Forwarded-For that is not a trusted proxy's: those before it are what the client claims.
func (e *edge) believe(r *http.Request, peer netip.Addr) (_ *http.Request, secure bool) {
	out := *r
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		ip, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		if peer = ip; !e.trusts(ip) {
			break
		}
	}
	out.RemoteAddr = netip.AddrPortFrom(peer, 0).String()
	if host := forwarded.Last(r, "X-Forwarded-Host"); host != "" {
		out.Host = host
	}
	return &out, r.TLS != nil || strings.EqualFold(forwarded.Last(r, "X-Forwarded-Proto"), "https")
}

// checkStranger checks a call of a Public route that shows no credential, so that a page in somebody's
// browser cannot make it. A page of another site is recognised by the headers that browsers add (Origin,
// Sec-Fetch-Site), a name that leads here by a trick of DNS by Host. The third check holds in browsers
// that add nothing: without asking us first, a page can send forms and plain text, but no JSON.
func (e *edge) checkStranger(r *http.Request, route *wire.Route) error {
	if route.Auth != wire.Public || route.Proved(r) {
		return nil
	}
	if e.sameSite.Check(r) != nil {
		return fault.New(fault.Forbidden,
			"A page of another site sent this, and nothing was done. Programs leave the header Origin out.")
	}
	reads := route.Method == http.MethodGet
	// What anybody may read from elsewhere needs no wall against pages. Health checks have any name.
	if reads && (e.config().reachable() != "" || route.Path == "/healthz" || route.Path == "/readyz") {
		return nil
	}
	if err := e.checkHost(r); err != nil || reads {
		return err
	}
	return route.CheckMedia(r)
}

// checkHost refuses a request that was sent to a name that is not this server's: an attacker's name that leads
// here (DNS rebinding). An address is no name, and leads nowhere else. The port is not compared: it
// changes in tunnels and containers, and says nothing about who is behind a name.
func (e *edge) checkHost(r *http.Request) error {
	host := strings.TrimSuffix(strings.ToLower((&url.URL{Host: r.Host}).Hostname()), ".")
	if _, err := netip.ParseAddr(host); err == nil || isLoopback(host) || slices.Contains(*e.names.Load(), host) {
		return nil
	}
	return fault.New(fault.Forbidden, "This server is not known as %.200q. If that is its name, set public_url to its "+
		"address and restart it, or add the name with `signalbox config set server.hosts NAME` and `signalbox config reload`.", host)
}

// checkURL refuses an address with a key in it, if server.url_keys is false.
func (e *edge) checkURL(u *url.URL) error {
	if e.config().URLKeys {
		return nil
	}
	query, err := url.QueryUnescape(u.RawQuery)
	if err != nil {
		query = u.RawQuery
	}
	if !key.In(u.Path) && !key.In(query) {
		return nil
	}
	return fault.New(fault.Forbidden, "This server takes no key in an address, which logs would keep (server.url_keys). "+
		"Send it in a header, such as Authorization: Bearer rs-amp-….")
}

// strictTransport is the header that keeps browsers on TLS for a year. It leaves other hosts of the domain alone.
const strictTransport = "max-age=31536000"

// secure sets the header for a request over TLS. Not for loopback: a browser would refuse every other server of
// this machine that has no TLS.
func secure(w http.ResponseWriter, r *http.Request) {
	if wire.ReachOf(r.Context()).Secure && !isLoopback((&url.URL{Host: r.Host}).Hostname()) {
		w.Header().Set("Strict-Transport-Security", strictTransport)
	}
}

// getMetrics answers GET /metrics. Strangers may read it while only this machine can reach the server.
func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) error {
	c := s.edge.config()
	open := c.Metrics == metricsOpen || c.Metrics == byReach && c.reachable() == ""
	who, err := s.caller(r, wire.Viewer)
	if err != nil && (!open || wire.ReachOf(r.Context()).Unexpected) {
		return err
	}
	if err != nil {
		return s.metrics.Handle(w, r, false)
	}
	return s.metrics.Handle(w, r.WithContext(wire.WithScope(r.Context(), who.Workspace)), true)
}
