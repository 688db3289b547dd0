package ahp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds an answer, in bytes. Real ones have a few hundred.
const maxAnswer = 16 << 20

// poster is a carrier that sends each message as a POST.
type poster struct {
	url  string
	http *http.Client
	// authorize is a function so that printing a Client does not print its key.
	authorize func(*http.Request)
}

// newPoster makes a client with a connection pool of its own, so that Close can close
// it.
func newPoster(address, key string) *poster {
	p := &poster{url: address, authorize: func(*http.Request) {}}
	if key != "" {
		p.authorize = func(r *http.Request) { r.Header.Set("X-API-Key", key) }
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if ok {
		transport = transport.Clone()
	} else {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	p.http = &http.Client{
		Transport: transport,
		// The key goes to the host that was named and to no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

// do sends a message. status is empty for a 2xx.
func (p *poster) do(ctx context.Context, message []byte) (status string, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(message))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	p.authorize(req)
	res, err := p.http.Do(req)
	if err != nil {
		return "", nil, unreachable(fmt.Errorf("ahp: no answer: %w", err))
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", nil, unreachable(fmt.Errorf("ahp: the answer broke off: %w", err))
	case len(body) > maxAnswer:
		return "", nil, fmt.Errorf("ahp: the answer is larger than %d bytes", maxAnswer)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return res.Status, body, nil
	}
	return "", body, nil
}

// call sends a request. Errors of JSON-RPC have the status 200 (AHP-10), so any other
// status is a broken transport, and no decision is looked for in its body.
func (p *poster) call(ctx context.Context, _ string, message []byte) ([]byte, error) {
	status, body, err := p.do(ctx, message)
	if err == nil && status != "" {
		err = fmt.Errorf("ahp: the harness answered %s: %.300s", status, body)
		if status[0] == '5' {
			return nil, unreachable(err)
		}
		return nil, &answeredError{err}
	}
	return body, err
}

// notify sends a notification and ignores the status, as the reference client does: a
// notification has no outcome.
func (p *poster) notify(ctx context.Context, message []byte) error {
	_, _, err := p.do(ctx, message)
	return err
}

// close closes idle connections. Calls under way go on until their timeout.
func (p *poster) close() error {
	p.http.CloseIdleConnections()
	return nil
}
