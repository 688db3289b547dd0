package form

import (
	"net/http"
	"strings"
)

// IsJSON reports whether a reply says that it is JSON, of any kind.
func IsJSON(h http.Header) bool { return strings.Contains(h.Get("Content-Type"), "json") }

// IsEvents reports whether a reply is a stream. The reply decides and not the request: some
// providers stream without being asked.
func IsEvents(h http.Header) bool {
	return strings.HasPrefix(strings.TrimSpace(strings.ToLower(h.Get("Content-Type"))), "text/event-stream")
}
