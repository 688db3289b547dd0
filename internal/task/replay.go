package task

import (
	"fmt"

	"signalbox/internal/ledger"
)

// Replay takes what the ledger holds of one workspace through the rules again, from the
// first entry on, and compares: each entry says how its task stood afterwards.
func Replay(p Policy, entries []ledger.Entry) (*Engine, error) {
	e := NewEngine(p)
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
			e.foreign(in)
			_, refusal = e.Do(in, World{Now: b.Now, Agent: b.Agent, AskPlan: b.AskPlan, PlanOK: b.PlanOK, Git: b.Git})
		}
		if refusal != nil {
			return nil, fmt.Errorf("entry %d (%s) would be refused now: %s", entries[i].Seq, entries[i].Kind, refusal)
		}
		if got, want := e.Tasks[in.TaskID].text(), b.Task.text(); got != want {
			return nil, fmt.Errorf("after entry %d (%s) the task is\n%s\nand the entry says\n%s", entries[i].Seq, entries[i].Kind, got, want)
		}
	}
	return e, nil
}

// input is what an entry was made from.
func (b *recorded) input(p Policy, taskID string) (Input, *Refusal) {
	switch b.Input {
	case InMessage, InAck, InHeartbeat, InInstruction:
		return p.Read(b.Input, b.Record)
	}
	return Input{Kind: b.Input, TaskID: taskID, Build: b.Build, Lost: b.Lost, Moved: b.Moved}, nil
}

// foreign takes what an input says of other tasks as given: it was looked at when the
// input was taken.
func (e *Engine) foreign(in Input) {
	for _, id := range in.Refs() {
		if _, known := e.Known[id]; !known && taskOf(id) != in.TaskID {
			e.Known[id] = Ref{TaskID: taskOf(id), Acked: true}
		}
	}
}
