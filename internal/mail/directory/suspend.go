package directory

import (
	"context"
	"math"
	"time"

	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Suspension is the answer to suspending or resuming an agent.
type Suspension struct {
	AgentID     string  `json:"agent_id"`
	Suspended   bool    `json:"suspended"`
	SuspendedAt string  `json:"suspended_at,omitempty"`
	ExpiresAt   *string `json:"expires_at"`
}

// maxHours is one year.
const maxHours = 24 * 365

// Order is how an operator suspends an agent.
type Order struct {
	Reason string
	Hours  float64 // 0 is until somebody resumes it
}

// readOrder reads the body of a suspension, which may be empty.
func readOrder(body []byte) (o Order, err error) {
	f := &amp.Fields{}
	if len(body) > 0 {
		if f, err = amp.ReadFields(body); err != nil {
			return o, err
		}
	}
	o.Reason = f.Text("reason", 1000)
	// Fractions are allowed: 0.5 is half an hour.
	if raw, ok := f.Get("duration_hours"); ok {
		if err := wire.Unmarshal(raw, &o.Hours); err != nil || o.Hours <= 0 || o.Hours > maxHours {
			f.Fail("duration_hours", "should be a number of hours, more than 0 and at most %d.", maxHours)
		}
	}
	return o, f.Err
}

// Suspend suspends an agent that the calling operator may see. The roster keeps the state, so it
// holds for every protocol; the end of a limited suspension needs no timer.
func (d *Directory) Suspend(ctx context.Context, by roster.Identity, name string, o Order) (Suspension, error) {
	a, err := d.Agent(ctx, name)
	if err != nil {
		return Suspension{}, err
	}
	// The zero time is "until somebody resumes it".
	var until time.Time
	if o.Hours > 0 {
		until = d.core.Now().Add(time.Duration(math.Round(o.Hours * float64(time.Hour))))
	}
	if a, err = d.core.Roster.Suspend(ctx, by, a.Workspace, a.ID, o.Reason, until); err != nil {
		return Suspension{}, err
	}
	out := Suspension{AgentID: a.ID, Suspended: a.Suspended, SuspendedAt: amp.Stamp(d.core.Now())}
	if a.SuspendedUntil != nil {
		text := amp.Stamp(*a.SuspendedUntil)
		out.ExpiresAt = &text
	}
	return out, nil
}

// Resume ends the suspension of an agent that the calling operator may see.
func (d *Directory) Resume(ctx context.Context, by roster.Identity, name string) (Suspension, error) {
	a, err := d.Agent(ctx, name)
	if err != nil {
		return Suspension{}, err
	}
	no := false
	a, err = d.core.Roster.ChangeAgent(ctx, by, a.Workspace, a.ID, roster.AgentChange{Suspended: &no})
	return Suspension{AgentID: a.ID, Suspended: a.Suspended}, err
}
