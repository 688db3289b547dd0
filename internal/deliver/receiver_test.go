package deliver_test

import (
	"io"
	"net/http"
	"sync"
	"testing"

	"signalbox/internal/testbed"
)

// call is a request that a receiver got.
type call struct {
	id, path, body string
	header         http.Header
}

// receiver is a server that notes what it gets, and complains about two calls with
// one id, or to one path, at the same time.
type receiver struct {
	URL    string
	t      testing.TB
	mu     sync.Mutex
	calls  []call
	inside map[string]int
	answer func(w http.ResponseWriter, req *http.Request, c call)
}

func newReceiver(t testing.TB, answer func(w http.ResponseWriter, req *http.Request, c call)) *receiver {
	t.Helper()
	r := &receiver{t: t, inside: map[string]int{}, answer: answer}
	r.URL = testbed.ServeHTTP(t, r)
	return r
}

func ok(w http.ResponseWriter, _ *http.Request, _ call) { w.WriteHeader(http.StatusNoContent) }

func status(code int) func(http.ResponseWriter, *http.Request, call) {
	return func(w http.ResponseWriter, _ *http.Request, _ call) { w.WriteHeader(code) }
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	c := call{id: req.Header.Get("webhook-id"), path: req.URL.Path, body: string(body), header: req.Header.Clone()}
	r.enter(c, 1)
	defer r.enter(c, -1)
	r.answer(w, req, c)
}

func (r *receiver) enter(c call, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		r.calls = append(r.calls, c)
	}
	for _, name := range []string{c.id, c.path} {
		r.inside[name] += n
		if r.inside[name] > 1 {
			r.t.Errorf("two calls at the same time: %s", name)
		}
	}
}

// got lists what came so far, to one path or to all.
func (r *receiver) got(path string) (all []call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if path == "" || c.path == path {
			all = append(all, c)
		}
	}
	return all
}
