package deliver

import (
	"fmt"
	"net/netip"
	"strings"

	"signalbox/internal/fault"
)

// refusedRanges are addresses that are no public server. Metadata services of clouds come first: their
// description says more than that of the range they are in.
var refusedRanges = []struct{ prefix, what string }{
	{"169.254.169.254/32", "a cloud's metadata service"},
	{"100.100.100.200/32", "a cloud's metadata service"},
	{"168.63.129.16/32", "a cloud's metadata service"},
	{"fd00:ec2::254/128", "a cloud's metadata service"},
	{"0.0.0.0/8", "no host at all"},
	{"127.0.0.0/8", "this machine itself (loopback)"},
	{"10.0.0.0/8", "a private network"},
	{"172.16.0.0/12", "a private network"},
	{"192.168.0.0/16", "a private network"},
	{"100.64.0.0/10", "a carrier's private network"},
	{"169.254.0.0/16", "a link-local network"},
	{"192.0.0.0/24", "a range with a special purpose"},
	{"192.0.2.0/24", "a range for documentation"},
	{"198.51.100.0/24", "a range for documentation"},
	{"203.0.113.0/24", "a range for documentation"},
	{"192.88.99.0/24", "a range with a special purpose"},
	{"198.18.0.0/15", "a range for measurements"},
	{"224.0.0.0/4", "a multicast range"},
	{"240.0.0.0/4", "a reserved range"},
	{"::1/128", "this machine itself (loopback)"},
	{"::/128", "no host at all"},
	{"fc00::/7", "a private network"},
	{"fe80::/10", "a link-local network"},
	{"fec0::/10", "a private network"},
	{"ff00::/8", "a multicast range"},
	{"2001:db8::/32", "a range for documentation"},
	{"2001::/23", "a range with a special purpose"}, // Teredo among others
	{"3fff::/20", "a range for documentation"},
}

// globalUnicast is the part of IPv6 from which public addresses are assigned.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// embedded are forms of IPv6 that contain an IPv4 address, to which a gateway may send the packet. at is
// the offset of that address.
var embedded = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},  // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 6}, // NAT64 of a site: below, refused
	{netip.MustParsePrefix("2002::/16"), 2},      // 6to4
}

// notPublic describes an address that is not public, "" for one that is.
func notPublic(ip netip.Addr) string {
	ip = ip.Unmap().WithZone("")
	for _, r := range refusedRanges {
		if netip.MustParsePrefix(r.prefix).Contains(ip) {
			return r.what
		}
	}
	if ip.Is4() {
		return ""
	}
	for _, e := range embedded {
		if !e.prefix.Contains(ip) {
			continue
		}
		// Where the IPv4 address is inside depends on the site, so nothing can be checked.
		if e.prefix.Bits() == 48 {
			return "a private network behind a translator"
		}
		all := ip.As16()
		return notPublic(netip.AddrFrom4([4]byte(all[e.at : e.at+4])))
	}
	if !globalUnicast.Contains(ip) {
		return "an address outside of the public internet"
	}
	return ""
}

// allowList are the hosts and networks of webhooks.allow, which may be called even if they are not public.
type allowList struct {
	hosts    map[string]bool
	networks []netip.Prefix
}

// parseAllow reads an allow list of host names, addresses and networks.
func parseAllow(list []string) (allowList, error) {
	a := allowList{hosts: map[string]bool{}}
	for _, item := range list {
		item = strings.ToLower(strings.TrimSpace(item))
		if network, err := netip.ParsePrefix(item); err == nil {
			a.networks = append(a.networks, network.Masked())
			continue
		}
		if ip, err := netip.ParseAddr(item); err == nil && ip.Zone() == "" {
			ip = ip.Unmap()
			a.networks = append(a.networks, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		if item == "" || strings.ContainsAny(item, "/:@*? ") {
			return a, fault.New(fault.InvalidConfig,
				"The allow list of targets names hosts, addresses and networks, such as "+
					"hooks.example.internal, 10.1.2.3 or 10.1.0.0/16. It has %.80q.", item).About("webhooks.allow")
		}
		a.hosts[strings.TrimSuffix(item, ".")] = true
	}
	return a, nil
}

// allows reports whether an operator has allowed the host by name, or the address.
func (a allowList) allows(host string, ip netip.Addr) bool {
	if a.hosts[strings.TrimSuffix(strings.ToLower(host), ".")] {
		return true
	}
	ip = ip.Unmap().WithZone("")
	for _, network := range a.networks {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

// check refuses an address that may not be dialled for a host.
func (a allowList) check(host string, ip netip.Addr) error {
	what := notPublic(ip)
	if what == "" || a.allows(host, ip) {
		return nil
	}
	where := fmt.Sprintf("%s leads to %s", host, ip)
	// Do not say twice what was asked for.
	if host == ip.String() {
		where = host
	}
	return fault.New(fault.InvalidTarget,
		"%s, which is %s. A target is a public address such as https://hooks.example.com/signalbox; "+
			"an operator can put others on the allow list.", where, what).About("target")
}
