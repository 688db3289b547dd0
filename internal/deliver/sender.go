package deliver

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"signalbox/internal/wire"
)

// Sender makes one try. It returns when ctx ends, keeps nothing between tries, and
// may be called with the same id again.
type Sender interface {
	Send(ctx context.Context, a Attempt) Result
}

// Attempt is one try of a delivery.
type Attempt struct {
	ID         string // the same on every try
	Workspace  string
	Target     string
	Method     string
	Header     map[string]string
	Payload    []byte
	Receiver   string
	Generation int
	Number     int64 // 1 for the first try
	// Secret signs in place of the one that is derived, for senders that know a secret of
	// the receiver's own.
	Secret wire.Secret
	At     time.Time // when it began
}

// Verdict is what a try came to.
type Verdict int

// The verdicts.
const (
	Failed    Verdict = iota // may succeed later
	Succeeded                // the receiver has it
	Hopeless                 // never will; given up at once
)

// Result is what a sender says about a try. Text is for operators and is kept in the
// ledger: no secrets.
type Result struct {
	Verdict    Verdict
	Status     int           // the receiver's status, 0 when there was none
	Class      string        // one word: status, redirect, timeout, refused, dns, tls, blocked, …
	Text       string        // one sentence
	RetryAfter time.Duration // the pause that the receiver asked for
	// Reference is by what the receiver knows what it got, so that it can be changed
	// later. It is kept with a success: short, and no secret.
	Reference string
	cut       bool // broken off by us, which says nothing about the receiver
}

const (
	maxResultText = 500
	maxReference  = 200
)

// tidy makes text that any database and terminal takes.
func tidy(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxResultText {
		text = strings.ToValidUTF8(text[:maxResultText], "") + "…"
	}
	return strings.TrimSpace(text)
}

// try calls the sender with a time limit. A panic is the sender's failure and
// nobody else's.
func (o *Outbox) try(ctx context.Context, sender string, a Attempt) (r Result) {
	s, ok := o.senders[sender]
	if !ok {
		return Result{
			Class: "no_sender",
			Text: fmt.Sprintf("This server has no sender for %q. Configure one, or send it again from a server that has.",
				sender),
		}
	}
	bounded, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			o.log.Error("a sender panicked", "sender", sender, "delivery", a.ID, "panic", fmt.Sprint(p))
			r = Result{Class: "internal", Text: "The sender failed inside Signalbox. The server's log has the cause."}
		}
		r.Text = tidy(r.Text)
		if !clean(r.Reference, maxReference) {
			r.Reference = "" // half of one refers to nothing
		}
	}()
	r = s.Send(bounded, a)
	r.cut = r.Verdict == Failed && ctx.Err() != nil
	return r
}
