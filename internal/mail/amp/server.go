package amp

import (
	"net"
	"net/url"
)

// MaxBody is the largest body of a request, in bytes.
const MaxBody = 1 << 20

// RequestsPerMinute is how many calls an agent may make in a minute, of those that have no limit
// of their own.
const RequestsPerMinute = 100

// Endpoint is the address of the API that we advertise, for a server's public address (MSG-2).
func Endpoint(base string) string { return base + "/api/v1" }

// EndpointAs is the same, for a client that knows us by another of our domains (MSG-113).
func EndpointAs(base, domain string) string { return Endpoint(base) + "/as/" + domain }

// Confidential reports whether an address may be sent secrets and mail: it is https, or plain
// http on this machine or in a private network. Whether a private address may be called at all
// is for the guard of package deliver to say.
func Confidential(u *url.URL) bool {
	if u.Scheme == "https" {
		return true
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "http" && (host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsPrivate()))
}
