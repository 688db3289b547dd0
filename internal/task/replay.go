package task

import (
	"fmt"

	"signalbox/internal/ledger"
	"signalbox/internal/task/amp"
)

// Replay runs what the ledger holds of one workspace through the rules again, from the first entry
// on, and compares: each entry says how its task stood afterwards. An error names the first entry
// that differs. It is the proof that state follows from the ledger and the rules alone.
//
// Entries about other tasks may be missing, as in a bundle; references to them are presumed to be
// right (Engine.Presume).
func Replay(p amp.Policy, entries []ledger.Entry) (*amp.Engine, error) {
	e := amp.NewEngine(p)
	for i := range entries {
		var b recorded
		if !isTaskKind(entries[i].Kind) {
			continue
		}
		if err := entries[i].Decode(&b); err != nil {
			return nil, err
		}
		if b.Input == "" {
			continue // it follows from the one before
		}
		in, refusal := b.input(p, entries[i].Subject)
		if refusal == nil {
			e.Presume(in)
			_, refusal = e.Do(in, amp.World{
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
	}
	return e, nil
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
