package oidc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	lib "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"
)

const (
	// answerTime is how long a provider may take for one answer.
	answerTime = 3 * time.Second
	// maxAnswer is how much of an answer is read: keys and settings are a few KiB.
	maxAnswer = 1 << 20
	// askEvery is how often a provider is asked in the long run, and askBurst how often at once. Whoever sends tokens
	// that nobody has signed would else have us ask for each of them.
	askEvery = 5 * time.Second
	askBurst = 6
	// freshFor is how long keys are used without asking again, so that a key that the provider has withdrawn ends.
	// knownFor is how long they are used while the provider does not answer.
	freshFor = time.Hour
	knownFor = 24 * time.Hour
)

// Provider is one issuer, and what is known of it after it was first asked. One that is down at the start of the server
// does not keep the server from starting. It is safe for concurrent use.
type Provider struct {
	issuer string
	now    func() time.Time
	client *http.Client
	turn   chan struct{} // held by the call that asks

	mu    sync.Mutex
	known *lib.Provider
	since time.Time
}

// NewProvider is the provider with an issuer. Nothing is asked yet. The log hears of answers that did not come.
func NewProvider(issuer string, now func() time.Time, log *slog.Logger) *Provider {
	return &Provider{
		issuer: issuer, now: now, turn: make(chan struct{}, 1),
		client: &http.Client{
			Timeout:   answerTime,
			Transport: &bounded{http.DefaultTransport, rate.NewLimiter(rate.Every(askEvery), askBurst), log},
			// A redirect could lead to keys of somebody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Discover is what the provider says of itself. It is asked the first time, and again when its keys are old.
func (p *Provider) Discover(ctx context.Context) (*lib.Provider, error) {
	known, age := p.last()
	if known != nil && age < freshFor {
		return known, nil
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if known, age = p.last(); known != nil && age < freshFor { // others have asked meanwhile
		return known, nil
	}
	asking, cancel := context.WithTimeout(lib.ClientContext(ctx, p.client), answerTime)
	defer cancel()
	found, err := lib.NewProvider(asking, p.issuer)
	if err != nil {
		if known != nil && age < knownFor {
			return known, nil
		}
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.since = found, p.now()
	return found, nil
}

// last is what is known, nil for nothing, and for how long.
func (p *Provider) last() (*lib.Provider, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known, p.now().Sub(p.since)
}

// bounded is a transport that a provider cannot fill memory through, and that asks it only so often.
type bounded struct {
	through http.RoundTripper
	asks    *rate.Limiter
	log     *slog.Logger
}

var errTooOften = errors.New("the provider was asked a moment ago")

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if !b.asks.Allow() {
		return nil, errTooOften
	}
	res, err := b.through.RoundTrip(r)
	if err != nil {
		b.log.Warn("a provider of OpenID Connect does not answer", "url", r.URL.Redacted(), "error", err.Error())
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		b.log.Warn("a provider of OpenID Connect answers with an error", "url", r.URL.Redacted(), "status", res.Status)
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxAnswer), res.Body}
	return res, nil
}
