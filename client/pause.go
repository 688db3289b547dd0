package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

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
