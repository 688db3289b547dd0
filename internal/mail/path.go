package mail

import (
	"net/http"
	"slices"
	"strings"

	"signalbox/internal/mail/federation"
)

// heads are the first parts of our paths, which clients put behind any number of "api"
// and "v1", or none.
var heads = []string{
	"info", "health", "organization", "register", "auth", "agents", "route", "messages", "inbox", "quarantine", "ws",
	"attachments", "federation", "openapi.json", "openapi.yaml",
}

// CanonicalPath is the path under which we serve an address that a client may write with
// any prefix. Addresses of others stay as they are.
func CanonicalPath(escaped string) string {
	rest := strings.TrimPrefix(escaped, "/")
	for {
		first, after, more := strings.Cut(rest, "/")
		if !more || first != "api" && first != "v1" {
			break
		}
		rest = after
	}
	head, _, _ := strings.Cut(rest, "/")
	if !slices.Contains(heads, head) || escaped == "/openapi.json" {
		return escaped
	}
	return "/v1/" + rest
}

// RequestPath is where a request goes: CanonicalPath, and for a message that another host
// forwards, which has no agent's key, the call for those.
func RequestPath(r *http.Request) string {
	path := CanonicalPath(r.URL.EscapedPath())
	if path == "/v1/route" && r.Header.Get(federation.HostHeader) != "" && r.Header.Get("Authorization") == "" {
		return "/v1/mesh/route"
	}
	return path
}
