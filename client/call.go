package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// request is one call of the API.
type request struct {
	method, path string
	body         []byte
	waits        time.Duration // how long the server is asked to hold it
}

// call makes one attempt and reads its answer as that of a gate or signal.
func (c *Client) call(ctx context.Context, r request) (Answer, error) {
	got, err := c.do(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	return readAnswer(got)
}

// reply is an answer of the server whose status is 200 or 202, or an error's before it is read.
type reply struct {
	code   int
	status string // such as 200 OK
	header http.Header
	body   []byte
}

// do makes one attempt. A status other than 200 and 202, redirects included, is an *Error. An attempt
// without a complete answer is another error, and the cause of ctx if ctx has ended.
func (c *Client) do(ctx context.Context, r request) (reply, error) {
	attempt, cancel := context.WithTimeout(ctx, c.timeout+r.waits)
	defer cancel()
	req, err := http.NewRequestWithContext(attempt, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return reply{}, err
	}
	if len(r.body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	c.authorize(req)
	res, err := c.http.Do(req)
	if err != nil {
		return reply{}, c.noAnswer(ctx, attempt, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	got := reply{res.StatusCode, res.Status, res.Header, body}
	switch {
	case err != nil:
		return reply{}, c.noAnswer(ctx, attempt, err)
	case len(body) > maxAnswer:
		return reply{}, &unreadableError{fmt.Sprintf("the answer %s is larger than %d bytes", res.Status, maxAnswer)}
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted:
		return reply{}, readError(got)
	}
	return got, nil
}

// noAnswer is the error of an attempt without an answer. It leaves out the URL, which may hold a gate's
// id and is of no use to the reader.
func (c *Client) noAnswer(ctx, attempt context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if attempt.Err() != nil {
		return &unreadableError{"no answer in time"}
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("no answer from %s: %w", c.base, err)
}

// ErrUnreachable says that a call had no answer for as long as [WithPatience] allows.
var ErrUnreachable = errors.New("the server cannot be reached")

var errPending = errors.New("the gate is not decided")

// pauses are the growing pauses between attempts.
type pauses struct{ next, longest time.Duration }

func (c *Client) newPauses() *pauses { return &pauses{c.firstPause, c.longestPause} }

// waitBeforeRetry waits before the next attempt. It returns an error if there should be no next attempt: that of the
// last attempt if it will not change, or the cause of ctx together with it.
func (p *pauses) waitBeforeRetry(ctx context.Context, last error) error {
	if !temporary(last) {
		return last
	}
	if ctx.Err() == nil {
		// Random, so that agents that lost the same server do not all come back at the same moment.
		pause := p.next/2 + rand.N(p.next/2+1)
		if e, ok := errors.AsType[*Error](last); ok {
			pause = max(pause, e.RetryAfter)
		}
		p.next = min(2*p.next, p.longest)
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
		}
	}
	if cause := context.Cause(ctx); !errors.Is(last, cause) {
		return fmt.Errorf("%w; the last attempt: %w", cause, last)
	}
	return last
}
