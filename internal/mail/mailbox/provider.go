package mailbox

import (
	"bytes"
	"context"
	"encoding/json" // providers of every generation answer: what cannot be read is passed over
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
)

// Unreachable is the code of an error about a provider that did not answer. Whether it did what it
// was asked for is unknown.
const Unreachable fault.Code = "unreachable"

const (
	callTime  = 45 * time.Second // for one call; a long poll takes up to 30 s
	maxAnswer = 64 << 20         // bytes of a page of messages
)

// caller makes calls to a provider, with one key or none.
type caller struct {
	http   *http.Client
	key    string
	header http.Header // what goes with each call, nil for nothing
}

// newCaller makes a caller. It follows two redirects at most, and none from https to http.
func newCaller(key string) *caller {
	return &caller{
		key: key,
		http: &http.Client{Timeout: callTime, CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Host != via[0].URL.Host {
				r.Header.Del(behalf.WithinHeader)
			}
			// The key goes along with a redirect to the same host.
			if len(via) > 2 || via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
				return errors.New("it redirects too often, or to a place that is not encrypted")
			}
			return nil
		}},
	}
}

// call sends a request with a JSON body and decodes the answer. nil stands for no body, and for an
// answer that is not needed.
func (c *caller) call(ctx context.Context, method, address string, body, answer any) error {
	var content io.Reader
	if body != nil {
		text, err := encode(body, "")
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fault.New(fault.InvalidField, "A provider's address should look like https://mail.example.com, and is %.200q.",
			address)
	}
	req.Header = c.header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	text, err := c.do(req, maxAnswer)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fault.Wrap(err, fault.Internal, "%s is not a mail provider: its answer cannot be read. Check the address.",
			req.URL.Host)
	}
	return nil
}

// do sends a request and returns the body of a 2xx answer of at most so many bytes. Any other status
// is an error made from the provider's own.
func (c *caller) do(req *http.Request, most int64) ([]byte, error) {
	res, err := c.http.Do(req)
	if err != nil {
		// Interrupted by the user: no error of the provider.
		if req.Context().Err() != nil {
			return nil, req.Context().Err()
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may contain a ticket
		}
		return nil, fault.Wrap(err, Unreachable, "The provider at %s cannot be reached.", req.URL.Host)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return nil, fault.Wrap(err, Unreachable,
			"The connection to %s broke before the answer was complete. Try again.", req.URL.Host)
	}
	switch {
	// Redirects were followed or refused before.
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, readError(req.URL.Host, res, text)
	case int64(len(text)) > most:
		return nil, fault.New(fault.TooLarge, "The answer of %s is longer than %d bytes.", req.URL.Host, most)
	}
	return text, nil
}

// readError makes an error of a provider's answer, in whichever form. Its texts are foreign: each is
// made plain before it is used. The status is in the details, for statusOf.
func readError(host string, res *http.Response, text []byte) error {
	var e struct {
		Error       string         `json:"error"`
		Message     string         `json:"message"`
		Field       string         `json:"field"`
		Details     map[string]any `json:"details"`
		Suggestions []string       `json:"suggestions"`
	}
	_ = json.Unmarshal(text, &e) // not every server answers with JSON
	// The provider's own sentence is the best there is; without one, its status.
	message := oneLine(e.Message, 600)
	if message == "" {
		message = oneLine(host+" answers "+res.Status+" "+e.Error, 600)
	}
	if len(e.Suggestions) > 0 && !strings.Contains(message, e.Suggestions[0]) {
		message += " Free are: " + oneLine(strings.Join(e.Suggestions, ", "), 200) + "."
	}
	// The provider's own code, so that callers can tell name_taken from rate_limited.
	out := fault.New(fault.Code(oneLine(e.Error, 64)), "%s", message).About(oneLine(e.Field, 64)).With("status",
		res.StatusCode)
	for name, value := range e.Details {
		_ = out.With(oneLine(name, 64), value)
	}
	return out
}

// statusOf is the HTTP status of an error that readError made, 0 for any other.
func statusOf(err error) int {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		status, _ := e.Details["status"].(int)
		return status
	}
	return 0
}

// breaks shows the ends of lines by their pictures.
var breaks = strings.NewReplacer("\r", "␍", "\n", "␊", "\u0085", "␤", "\u2028", "␤", "\u2029", "␤")

// oneLine is foreign text on one line, cut to so many characters. Whoever prints it makes the rest
// visible.
func oneLine(text string, most int) string {
	text = breaks.Replace(text)
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strings.TrimSpace(text)
}

// found is a discovered provider: the address that was given, the address of its API, and its
// domain, "" if it does not say.
type found struct {
	base, endpoint, provider string
}

// discover asks a provider where its API is. The document is optional: without one the API is under
// /v1. A provider that cannot be reached at all is an error.
func discover(ctx context.Context, base string) (found, error) {
	base = strings.TrimSuffix(base, "/")
	f := found{base: base, endpoint: apiBase(base)}
	var about struct{ Endpoint, Provider string }
	err := newCaller("").call(ctx, http.MethodGet, base+"/.well-known/agent-messaging.json", nil, &about)
	if err != nil {
		// Everything else means that there is a server without the document.
		if fault.Is(err, Unreachable) || fault.Is(err, fault.InvalidField) || ctx.Err() != nil {
			return f, err
		}
		return f, nil // the document is for convenience
	}
	if checkDomain(about.Provider) == nil {
		f.provider = strings.ToLower(about.Provider)
	}
	if about.Endpoint != "" {
		f.endpoint = strings.TrimSuffix(about.Endpoint, "/")
	}
	return f, checkNoDowngrade(base, f.endpoint)
}

// checkNoDowngrade refuses an http address from a provider that was reached with https (MSG-95): the key
// would follow unencrypted.
func checkNoDowngrade(from, to string) error {
	if strings.HasPrefix(from, "https:") && !strings.HasPrefix(to, "https:") {
		return fault.New(fault.InvalidField, "%s names %.200q as the address of its API, which is not encrypted. Refused.",
			from, to)
	}
	return nil
}
