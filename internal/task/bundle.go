package task

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Bundle is everything about one task, each entry with a proof that it is in the ledger: messages,
// acks, instructions, gates and decisions. An operator exports it for somebody who does not trust
// the server; Verify needs nothing but the ledger's key.
type Bundle struct {
	Record    string     `json:"record"`
	Workspace string     `json:"workspace"`
	Task      amp.Record `json:"task"`
	State     *amp.Task  `json:"state"` // as it stands, to compare with a replay
	Policy    amp.Policy `json:"policy"`
	Key       string     `json:"key"` // that verifies the proofs; compare it with one from elsewhere
	Entries   []Proved   `json:"entries"`
}

// Proved is an entry with its proof.
type Proved struct {
	Seq   int64   `json:"seq"`
	Kind  string  `json:"kind"`
	Salt  string  `json:"salt"`  // base64
	Body  *string `json:"body"`  // as it is stored, byte for byte; nil when it was erased
	Proof string  `json:"proof"` // a tlog-proof@v1 file, which holds the record
}

// bundleRecord is the value of "record" in a bundle.
const bundleRecord = "task_bundle"

// Bundle collects everything about a task, by its trace.
func (s *Tasks) Bundle(ctx context.Context, workspace, taskID string) (*Bundle, error) {
	t, err := s.Task(ctx, workspace, taskID)
	if err != nil {
		return nil, err
	}
	b := &Bundle{
		Record: bundleRecord, Workspace: workspace, Task: t.Show(workspace), State: t, Policy: s.Policy,
		Key: s.core.Ledger.Key(), Entries: []Proved{},
	}
	// Page by page: a long task may have thousands of entries.
	for after := int64(0); ; {
		page, err := s.core.Ledger.Entries(ctx,
			ledger.Query{After: after, Limit: wire.MaxPage, Trace: "task:" + workspace + ":" + taskID})
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			after = e.Seq
			proof, err := s.core.Ledger.ProofFile(ctx, e.Seq)
			if err != nil {
				return nil, err
			}
			one := Proved{Seq: e.Seq, Kind: e.Kind, Salt: base64.StdEncoding.EncodeToString(e.Salt), Proof: string(proof)}
			if e.Body != nil {
				body := string(e.Body)
				one.Body = &body
			}
			b.Entries = append(b.Entries, one)
		}
		if len(page) < wire.MaxPage {
			return b, nil
		}
	}
}

// Verify checks a bundle with nothing but the ledger's key: every entry is in the ledger as it is
// here and belongs to this task, and the rules lead from the entries to the task as it is shown.
// It cannot know of entries that were left out at the end; in the middle they break the replay.
func (b *Bundle) Verify(key string) error {
	var entries []ledger.Entry
	for _, p := range b.Entries {
		rec, _, err := ledger.VerifyProof([]byte(p.Proof), key)
		if err != nil {
			return err
		}
		var salt, body []byte
		if p.Body != nil {
			body = []byte(*p.Body)
			salt, err = base64.StdEncoding.DecodeString(p.Salt)
		}
		if err != nil {
			return fault.Wrap(err, fault.VerificationFailed, "The salt of entry %d is not base64.", p.Seq)
		}
		e, err := ledger.Unseal(rec, salt, body)
		if err != nil {
			return fault.Wrap(err, fault.VerificationFailed, "Entry %d differs from the record that its proof is for.", p.Seq)
		}
		// A proof of an entry about another task would verify too.
		if e.Workspace != b.Workspace || e.Trace != "task:"+b.Workspace+":"+b.Task.TaskID || e.Seq != p.Seq ||
			e.Kind != p.Kind {
			return fault.New(fault.VerificationFailed, "Entry %d does not belong to this task.", p.Seq)
		}
		// Gates and deliveries are proved, but are no steps of the task.
		if isTaskKind(e.Kind) {
			entries = append(entries, e)
		}
	}
	engine, err := Replay(b.Policy, entries)
	if err != nil {
		return fault.Wrap(err, fault.VerificationFailed,
			"Replaying the entries does not lead to the states that they record.")
	}
	replayed := engine.Tasks[b.Task.TaskID]
	if replayed == nil || b.State == nil || replayed.Text() != b.State.Text() {
		return fault.New(fault.VerificationFailed,
			"The task differs from what its entries lead to: entries are missing, or the task was changed.")
	}
	// The record is what people read, so it must be the one that the state gives.
	shown, err := wire.Marshal(replayed.Show(b.Workspace))
	if err != nil {
		return err
	}
	given, err := wire.Marshal(b.Task)
	if err != nil {
		return err
	}
	if !wire.Same(shown, given) {
		return fault.New(fault.VerificationFailed, "The task as shown differs from its state.")
	}
	return nil
}

// isTaskKind reports whether entries of the kind are steps of a task, which Replay runs.
func isTaskKind(kind string) bool {
	switch kind {
	case kindAcked, kindHeard, kindInstructed, kindNoted, kindEscalated, kindKept, kindTold:
		return true
	}
	for _, k := range kinds {
		if k == kind {
			return true
		}
	}
	return false
}

// ReadBundle reads a bundle from a file.
func ReadBundle(text []byte) (*Bundle, error) {
	b := new(Bundle)
	if err := wire.Unmarshal(text, b); err != nil {
		return nil, err
	}
	if b.Record != bundleRecord {
		return nil, errors.New("this is not a bundle of a task: " + fmt.Sprintf("%.40q", b.Record))
	}
	return b, nil
}
