package deliver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Resolver resolves host names; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// dialTime bounds resolving and connecting together.
const dialTime = 5 * time.Second

// guard keeps outgoing calls away from networks that are not public: agents choose targets, and must not
// reach services that trust this machine.
type guard struct {
	lists    atomic.Pointer[allowed]
	resolver Resolver
}

// allowed are the targets that are allowed although they are not public, at a moment.
type allowed struct {
	all   allowList
	named allowList // without those of Options.Own
}

// use replaces what is allowed, or after an error nothing.
func (g *guard) use(allow, own []string) error {
	named, err := parseAllow(allow)
	if err != nil {
		return err
	}
	all, err := parseAllow(slices.Concat(allow, own))
	if err != nil {
		return err
	}
	g.lists.Store(&allowed{all, named})
	return nil
}

// CheckTarget checks the form of a target and that every address its host resolves to now is public or
// allowed. It gives an early answer to whoever registers a target; what counts is the check at dialling.
func (o *Outbox) CheckTarget(ctx context.Context, target string) error {
	u, err := parseTarget(target)
	if err != nil {
		return err
	}
	g := o.guard
	if wire.ReachOf(ctx).Unexpected {
		only := &guard{resolver: g.resolver}
		named := g.lists.Load().named
		only.lists.Store(&allowed{named, named})
		g = only
	}
	_, err = g.resolve(ctx, u.Hostname())
	return err
}

// parseTarget checks the form of a target: http or https, a plain host, no password, no fragment.
func parseTarget(target string) (*url.URL, error) {
	wrong := func(why string) (*url.URL, error) {
		// The address is not repeated: it may hold a password.
		return nil, fault.New(fault.InvalidTarget,
			"The target %s. It should be an address such as https://hooks.example.com/signalbox.", why).About("target")
	}
	if !clean(target, maxTarget) {
		return wrong("is longer than 2000 bytes, or not plain text")
	}
	u, err := url.Parse(target)
	if err != nil {
		return wrong("is not an address that can be understood")
	}
	host := u.Hostname()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return wrong("starts with neither https:// nor http://")
	case u.User != nil:
		return wrong("has a name or password before the host; the receiver recognises us by the signature instead")
	case host == "":
		return wrong("names no host")
	case u.Fragment != "":
		return wrong("has a part after #, which is never sent")
	case strings.ContainsAny(host, "%\\ \t") || !validPort(u):
		return wrong("has a host or port that cannot be dialled")
	case oddNumber(host):
		return wrong("writes its host as an unusual number")
	}
	return u, nil
}

// validPort refuses a colon without a port, and ports out of range.
func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.Atoi(u.Port())
	return err == nil && n > 0 && n < 65536
}

// oddNumber finds hosts such as 2130706433, 0x7f.1 and 0177.0.0.1, which some resolvers take for
// 127.0.0.1. The last label of a real name is never a number.
func oddNumber(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	last := strings.ToLower(labels[len(labels)-1])
	return last == "" || strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == ""
}

// resolve resolves a host. All of its addresses must be public or allowed: one bad address among good ones
// is an attack.
func (g *guard) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	// A literal address is not resolved, and checked in the same way.
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else if ips, err = g.resolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, fault.Wrap(err, fault.InvalidTarget,
			"The name %s cannot be found. Check how it is spelt, and that it can be resolved from this server.",
			host).About("target")
	}
	if len(ips) == 0 {
		return nil, fault.New(fault.InvalidTarget, "The name %s has no address.", host).About("target")
	}
	for _, ip := range ips {
		if err := g.lists.Load().all.check(host, ip); err != nil {
			return nil, err
		}
	}
	return ips, nil
}

// dial resolves a host, checks its addresses, and connects to one of those, so that a second resolution
// cannot give another. ControlContext checks the address of the socket once more, right before it
// connects.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// net/http lets a dial go on after the request that wanted it has ended.
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := g.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{
		KeepAlive: 15 * time.Second,
		ControlContext: func(_ context.Context, _, final string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(final)
			if err != nil {
				return err
			}
			return g.lists.Load().all.check(host, to.Addr())
		},
	}
	var failed []error
	for i, ip := range ips {
		conn, err := dialShare(ctx, &d, network, net.JoinHostPort(ip.Unmap().String(), port), len(ips)-i)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// dialShare connects within an equal share of the time that is left, so that one dead address does not use
// up the time of the others.
func dialShare(ctx context.Context, d *net.Dialer, network, address string, left int) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
	defer cancel()
	return d.DialContext(ctx, network, address)
}
