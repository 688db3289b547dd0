package federation

import (
	"net/http"
	"net/url"

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

// Canonical rewrites addresses in the forms that mail clients use to ours. The request
// itself is not changed, since others hold it.
func Canonical(r *http.Request) *http.Request {
	escaped := r.URL.EscapedPath()
	path := RequestPath(r)
	if path == escaped {
		return r
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return r // which has no handler
	}
	u := *r.URL
	u.Path, u.RawPath = plain, path
	out := *r
	out.URL = &u
	return &out
}
