package ahp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer is far more than an answer has.
const maxAnswer = 16 << 20

// poster sends each message as a POST.
type poster struct {
	url  string
	http *http.Client
	// authorize is a function so that printing a Client does not print its key.
	authorize func(*http.Request)
}

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

func (p *poster) do(ctx context.Context, message []byte) (status string, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(message))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	p.authorize(req)
	res, err := p.http.Do(req)
	if err != nil {
		return "", nil, fmt.Errorf("ahp: no answer: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("ahp: the answer broke off: %w", err)
	case len(body) > maxAnswer:
		return "", nil, fmt.Errorf("ahp: the answer is larger than %d bytes", maxAnswer)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return res.Status, body, nil
	}
	return "", body, nil
}

func (p *poster) call(ctx context.Context, _ string, message []byte) ([]byte, error) {
	status, body, err := p.do(ctx, message)
	if err == nil && status != "" {
		err = fmt.Errorf("ahp: the harness answered %s: %.300s", status, body)
	}
	return body, err
}

// tell looks at nothing but whether the message went out, as the protocol has it.
func (p *poster) tell(ctx context.Context, message []byte) error {
	_, _, err := p.do(ctx, message)
	return err
}

func (p *poster) close() error {
	p.http.CloseIdleConnections()
	return nil
}
