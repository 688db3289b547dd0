package spool

import (
	"context"
	"fmt"
	"strings"

	"signalbox/internal/alarm"
	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

const (
	// maxLines is how many lines one query may bring.
	maxLines = 2_000
	// maxShown is how much of a line that is none is kept, in bytes.
	maxShown = 2_000
	// maxProblems is how many problems one entry lists.
	maxProblems = 100
)

// Event is what the harness reads out of an event for us.
type Event struct {
	Type, Tool, Session, AgentID string
	Tier                         policy.Tier
	Subject, Trace               string
	behalf.Named                 // on whose behalf, as it claims
}

// Taken is the answer to a spool: how many of its lines were recorded now, and what did not fit. A client may then
// forget the lines that it sent.
type Taken struct {
	Recorded int       `json:"recorded"`
	Problems []Problem `json:"problems"`
}

// step is a line that the spool wrote, with what is known of it before the transaction.
type step struct {
	line
	digest string
	event  Event
	of     behalf.Of
	wrong  string // what does not fit, beside the order
}

// Take records the lines of a spool, in their order, each once. read finds out what an event is about.
func (s *Spools) Take(ctx context.Context, who roster.Identity, payload wire.Raw,
	read func(wire.Raw) (Event, error),
) (taken Taken, err error) {
	var in struct {
		Key   string   `json:"key"`
		Lines []string `json:"lines"`
	}
	key := keyOf("")
	if err := wire.UnmarshalPart(payload, &in); err == nil {
		key = keyOf(in.Key)
	}
	if key == nil || len(in.Lines) == 0 || len(in.Lines) > maxLines {
		return taken, fault.New(fault.InvalidPayload, "A spool has a key in base64url, as at the handshake, and 1 to %d lines.",
			maxLines)
	}
	agent, err := agentOf(s.core.Ledger.Prover(ctx), in.Key)
	switch {
	case err != nil:
		return taken, err
	case agent == "":
		return taken, fault.New(fault.Conflict, "This spool was never registered. Make a handshake with its key first.")
	case agent != who.ID:
		return taken, s.foreign(ctx, who)
	}
	var steps []step
	var bad Taken
	for _, text := range in.Lines {
		l, ok := readLine(in.Key, key, text)
		if !ok {
			bad.add(0, "This line was not written by the spool, or was changed.", text)
			continue
		}
		if l.Number == 0 {
			continue
		}
		one, err := s.check(ctx, who, &l, digestOf(text), read)
		if err != nil {
			return taken, err
		}
		steps = append(steps, one)
	}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		taken = Taken{Problems: append([]Problem{}, bad.Problems...)}
		return s.record(tx, who, in.Key, steps, &taken)
	})
	return taken, err
}

// check finds out what a line is about, for whom it was as far as that is proved now, and whether a list allowed what
// it says was allowed.
func (s *Spools) check(ctx context.Context, who roster.Identity, l *line, digest string,
	read func(wire.Raw) (Event, error),
) (one step, err error) {
	one = step{line: *l, digest: digest, event: Event{Subject: KindStep}}
	if l.Event != nil {
		if one.event, err = read(l.Event); err != nil {
			one.wrong, one.event = "its event cannot be read: "+err.Error(), Event{Subject: KindStep}
		}
	}
	found, _, err := s.core.Book.Behalf(ctx, who, one.event.Claim, one.event.User)
	if err != nil {
		return one, err
	}
	one.of = behalf.Found(found)
	switch {
	case one.wrong != "":
		return one, nil
	case l.Decision == allowed:
		one.wrong, err = s.notListed(ctx, who, one.event.Tool, l)
	case l.Decision != refused:
		one.wrong = fmt.Sprintf("its decision is neither %s nor %s", allowed, refused)
	}
	return one, err
}

// record appends the steps that are not recorded yet, and what does not fit.
func (s *Spools) record(tx *ledger.Tx, who roster.Identity, name string, steps []step, taken *Taken) error {
	for i := range steps {
		one := &steps[i]
		before, same, err := neighbours(tx, name, one.Number)
		if err != nil {
			return err
		}
		if same == one.digest {
			continue // it was sent before
		}
		problem := one.wrong
		switch {
		case same != "":
			taken.add(one.Number, "There is another step with this number.", string(one.Event))
			continue
		case one.Number > 1 && before == "":
			problem = join(problem, fmt.Sprintf("the step before, %d, is missing", one.Number-1))
		case before != one.Prev:
			problem = join(problem, "the step before is not the one that it follows")
		}
		if problem != "" {
			taken.add(one.Number, "Step "+fmt.Sprint(one.Number)+": "+problem+".", "")
		}
		if err := appendStep(tx, who, name, one, problem); err != nil {
			return err
		}
		taken.Recorded++
	}
	if len(taken.Problems) == 0 {
		return nil
	}
	tx.Append(ledger.Event{
		Workspace: who.Workspace, Kind: kindBroken, Actor: who.Actor(), Subject: name,
		Body: broken{who.ID, name, taken.Problems},
	})
	return alarm.Raise(tx, alarm.Alarm{
		Workspace: who.Workspace, Kind: "spool_broken", Agent: who.ID,
		Title: "The record of what an agent did without the server does not fit",
		Detail: taken.Problems[0].What + " The entries " + kindBroken + " and " + KindStep + " of the agent have the rest. " +
			"Somebody has changed the spool, or the client made it up: look at what the agent did while the server was away.",
	})
}

// neighbours are the digests of the step before a number and of that with the number, "" for those that are not
// recorded.
func neighbours(tx *ledger.Tx, name string, number int64) (before, same string, err error) {
	if number == 1 {
		before = digestOf(name)
	}
	err = store.Each(tx.Query, func(scan store.Scan) error {
		var n int64
		var digest string
		if err := scan(&n, &digest); err != nil {
			return err
		}
		if n == number {
			same = digest
		} else {
			before = digest
		}
		return nil
	}, "SELECT number, digest FROM harness_spool_step WHERE spool = $1 AND number >= $2 AND number <= $3", name, number-1,
		number)
	return before, same, err
}

// appendStep appends the entry of a step.
func appendStep(tx *ledger.Tx, who roster.Identity, name string, one *step, problem string) error {
	b := &Unsupervised{
		Of: one.of, Agent: who.ID, AgentID: one.event.AgentID, Type: one.event.Type, Tool: one.event.Tool,
		Session: one.event.Session, Tier: one.event.Tier, Decision: one.Decision, Reason: one.Reason, SaidAt: one.At,
		Spool: name, Number: one.Number, Digest: one.digest, Policy: one.Policy, Problem: problem, Event: one.Event,
	}
	text, err := wire.Marshal(b)
	if err != nil {
		return err
	}
	tx.Append(ledger.Event{
		Workspace: who.Workspace, Kind: KindStep, Actor: who.Actor(), Subject: one.event.Subject, Trace: one.event.Trace,
		Body: ledger.Body{Value: b, JSON: text},
	})
	return nil
}

// add notes something that does not fit.
func (t *Taken) add(number int64, what, line string) {
	if len(t.Problems) < maxProblems {
		t.Problems = append(t.Problems, Problem{number, what, beginning(line)})
	}
}

// beginning is the beginning of a line, for people. What it has of control characters is replaced.
func beginning(text string) string {
	text = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text), "\uFFFD")
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "")
	}
	return text
}

// join joins two problems of a step.
func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
