package wire_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

func TestReadJSONChecksTypeAndSizeBeforeItReads(t *testing.T) {
	for _, c := range []struct {
		name, media, body string
		status            int // 0 for what is accepted
		message           string
	}{
		{"JSON", "application/json", `{"by":"x"}`, 0, ""},
		{"with a charset", "application/json; charset=utf-8", `{"by":"x"}`, 0, ""},
		{"in capitals", "Application/JSON", `{"by":"x"}`, 0, ""},
		{"exactly at the limit", "application/json", `{"by":"` + strings.Repeat("x", 91) + `"}`, 0, ""},
		{"no type", "", `{"by":"x"}`, 415, "Send the body as JSON, with the header Content-Type: application/json."},
		{
			"plain text", "text/plain", `{"by":"x"}`, 415,
			"Send the body as JSON, with the header Content-Type: application/json.",
		},
		{
			"a form", "application/x-www-form-urlencoded", `by=x`, 415,
			"Send the body as JSON, with the header Content-Type: application/json.",
		},
		{
			"another kind of JSON", "application/merge-patch+json", `{}`, 415,
			"Send the body as JSON, with the header Content-Type: application/json.",
		},
		{
			"a type that is none", "application/json;;", `{}`, 415,
			"Send the body as JSON, with the header Content-Type: application/json.",
		},
		{
			"one byte over the limit", "application/json", `{"by":"` + strings.Repeat("x", 92) + `"}`, 413,
			"The body is larger than 100 bytes, which is the most this call takes.",
		},
		{"a wrong body", "application/json", `{"bye":"x"}`, 400, `The field "bye" is not known here. Did you mean "by"?`},
		{"no body", "application/json", ``, 400, "The body is empty. Send a JSON object with the fields by, reason."},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(c.body))
			if c.media != "" {
				r.Header.Set("Content-Type", c.media)
			}
			var v vote
			err := wire.ReadJSON(httptest.NewRecorder(), r, 100, &v)
			if c.status == 0 {
				if err != nil || v.By == "" {
					t.Errorf("got %+v, %v", v, err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			e := fault.From(err)
			if diff := cmp.Diff(fmt.Sprint(c.status, " ", c.message), fmt.Sprint(e.Code.Status(), " ", e.Message)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestABodyThatBreaksOffIsTheCallersToSendAgain(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
		iotest.ErrReader(errors.New("connection reset by 10.0.0.1")))
	_, err := wire.Read(httptest.NewRecorder(), r, 100)
	e := fault.From(err)
	if e.Code != fault.InvalidPayload || strings.Contains(e.Message, "10.0.0.1") {
		t.Errorf("got %s: %s", e.Code, e.Message)
	}
}

// cyclic cannot be encoded.
func cyclic() map[string]any {
	m := map[string]any{}
	m["m"] = m
	return m
}

func TestFailAnswersWithThePublicPartAndNothingElse(t *testing.T) {
	cause := errors.New("dial tcp 10.1.2.3:5432: password=hunter2")
	for _, c := range []struct {
		name   string
		err    error
		status int
		retry  string
		body   string
	}{
		{
			"everything there is",
			fault.Wrap(cause, fault.Conflict, "It is closed.").About("gate").With("state", "approved").With("n", 2),
			409, "", `{"error":"conflict","message":"It is closed.","field":"gate","details":{"n":2,"state":"approved"}}`,
		},
		{
			"wrapped on the way", fmt.Errorf("%w: %w", cause, fault.New(fault.NotFound, "There is none.")),
			404, "", `{"error":"not_found","message":"There is none."}`,
		},
		{
			"an error of nobody", cause,
			500, "", `{"error":"internal","message":"Something went wrong inside Signalbox. The server's log has the cause."}`,
		},
		{
			"a store that is away can be tried again", fault.Wrap(cause, fault.StoreUnavailable, "Away."),
			503, "1", `{"error":"store_unavailable","message":"Away."}`,
		},
		{
			"a limit that is used up says when it is not", fault.New(fault.RateLimited, "Slowly.").With(wire.RetryAfter, 7),
			429, "7", `{"error":"rate_limited","message":"Slowly.","details":{"retry_after":7}}`,
		},
		{
			"an unknown outcome must not be tried again", fault.Wrap(cause, fault.OutcomeUnknown, "Perhaps."),
			503, "", `{"error":"outcome_unknown","message":"Perhaps."}`,
		},
		{
			"broken UTF-8 that came from the caller", fault.New(fault.NotFound, "No agent \xff.").With("name", "\xff"),
			404, "", `{"error":"not_found","message":"No agent ` + "\uFFFD" + `.","details":{"name":"` + "\uFFFD" + `"}}`,
		},
		{
			"details that cannot be encoded are left out", fault.New(fault.NotFound, "None.").With("x", cyclic()),
			404, "", `{"error":"not_found","message":"None."}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			wire.Fail(w, c.err)
			type answer struct {
				Status             int
				Retry, Media, Body string
			}
			want := answer{c.status, c.retry, "application/json", c.body + "\n"}
			got := answer{w.Code, w.Header().Get("Retry-After"), w.Header().Get("Content-Type"), w.Body.String()}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(w.Body.String(), "hunter2") || strings.Contains(fmt.Sprint(w.Header()), "hunter2") {
				t.Errorf("the cause is in the answer: %s", w.Body)
			}
		})
	}
}

func TestNoCodeShowsItsCause(t *testing.T) {
	for _, m := range fault.Catalogue {
		w := httptest.NewRecorder()
		wire.Fail(w, fault.Wrap(errors.New("hunter2"), m.Code, "Words."))
		if w.Code != m.Status || strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%s: %d %s", m.Code, w.Code, w.Body)
		}
	}
}

func TestAnAnswerThatCannotBeEncodedIsAnErrorBeforeAnythingIsSent(t *testing.T) {
	w := httptest.NewRecorder()
	if err := wire.Reply(w, 201, cyclic()); err == nil {
		t.Fatal("no error")
	}
	if w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("sent %v %s", w.Header(), w.Body)
	}
	if err := wire.Reply(w, 201, vote{By: "x"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`201 {"by":"x","reason":""}`+"\n", fmt.Sprint(w.Code, " ", w.Body)); diff != "" {
		t.Error(diff)
	}
}

func TestAWaitIsALengthOfTimeOrANumberOfSeconds(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"": 0, "wait=": 0, "wait=0": 0, "wait=30s": 30 * time.Second, "wait=7": 7 * time.Second,
		"wait=250ms": 250 * time.Millisecond,
		"wait=5m":    time.Minute, "wait=600": time.Minute, "wait=9223372036854775807": time.Minute,
		"wait=-1": -1, "wait=-1s": -1, "wait=soon": -1, "wait=1.5": -1, "wait=99999999999999999999": -1,
	} {
		got, err := wire.QueryWait(get(t, query), time.Minute)
		if want >= 0 && (got != want || err != nil) || want < 0 && !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%q: %v, %v", query, got, err)
		}
	}
	_, err := wire.QueryWait(get(t, "wait=soon"), 55*time.Second)
	if got := fault.From(err).Message; got != `wait should be a length of time such as 30s, 55s at most, and is "soon".` {
		t.Error(got)
	}
}

func TestPreferencesAreFoundAmongOthers(t *testing.T) {
	for _, c := range []struct {
		headers []string
		wait    time.Duration
		name    bool
	}{
		{nil, 0, false},
		{[]string{"wait=10"}, 10 * time.Second, false},
		{[]string{`respond-async, WAIT = "10"; strict`, "resolved-by"}, 10 * time.Second, true},
		{[]string{"Resolved-By=yes, wait=99999"}, time.Minute, true},
		{[]string{"wait=soon", "wait=-3, wait=2"}, 2 * time.Second, false},
		{[]string{"waiting=10"}, 0, false},
	} {
		r := get(t, "")
		r.Header["Prefer"] = c.headers
		if wait, name := wire.PreferredWait(r, time.Minute), wire.Prefers(r, "resolved-by"); wait != c.wait ||
			name != c.name {
			t.Errorf("%q: %v, %v", c.headers, wait, name)
		}
	}
}

func TestAStreamWritesEventsAndLines(t *testing.T) {
	for name, c := range map[string]struct {
		start func(http.ResponseWriter) *wire.Stream
		media string
		want  string
	}{
		"events": {
			wire.Events, "text/event-stream",
			"retry: 1500\n\nid: 7\nevent: change\ndata: {\"a\":1}\n\ndata: x\n\n: still here\n\n",
		},
		"lines": {wire.Lines, "application/x-ndjson", "{\"a\":1}\nx\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s := c.start(w)
			if name == "events" {
				s.Retry(1500 * time.Millisecond)
			}
			s.Put("7", "change", []byte(`{"a":1}`))
			if err := s.Send("", "", []byte("x")); err != nil || !w.Flushed {
				t.Errorf("nothing is sent: %v", err)
			}
			if name == "events" && s.Beat() != nil {
				t.Error("no beat")
			}
			if diff := cmp.Diff(c.want, w.Body.String()); diff != "" {
				t.Error(diff)
			}
			if h := w.Header(); h.Get("Content-Type") != c.media || h.Get("Cache-Control") != "no-store" {
				t.Errorf("the header is %v", h)
			}
		})
	}
}

func TestAStreamLeavesTheBytesThatItWritesAlone(t *testing.T) {
	whole := []byte("abcdef")
	if err := wire.Events(httptest.NewRecorder()).Send("1", "", whole[:3]); err != nil || string(whole) != "abcdef" {
		t.Errorf("%q, %v", whole, err)
	}
}

func TestAStreamWhoseClientHasGoneSaysSo(t *testing.T) {
	gone := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := wire.Events(w)
		for s.Send("", "", make([]byte, 1<<10)) == nil { //nolint:revive // until the client has gone
		}
		gone <- r.Context().Err()
	}))
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	<-gone
}

func TestTheLastEventIsANumber(t *testing.T) {
	for text, want := range map[string]int64{"": -1, "0": 0, "12": 12} {
		r := get(t, "")
		r.Header.Set("Last-Event-ID", text)
		if got, err := wire.LastEventID(r, -1); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "x", "1.5"} {
		r := get(t, "")
		r.Header.Set("Last-Event-ID", text)
		if _, err := wire.LastEventID(r, -1); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
