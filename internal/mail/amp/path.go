package amp

import (
	"slices"
	"strings"
)

// pathHeads are the first segments of the protocol's paths. Only these are rewritten, so that no
// path of another protocol is taken by mistake.
var pathHeads = []string{
	"info", "health", "organization", "register", "auth", "agents", "route", "messages", "inbox", "quarantine", "ws",
	"attachments", "federation", "openapi.json", "openapi.yaml",
}

// CanonicalPath is the path under which a call is mounted, for a path with any number of "api"
// and "v1" before it (MSG-1), and "as" with a domain (MSG-113). Paths of other protocols are returned
// unchanged. The path stays escaped, so that a slash inside an address does not become a separator.
func CanonicalPath(escaped string) string {
	rest, _ := cutPrefixes(escaped)
	head, _, _ := strings.Cut(rest, "/")
	// The server's own description of its whole API is at /openapi.json.
	if !slices.Contains(pathHeads, head) || escaped == "/openapi.json" {
		return escaped
	}
	return "/v1/" + rest
}

// SpokenDomain is the domain in which a caller wants to read our addresses, for the path of its call: that behind "as",
// "" for our own (MSG-113).
func SpokenDomain(escaped string) string {
	_, domain := cutPrefixes(escaped)
	return domain
}

// cutPrefixes cuts off what stands before the path of a call.
func cutPrefixes(escaped string) (rest, domain string) {
	rest = strings.TrimPrefix(escaped, "/")
	for {
		// /v1 alone is no prefix: something has to follow.
		first, after, more := strings.Cut(rest, "/")
		switch {
		case more && (first == "api" || first == "v1"):
			rest = after
		case more && first == "as" && strings.Contains(after, "/"):
			domain, rest, _ = strings.Cut(after, "/")
		default:
			return rest, domain
		}
	}
}
