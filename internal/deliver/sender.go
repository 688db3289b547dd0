package deliver

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"signalbox/internal/wire"
)

// Sender makes the calls of one kind of delivery. Send makes one try: it returns when ctx ends, keeps
// nothing between tries, may be called again with the same id, and from several goroutines at once.
type Sender interface {
	Send(ctx context.Context, a Attempt) Result
}

// Attempt is one try of a delivery, as its Sender gets it.
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
	// Secret signs the call in place of the derived one, for senders that know the receiver's own.
	Secret wire.Secret
	At     time.Time // when it began
}

// Verdict is what a Sender thinks of a try, and what follows for the delivery.
type Verdict int

// The verdicts.
const (
	Failed    Verdict = iota // try again later
	Succeeded                // the receiver has it: delivered
	Hopeless                 // no try can succeed: dead at once
)

// Result is the result of a try. The zero value is a failure without a reason. All of it but RetryAfter
// is kept in the ledger and shown to operators: no secrets.
type Result struct {
	Verdict    Verdict
	Status     int           // the receiver's HTTP status, 0 if there was no answer
	Class      string        // one word: status, redirect, timeout, refused, dns, tls, blocked, …
	Text       string        // one sentence
	RetryAfter time.Duration // the pause that the receiver asked for, 0 for none
	// Reference is the receiver's name for what it got, such as the id of a chat message, by which
	// it can be changed later. It is kept with a success.
	Reference string
	cut       bool // broken off by us: says nothing about the receiver, and is not recorded
}

const (
	maxResultText = 500
	maxReference  = 200
)

// tidy makes a text of a receiver one line that any database and terminal can take.
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

// try calls the sender with a time limit. A panic is a failed try of this delivery, and of no other.
func (o *Outbox) try(ctx context.Context, sender string, a Attempt) (r Result) {
	// Another node may have the sender, such as one with a channel configured: a failure, not the end.
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
			r.Reference = "" // a cut one would refer to nothing
		}
	}()
	r = s.Send(bounded, a)
	// The outer context: it ends with the runner, not with the time limit of the try.
	r.cut = r.Verdict == Failed && ctx.Err() != nil
	return r
}
