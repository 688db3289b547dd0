// Package answer notes the status of an answer on its way to the client, and answers where no route matches.
// It must not know what a call does.
package answer

import (
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Writer remembers the status for the metrics. It is 200 until WriteHeader is called, as in net/http. While no
// route matches, it takes what the mux answers and writes nothing.
type Writer struct {
	http.ResponseWriter
	Request *http.Request
	Status  int
}

// WriteHeader notes the status, and passes it on if a route matched.
func (w *Writer) WriteHeader(status int) {
	w.Status = status
	if w.Request.Pattern != "" {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write passes the body on if a route matched.
func (w *Writer) Write(b []byte) (int, error) {
	if w.Request.Pattern == "" {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Unknown answers a call that no route matches, where the mux would have answered with a plain text.
func Unknown(w http.ResponseWriter, r *http.Request, status int) {
	if allow := w.Header().Get("Allow"); status == http.StatusMethodNotAllowed {
		wire.Fail(w, fault.New(fault.MethodNotAllowed, "%s takes %s, not %s.", r.URL.Path, allow, r.Method))
		return
	}
	wire.Fail(w, fault.New(fault.NotFound, "There is nothing at %.200q. GET /openapi.json lists what there is.",
		r.URL.Path))
}
