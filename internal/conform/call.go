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

// longest is longer than any call takes that waits for a decision.
const longest = 75 * time.Second

// maxAnswer bounds an answer, in bytes. No case asks for one as large.
const maxAnswer = 16 << 20

// reply is a response that was read to its end, with how long it took.
type reply struct {
	http   int
	header http.Header
	body   []byte
	took   time.Duration
}

// newHTTP makes a client that follows no redirect: the cases are about the server's own
// answer.
func newHTTP(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 8},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call makes a call and reads the whole response.
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

// whileLimited repeats a call while the server answers 429 and says how long to wait. A
// wait of more than a minute is returned as it is, since no case can wait for that.
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
