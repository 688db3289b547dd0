package amp

import (
	"net"
	"net/url"
)

// MaxBody is how large the body of a request may be.
const MaxBody = 1 << 20

// RequestsPerMinute is how many calls an agent may make, but for those that have a limit of
// their own.
const RequestsPerMinute = 100

// Endpoint is where clients find the calls of the protocol on a server.
func Endpoint(base string) string { return base + "/api/v1" }

// Confidential reports whether nobody on the way reads what is sent to an address: it begins
// with https, or it is in a private network, where only an operator can have allowed it.
func Confidential(u *url.URL) bool {
	if u.Scheme == "https" {
		return true
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "http" && (host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsPrivate()))
}
