package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/internal/testbed"
	"signalbox/internal/wire/wiretest"
)

const pendingBody = `{"status":"pending","gate_id":"gate_1","message":"Awaiting operator approval"}`

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// hostile are answers that are no approvals, though some of them look like one.
var hostile = map[string]http.HandlerFunc{
	"hangs":                 func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"500":                   answer(500, `{"status":"approved","gate_id":"gate_1","message":""}`),
	"500 in the error form": answer(500, `{"error":"internal","message":"x"}`),
	"503 approved":          answer(503, `{"status":"approved","gate_id":"gate_1","message":""}`),
	"201 approved":          answer(201, `{"status":"approved","gate_id":"gate_1","message":""}`),
	"202 approved":          answer(202, `{"status":"approved","gate_id":"gate_1","message":""}`),
	"204":                   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"404 of a proxy":        answer(404, "404 page not found"),
	"400 approved":          answer(400, `{"status":"approved","gate_id":"gate_1","message":""}`),
	"empty":                 answer(200, ""),
	"garbage":               answer(200, "<html>approved</html>"),
	"null":                  answer(200, "null"),
	"a list":                answer(200, `[{"status":"approved","gate_id":"gate_1","message":""}]`),
	"an unknown status":     answer(200, `{"status":"maybe","gate_id":"gate_1","message":""}`),
	"upper case":            answer(200, `{"status":"APPROVED","gate_id":"gate_1","message":""}`),
	"upper-case names":      answer(200, `{"STATUS":"approved","GATE_ID":"gate_1","message":""}`),
	"no status":             answer(200, `{"gate_id":"gate_1","message":"approved"}`),
	"status null":           answer(200, `{"status":null,"gate_id":"gate_1","message":"approved"}`),
	"status true":           answer(200, `{"status":true,"gate_id":"gate_1","message":""}`),
	"status in a list":      answer(200, `{"status":["approved"],"gate_id":"gate_1","message":""}`),
	"two statuses":          answer(200, `{"status":"rejected","gate_id":"gate_1","message":"","status":"approved"}`),
	"no gate_id":            answer(200, `{"status":"approved","message":""}`),
	"gate_id a number":      answer(200, `{"status":"approved","gate_id":7,"message":""}`),
	"something after it": answer(200,
		`{"status":"approved","gate_id":"gate_1","message":""} {"status":"rejected"}`),
	"cut off inside of the JSON": answer(200, `{"status":"approved","gate_id":"gate_1","message":"`),
	"larger than an answer": answer(200,
		`{"status":"approved","gate_id":"gate_1","message":"`+strings.Repeat("x", 2<<20)+`"}`),
	"pending without a gate": answer(202, `{"status":"pending","gate_id":null,"message":""}`),
	"pending for ever":       answer(202, pendingBody),
	"pending with 200":       answer(200, pendingBody),
	"closes at once":         func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"closes in the middle of the body": func(w http.ResponseWriter, _ *http.Request) {
		text := `{"status":"approved","gate_id":"gate_1","message":""}`
		w.Header().Set("Content-Length", fmt.Sprint(len(text)+10))
		_, _ = w.Write([]byte(text))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"a body that never ends": func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"status":"approved","gate_id":"gate_1",`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	},
}

// onlyWhileWaiting are approvals when a signal is answered with them: a rule decided
// and no gate was opened. Of a gate they are none.
var onlyWhileWaiting = map[string]http.HandlerFunc{
	"another gate": answer(200, `{"status":"approved","gate_id":"gate_2","message":""}`),
	"no gate":      answer(200, `{"status":"approved","gate_id":null,"message":""}`),
}

func TestNothingButAnApprovalIsAnApproval(t *testing.T) {
	try := func(t *testing.T, h http.Handler) {
		t.Helper()
		s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the client has gone
			h.ServeHTTP(w, r)
		}))
		c, err := client.New(s, "rs-amp-key", client.WithAgent("writer"), client.WithTimeout(60*time.Millisecond),
			client.WithPatience(250*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		err = client.Hurry(c).Gate(ctx, payload("run-1"))
		if err == nil {
			t.Fatal("approved")
		}
		if _, ok := errors.AsType[*client.Rejected](err); ok {
			t.Errorf("nobody has decided: %v", err)
		}
	}
	waiting := func(h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /amp/signal", answer(202, pendingBody))
		mux.Handle("GET /amp/gates/gate_1", h)
		return mux
	}
	for name, h := range hostile {
		t.Run(name+" to a signal", func(t *testing.T) { t.Parallel(); try(t, h) })
		t.Run(name+" to a wait", func(t *testing.T) { t.Parallel(); try(t, waiting(h)) })
	}
	for name, h := range onlyWhileWaiting {
		t.Run(name+" to a wait", func(t *testing.T) { t.Parallel(); try(t, waiting(h)) })
	}
}

func TestWhatFailsForAWhileIsTriedAgainWithTheSameBytes(t *testing.T) {
	var attempts atomic.Int32
	var first string
	s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var text strings.Builder
		_, _ = fmt.Fprint(&text, r.URL.Path, " ")
		buffer := make([]byte, 4096)
		n, _ := r.Body.Read(buffer)
		text.Write(buffer[:n])
		switch attempts.Add(1) {
		case 1:
			first = text.String()
			answer(503, `{"error":"stopping","message":"x"}`)(w, r)
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			answer(200, "<html>")(w, r)
		default:
			if text.String() != first {
				t.Errorf("sent %s and then %s", first, text.String())
			}
			answer(200, `{"status":"approved","gate_id":null,"message":"No gate required"}`)(w, r)
		}
	}))
	c, err := client.New(s, "rs-amp-key", client.WithAgent("writer"))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := client.Hurry(c).Signal(testbed.Context(t), payload("run-1")); err != nil ||
		a.Status != client.StatusApproved {
		t.Errorf("%+v %v", a, err)
	}
}

func TestTheKeyIsNotSentOn(t *testing.T) {
	var seen atomic.Bool
	elsewhere := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(true)
		answer(200, `{"status":"approved","gate_id":null,"message":""}`)(w, r)
	}))
	for _, status := range []int{301, 302, 307, 308} {
		s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+r.URL.Path, status)
		}))
		c, err := client.New(s, "rs-amp-key", client.WithAgent("writer"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Gate(testbed.Context(t), payload("run-1")); err == nil || !strings.Contains(err.Error(), "redirects to") {
			t.Errorf("%d: %v", status, err)
		}
	}
	if seen.Load() {
		t.Error("the other server was called")
	}
}

func TestAnAnswerIsReadAsEveryReaderOfOursReadsIt(t *testing.T) {
	words := wiretest.Words{Name: "status", Yes: `"approved"`, No: `"rejected"`, Rest: `,"gate_id":null,"message":""`}
	for _, a := range wiretest.Answers(words) {
		testbed.Parallel(t, a.Name, func(t *testing.T) {
			s := testbed.ServeHTTP(t, answer(200, a.Text))
			c, err := client.New(s, "rs-amp-key", client.WithAgent("writer"), client.WithPatience(100*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Hurry(c).Gate(t.Context(), payload("run-1")); (err == nil) != a.Good {
				t.Errorf("%q: %v", a.Text, err)
			}
		})
	}
}
