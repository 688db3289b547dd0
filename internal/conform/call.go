package conform

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// longest is more than any call takes that waits.
const longest = 75 * time.Second

// maxAnswer is more than any answer has that a case asks for.
const maxAnswer = 16 << 20

// reply is what came back.
type reply struct {
	http   int
	header http.Header
	body   []byte
	took   time.Duration
}

// newHTTP is a client that follows no redirect: what is looked at is what the server answered.
func newHTTP(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 8},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call makes a call and reads all of the answer.
func call(
	ctx context.Context, client *http.Client, method, address string, body []byte, header http.Header,
) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header = header
	began := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return reply{}, fmt.Errorf("no answer: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return reply{}, fmt.Errorf("the answer broke off: %w", err)
	}
	return reply{res.StatusCode, res.Header, text, time.Since(began)}, nil
}

// whileLimited makes a call again as long as the server says that there were too many, and for how
// long to wait.
func whileLimited(ctx context.Context, try func() (reply, error)) (reply, error) {
	for {
		r, err := try()
		wait, _ := strconv.Atoi(r.header.Get("Retry-After"))
		if err != nil || r.http != http.StatusTooManyRequests || wait < 1 || wait > 60 {
			return r, err
		}
		select {
		case <-time.After(time.Duration(wait) * time.Second):
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}
