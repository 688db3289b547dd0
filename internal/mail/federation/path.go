package federation

import (
	"net/http"

	"signalbox/internal/mail/amp"
)

// RequestPath is the mounted path of a request. A message that another host forwards arrives at
// the path of agents, without a key, and goes to a call of its own, which checks the host.
func RequestPath(r *http.Request) string {
	path := amp.CanonicalPath(r.URL.EscapedPath())
	if path == "/v1/route" && r.Header.Get(HostHeader) != "" && r.Header.Get("Authorization") == "" {
		return "/v1/mesh/route"
	}
	return path
}
