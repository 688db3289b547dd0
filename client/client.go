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

// Client talks to one server with one agent's key.
type Client struct {
	base           string
	http           *http.Client
	agent, project string
	timeout        time.Duration
	patience       time.Duration
	firstPause     time.Duration
	longestPause   time.Duration
	longPoll       time.Duration
	prices         priceCache
	// authorize is a function so that printing a Client does not print its key.
	authorize func(*http.Request)
}

// Option changes how a Client works.
type Option func(*Client)

// WithAgent names the agent that signals are from when they do not say it themselves.
func WithAgent(name string) Option { return func(c *Client) { c.agent = name } }

// WithProject names the project of signals that do not say it themselves.
func WithProject(name string) Option { return func(c *Client) { c.project = name } }

// WithTimeout sets how long one call may take, 30 seconds when it is not given. A call
// that waits for a decision may take that much longer than it asked the server to wait.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithPatience sets for how long a call that brings no answer is made again, one
// minute when it is not given. Waiting for a decision is not bound by it.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WithTransport sets what carries the calls, as for a proxy or a private authority.
func WithTransport(t http.RoundTripper) Option { return func(c *Client) { c.http.Transport = t } }

// New makes a client for the server at the address, with a key of the agent
// (rs-amp-…). It makes no call.
func New(baseURL, key string, options ...Option) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		// The address is not repeated: it may hold a password.
		return nil, errors.New("client: the server's address should look like https://signalbox.example.com")
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("client: the agent's key should look like rs-amp-… and is empty " +
			"or has characters that no key has")
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

// Signal sends what an agent did, or asks for a gate in the middle of a run, and
// returns the answer, which may be that a person has yet to decide. m is a [Payload], a
// [GateRequest], a [Failure], a [Registration] or a [Receipt].
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

// post makes a call until it has an answer that read understands, or patience ends.
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
		if err := p.again(patient, err); err != nil {
			return err
		}
	}
}

// Wait returns the decision on a gate when there is one. It asks until ctx ends, through
// restarts of the server and failures of the network; only an answer that says that
// asking is of no use (the gate is not there, the key is not good) ends it earlier.
func (c *Client) Wait(ctx context.Context, gateID string) (Answer, error) {
	if gateID == "" {
		return Answer{}, errors.New("wait: there is no gate to wait for")
	}
	path := fmt.Sprintf("/amp/gates/%s?wait=%ds", url.PathEscape(gateID), int(c.longPoll.Seconds()))
	p := c.newPauses()
	for {
		began := time.Now()
		a, err := c.call(ctx, request{method: http.MethodGet, path: path, waits: c.longPoll})
		if err == nil && a.GateID != gateID {
			err = &unclear{fmt.Sprintf("the answer is about the gate %.80q, and %.80q was asked for", a.GateID, gateID)}
		}
		switch {
		case err == nil && a.Status != StatusPending:
			return a, nil
		case err == nil && time.Since(began) >= c.longPoll/2:
			p = c.newPauses() // the server has waited; there is no need to
			continue
		}
		// A server that stops, or does not know ?wait=, answers at once.
		if err := p.again(ctx, cmp.Or(err, errPending)); err != nil {
			return Answer{}, fmt.Errorf("wait for gate %s: %w", gateID, err)
		}
	}
}

// Gate asks for approval and waits for it. It returns nil if what m proposes was
// approved; a *[Rejected] with the operator's message if it was rejected; and another
// error if there is no decision. A [Payload] is sent with gate_required. A [Failure] and a
// [Receipt] propose nothing, and are refused.
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
	return c.settle(ctx, a)
}

// settle turns an answer into nil for approved, waiting for it if need be.
func (c *Client) settle(ctx context.Context, a Answer) error {
	if a.Status == StatusPending {
		var err error
		if a, err = c.Wait(ctx, a.GateID); err != nil {
			return err
		}
	}
	if a.Status != StatusApproved {
		return &Rejected{GateID: a.GateID, Message: a.Message}
	}
	// An approval that comes when nobody wants it any more is none.
	return ctx.Err()
}
