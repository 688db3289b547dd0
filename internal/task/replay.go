package task

import (
	"fmt"

	"signalbox/internal/ledger"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Replay runs what the ledger holds of one workspace through the rules again, from the first entry
// on, and compares: each entry says how its task stood afterwards, and is followed by the entries that its step led to. An
// error names the first entry that differs. It is the proof that state follows from the ledger and the rules alone.
//
// Entries about other tasks may be missing, as in a bundle; references to them are presumed to be
// right (Engine.Presume).
func Replay(p amp.Policy, entries []ledger.Entry) (*amp.Engine, error) {
	e := amp.NewEngine(p)
	var due follows
	last := map[string]int64{} // the last entry about each task
	for i := range entries {
		var b recorded
		if !IsStep(entries[i].Kind) {
			continue
		}
		if err := entries[i].Decode(&b); err != nil {
			return nil, err
		}
		if b.Input == "" { // it follows from the one before
			if err := due.take(&entries[i], &b); err != nil {
				return nil, err
			}
			continue
		}
		if err := due.done(); err != nil {
			return nil, err
		}
		if before := last[entries[i].Subject]; b.After > 0 && b.After != before {
			return nil, fmt.Errorf("entry %d (%s) was written after entry %d, which is missing", entries[i].Seq, entries[i].Kind,
				b.After)
		}
		last[entries[i].Subject] = entries[i].Seq
		in, refusal := b.input(p, entries[i].Subject)
		var out amp.Outcome
		if refusal == nil {
			e.Presume(in)
			out, refusal = e.Do(in, amp.World{
				Now: b.Now, Agent: b.Agent, AskPlan: b.AskPlan, PlanOK: b.PlanOK, Release: b.Release != "",
				ByRisk: b.Rules < rulesByContent, BySeat: b.Rules < rulesByClaim, ByWord: b.Rules < rulesByCommit,
				Successor: b.Successor, Git: b.Git, User: b.User, Claimed: b.Claimed,
			})
		}
		if refusal != nil {
			return nil, fmt.Errorf("entry %d (%s) would be refused now: %s", entries[i].Seq, entries[i].Kind, refusal)
		}
		if got, want := e.Tasks[in.TaskID].Text(), b.Task.Text(); got != want {
			return nil, fmt.Errorf("after entry %d (%s) the task is\n%s\nand the entry says\n%s", entries[i].Seq,
				entries[i].Kind, got, want)
		}
		due = newFollows(entries[i].Seq, b.Rules, out)
	}
	return e, due.done()
}

// follows are the entries that have to follow an entry, because its step led to them.
type follows struct {
	seq     int64 // of the entry
	checked bool  // entries of earlier rules are not: what followed from them was written otherwise
	ids     []string
}

func newFollows(seq int64, rules int, out amp.Outcome) follows {
	f := follows{seq: seq, checked: rules >= rulesByClaim}
	for _, a := range out.Acks {
		f.ids = append(f.ids, "the ack of "+a.AckOf)
	}
	for _, m := range out.Decisions {
		f.ids = append(f.ids, m.MsgID)
	}
	for _, m := range out.Raised {
		f.ids = append(f.ids, m.MsgID)
	}
	return f
}

// take takes the next entry that follows from another.
func (f *follows) take(e *ledger.Entry, b *recorded) error {
	var is struct {
		MsgID string `json:"msg_id"`
		AckOf string `json:"ack_of"`
	}
	if err := wire.UnmarshalPart(b.Record, &is); err != nil {
		return err
	}
	id := is.MsgID
	if e.Kind == kindAcked {
		id = "the ack of " + is.AckOf
	}
	switch {
	case !f.checked:
		return nil
	case len(f.ids) == 0 || f.ids[0] != id:
		return fmt.Errorf("entry %d (%s) is %s, which does not follow from entry %d", e.Seq, e.Kind, id, f.seq)
	}
	f.ids = f.ids[1:]
	return nil
}

// done is an error if an entry is missing.
func (f *follows) done() error {
	if f.checked && len(f.ids) > 0 {
		return fmt.Errorf("the entry of %s is missing, to which entry %d led", f.ids[0], f.seq)
	}
	return nil
}

// input is what an entry was made from. Documents are read again from their bytes; what the server
// found itself is in the body.
func (b *recorded) input(p amp.Policy, taskID string) (amp.Input, *amp.Refusal) {
	switch b.Input {
	case amp.InMessage, amp.InAck, amp.InHeartbeat, amp.InInstruction:
		return p.Read(b.Input, b.Record)
	}
	return amp.Input{Kind: b.Input, TaskID: taskID, Build: b.Build, Lost: b.Lost, Moved: b.Moved, Unsent: b.Unsent}, nil
}
