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

// Bundle is everything about one task, each entry with a proof that it is in the ledger:
// messages, acks, instructions, gates and their decisions.
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

// bundleRecord says what the document is.
const bundleRecord = "task_bundle"

// Bundle collects everything about a task.
func (s *Tasks) Bundle(ctx context.Context, workspace, taskID string) (*Bundle, error) {
	t, err := s.Task(ctx, workspace, taskID)
	if err != nil {
		return nil, err
	}
	b := &Bundle{
		Record: bundleRecord, Workspace: workspace, Task: t.Show(workspace), State: t, Policy: s.Policy,
		Key: s.core.Ledger.Key(), Entries: []Proved{},
	}
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

// Verify checks a bundle with nothing but the log's key: every entry is in the ledger
// as it stands here, and the rules lead from them to the task as it is shown.
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
			return fault.Wrap(err, fault.VerificationFailed, "Entry %d is not what was proved.", p.Seq)
		}
		if e.Workspace != b.Workspace || e.Trace != "task:"+b.Workspace+":"+b.Task.TaskID || e.Seq != p.Seq ||
			e.Kind != p.Kind {
			return fault.New(fault.VerificationFailed, "Entry %d is about something else.", p.Seq)
		}
		if isTaskKind(e.Kind) {
			entries = append(entries, e)
		}
	}
	engine, err := Replay(b.Policy, entries)
	if err != nil {
		return fault.Wrap(err, fault.VerificationFailed, "The entries do not lead to what they say.")
	}
	replayed := engine.Tasks[b.Task.TaskID]
	if replayed == nil || b.State == nil || replayed.Text() != b.State.Text() {
		return fault.New(fault.VerificationFailed,
			"The task is not what the entries lead to: some are missing, or it was changed.")
	}
	shown, err := wire.Marshal(replayed.Show(b.Workspace))
	if err != nil {
		return err
	}
	given, err := wire.Marshal(b.Task)
	if err != nil {
		return err
	}
	if !wire.Same(shown, given) {
		return fault.New(fault.VerificationFailed, "The task is not shown as it stands.")
	}
	return nil
}

// isTaskKind reports whether an entry is one that Replay takes.
func isTaskKind(kind string) bool {
	switch kind {
	case kindAcked, kindHeard, kindInstructed, kindNoted, kindEscalated:
		return true
	}
	for _, k := range kinds {
		if k == kind {
			return true
		}
	}
	return false
}

// ReadBundle reads a bundle.
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
