package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client talks to one server with the key of one agent. [New] makes it; it needs no closing, and
// may be used by many goroutines at once. It starts none, and nothing in it changes after New
// but the cache of prices.
type Client struct {
	base           string
	http           *http.Client
	agent, project string
	timeout        time.Duration // of one attempt
	patience       time.Duration // of all attempts of a call together
	firstPause     time.Duration // between attempts; doubles up to longestPause
	longestPause   time.Duration
	longPoll       time.Duration // how long the server is asked to hold a call of Wait
	prices         priceCache
	// authorize is a function so that printing a Client does not print its key.
	authorize func(*http.Request)
}

// Option is a setting of a [Client], for [New].
type Option func(*Client)

// WithAgent names the agent of messages that do not name one. It has to be the key's own agent.
func WithAgent(name string) Option { return func(c *Client) { c.agent = name } }

// WithProject names the project (the deck) of messages that do not name one.
func WithProject(name string) Option { return func(c *Client) { c.project = name } }

// WithTimeout sets how long one attempt may take; the default is 30 seconds. A call that waits for a
// decision may take that much longer than it asks the server to wait.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithPatience sets for how long a call without an answer is retried; the default is one minute.
// Waiting for a decision is not limited by it.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WithTransport sets what carries the calls, for example with a proxy or a private certificate
// authority. The default is [http.DefaultTransport].
func WithTransport(t http.RoundTripper) Option { return func(c *Client) { c.http.Transport = t } }

// New makes a client for the server at baseURL, with a key of the agent (rs-amp-…). It makes no call,
// so it does not notice a wrong address or key.
func New(baseURL, key string, options ...Option) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		// The address is not repeated: it may hold a password.
		return nil, errors.New("client: the server's address should look like https://signalbox.example.com")
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("client: the agent's key is empty or has characters that no key has; " +
			"it should look like rs-amp-…")
	}
	c := &Client{
		base: u.String(), timeout: 30 * time.Second, patience: time.Minute,
		firstPause: 100 * time.Millisecond, longestPause: 10 * time.Second, longPoll: 30 * time.Second,
		authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) },
	}
	c.http = &http.Client{
		Transport: http.DefaultTransport,
		// The key goes to the host that was named and to no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// Signal sends a message and returns the answer, which may be [StatusPending]: a person has yet to
// decide, and [Client.Wait] waits for it. m is a [Payload], a [GateRequest], a [Failure], a
// [Registration] or a [Receipt]. An *[Error] is a refusal of the server; with any other error it
// is not known whether the message arrived, and sending the same again is safe.
func (c *Client) Signal(ctx context.Context, m Message) (Answer, error) {
	path, body, err := m.encode(c)
	if err != nil {
		return Answer{}, err
	}
	var a Answer
	err = c.post(ctx, path, body, func(r reply) (err error) {
		a, err = readAnswer(r)
		return err
	})
	if err != nil {
		return Answer{}, fmt.Errorf("signal: %w", err)
	}
	return a, nil
}

// post retries a call until it has an answer that read understands, the server refuses it for good, or
// patience ends. An answer that read does not understand counts as none.
func (c *Client) post(ctx context.Context, path string, body []byte, read func(reply) error) error {
	patient, cancel := context.WithTimeoutCause(ctx, c.patience, ErrUnreachable)
	defer cancel()
	p := c.newPauses()
	for {
		r, err := c.do(patient, request{method: http.MethodPost, path: path, body: body})
		if err == nil {
			err = read(r)
		}
		if err == nil {
			return nil
		}
		if err := p.waitBeforeRetry(patient, err); err != nil {
			return err
		}
	}
}

// Wait returns the decision on a gate as soon as there is one. It asks until ctx ends, through restarts
// of the server and failures of the network. Only a refusal that will not change, such as a gate
// that does not exist or a key that is not valid, ends it earlier. The answer is never pending.
func (c *Client) Wait(ctx context.Context, gateID string) (Answer, error) {
	if gateID == "" {
		return Answer{}, errors.New("wait: the gate id is empty")
	}
	path := fmt.Sprintf("/amp/gates/%s?wait=%ds", url.PathEscape(gateID), int(c.longPoll.Seconds()))
	p := c.newPauses()
	for {
		began := time.Now()
		a, err := c.call(ctx, request{method: http.MethodGet, path: path, waits: c.longPoll})
		if err == nil && a.GateID != gateID {
			err = &unreadableError{fmt.Sprintf("the answer is about the gate %.80q instead of %.80q", a.GateID, gateID)}
		}
		switch {
		case err == nil && a.Status != StatusPending:
			return a, nil
		case err == nil && time.Since(began) >= c.longPoll/2:
			p = c.newPauses() // the server held the call, so ask again without a pause
			continue
		}
		// A server that is stopping answers at once, and so may a proxy on the way: pause.
		if err := p.waitBeforeRetry(ctx, cmp.Or(err, errPending)); err != nil {
			return Answer{}, fmt.Errorf("wait for gate %s: %w", gateID, err)
		}
	}
}

// Gate asks for approval and waits for it, for as long as ctx lasts. It returns nil if what m proposes
// was approved, a *[Rejected] with the operator's message if it was rejected, and another error if
// there is no decision. A [Payload] is sent with gate_required. A [Failure] and a [Receipt] propose
// nothing and are refused.
func (c *Client) Gate(ctx context.Context, m Message) error {
	switch p := m.(type) {
	case Payload:
		p.GateRequired = true
		m = p
	case Failure, Receipt:
		return errors.New("gate: a failure or a receipt proposes nothing that could be approved; send it with Signal")
	}
	a, err := c.Signal(ctx, m)
	if err != nil {
		return err
	}
	return c.awaitApproval(ctx, a)
}

// awaitApproval returns nil for an answer that is approved, after waiting if it is pending. Every other way out
// is an error.
func (c *Client) awaitApproval(ctx context.Context, a Answer) error {
	if a.Status == StatusPending {
		var err error
		if a, err = c.Wait(ctx, a.GateID); err != nil {
			return err
		}
	}
	if a.Status != StatusApproved {
		return &Rejected{GateID: a.GateID, Message: a.Message}
	}
	// The caller may have given up in the same moment; then it must not act.
	return ctx.Err()
}
