package backup

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Config is when and where the server makes backups by itself.
type Config struct {
	To         string
	Every      time.Duration // 0 is never
	Recipients []string
	S3         blob.S3 // of a place that is a bucket
}

// Check finds settings that are useless without another.
func (c Config) Check() error {
	if c.Every == 0 {
		return nil
	}
	if c.To == "" || c.Every < time.Minute {
		return fault.New(fault.InvalidConfig,
			"backup.every needs backup.to, a folder or s3:// and a bucket, and is a minute or more.").About("backup.to")
	}
	if _, err := Recipients(c.Recipients); err != nil {
		return fault.Wrap(err, fault.InvalidConfig,
			"backup.recipients should be public keys of age, which begin with age1. `signalbox backup identity` makes one.").
			About("backup.recipients")
	}
	return nil
}

// The entries about scheduled backups. They are how each node knows when the last one was.
const (
	kindMade   = "backup.made"
	kindFailed = "backup.failed"
)

// failed is the body of backup.failed.
type failed struct {
	To      string `json:"to"`
	Problem string `json:"problem"`
}

// Schedule makes backups now and then, on one node at a time.
type Schedule struct {
	Config
	Source
	Ledger *ledger.Ledger
	Now    func() time.Time
	Log    *slog.Logger
}

// lease is what the node holds that makes the backups.
const lease = "backup"

// Run makes backups until ctx ends. Without a schedule it returns at once.
func (s *Schedule) Run(ctx context.Context) error {
	if s.Every == 0 {
		return nil
	}
	return s.Ledger.Hold(ctx, lease, func(ctx context.Context) error {
		for ctx.Err() == nil {
			last, err := s.State(ctx)
			if err != nil {
				return err
			}
			if wait := s.due(last).Sub(s.Now()); wait > 0 {
				clock.Pause(ctx, min(wait, time.Minute))
			} else if err := s.once(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// due is when the next backup is made: after a failure sooner than after a success.
func (s *Schedule) due(last *State) time.Time {
	var at time.Time
	if last.LastSuccess != nil {
		at = last.LastSuccess.Add(s.Every)
	}
	if last.failing() {
		if again := last.LastFailure.Add(min(s.Every/4, time.Hour)); again.After(at) {
			at = again
		}
	}
	return at
}

// once makes one backup and records how it went.
func (s *Schedule) once(ctx context.Context) error {
	made, err := s.make(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // the server stops, or another node has the lease
	}
	event := ledger.Event{Kind: kindMade, Actor: "system", Body: made}
	if err != nil {
		s.Log.Error("cannot make a backup; will try again", "to", s.To, "error", err.Error())
		event.Kind, event.Body = kindFailed, failed{s.To, fault.From(err).Message}
	}
	return s.Ledger.Write(ctx, func(tx *ledger.Tx) error { tx.Append(event); return nil })
}

func (s *Schedule) make(ctx context.Context) (Made, error) {
	to, err := Open(ctx, s.To, s.S3, true)
	if err != nil {
		return Made{}, err
	}
	return Make(ctx, s.Source, to, s.Recipients, s.Now(), func(_, _ int64) {})
}

// State is how the scheduled backups are.
type State struct {
	LastSuccess *time.Time `json:"last_success,omitempty"`
	Entries     int64      `json:"entries"` // in the last one
	LastFailure *time.Time `json:"last_failure,omitempty"`
	Problem     string     `json:"problem,omitempty"` // why the last one failed, if none succeeded since
	Overdue     bool       `json:"overdue"`           // the last one is older than two should be
}

// failing reports whether the last attempt failed.
func (s *State) failing() bool {
	return s.LastFailure != nil && (s.LastSuccess == nil || s.LastFailure.After(*s.LastSuccess))
}

// Text is the state in a sentence.
func (s *State) Text() string {
	text := "none has succeeded yet"
	if s.LastSuccess != nil {
		text = fmt.Sprintf("the last at %s, with %d entries", s.LastSuccess.Format(time.RFC3339), s.Entries)
	}
	if s.Overdue {
		text += "; OVERDUE"
	}
	if s.failing() {
		text += fmt.Sprintf("; FAILED at %s: %s", s.LastFailure.Format(time.RFC3339), s.Problem)
	}
	return text
}

// State reads from the ledger how the scheduled backups are; nil without a schedule.
func (s *Schedule) State(ctx context.Context) (*State, error) {
	if s.Every == 0 {
		return nil, nil //nolint:nilnil // there is nothing to say
	}
	out := &State{}
	last := func(kind string, body any) (*time.Time, error) {
		found, err := s.Ledger.Entries(ctx, ledger.Query{Kinds: []string{kind}, Newest: true, Limit: 1})
		if err != nil || len(found) == 0 {
			return nil, err
		}
		if found[0].Body != nil { // which retention may have erased
			err = found[0].Decode(body)
		}
		return &found[0].At, err
	}
	var made Made
	var bad failed
	var err error
	if out.LastSuccess, err = last(kindMade, &made); err == nil {
		out.LastFailure, err = last(kindFailed, &bad)
	}
	if err != nil {
		return nil, err
	}
	out.Entries = made.Entries
	if out.failing() {
		out.Problem = bad.Problem
	}
	out.Overdue = out.LastSuccess == nil && out.failing() ||
		out.LastSuccess != nil && s.Now().After(out.LastSuccess.Add(2*s.Every))
	return out, nil
}
