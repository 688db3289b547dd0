package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"signalbox/internal/testbed"
)

// token is the first operator's.
func (p *process) token() string {
	p.t.Helper()
	text := testbed.Read(p.t, filepath.Join(p.dir, "operator.token"))
	return strings.TrimSpace(string(text))
}

var web = &http.Client{Timeout: testbed.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// call sends a request with the operator's token.
func (p *process) call(method, path, body string) (status int, answer string, err error) {
	return p.callAs(p.token(), method, path, body)
}

// callAs sends a request with somebody's key.
func (p *process) callAs(token, method, path, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := web.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// get is a call that has to succeed.
func (p *process) get(path string, into any) {
	p.t.Helper()
	status, answer, err := p.call("GET", path, "")
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("GET %s: %d %s %v", path, status, answer, err)
	}
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		p.t.Fatal(err)
	}
}
