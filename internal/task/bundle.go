package task

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Bundle is everything about one task, each entry with a proof that it is in the ledger: messages,
// acks, instructions, gates and decisions. An operator exports it for somebody who does not trust
// the server; proof.Verify needs nothing but the ledger's key.
type Bundle struct {
	Record    string     `json:"record"`
	Workspace string     `json:"workspace"`
	Task      amp.Record `json:"task"`
	State     *amp.Task  `json:"state"` // as it stands, to compare with a replay
	Policy    amp.Policy `json:"policy"`
	Key       string     `json:"key"` // that verifies the proofs; compare it with one from elsewhere
	Entries   []Proved   `json:"entries"`
	// Signers are the entries about the passkeys with which votes of the task were signed.
	Signers []Proved `json:"signers,omitempty"`
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
		Key: s.core.Ledger.Key(),
	}
	entries, err := s.allEntries(ctx, ledger.Query{Trace: "task:" + workspace + ":" + taskID})
	if err != nil {
		return nil, err
	}
	signers, err := s.signers(ctx, entries)
	if err != nil {
		return nil, err
	}
	if b.Entries, err = s.prove(ctx, entries); err == nil {
		b.Signers, err = s.prove(ctx, signers)
	}
	return b, err
}

// allEntries reads all entries that a query selects, page by page: a long task may have thousands.
func (s *Tasks) allEntries(ctx context.Context, q ledger.Query) (all []ledger.Entry, err error) {
	for q.Limit = wire.MaxPage; ; {
		page, err := s.core.Ledger.Entries(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < wire.MaxPage {
			return all, nil
		}
		q.After = page[len(page)-1].Seq
	}
}

// prove adds the proofs to entries.
func (s *Tasks) prove(ctx context.Context, entries []ledger.Entry) ([]Proved, error) {
	all := []Proved{}
	for _, e := range entries {
		proof, err := s.core.Ledger.ProofFile(ctx, e.Seq, false)
		if err != nil {
			return nil, err
		}
		one := Proved{Seq: e.Seq, Kind: e.Kind, Salt: base64.StdEncoding.EncodeToString(e.Salt), Proof: string(proof)}
		if e.Body != nil {
			body := string(e.Body)
			one.Body = &body
		}
		all = append(all, one)
	}
	return all, nil
}

// signers are the entries by which the signatures of votes are checked: those about the passkeys of who has signed one,
// until the last vote. Nothing of other operators is among them, but for an admin who has removed such a passkey.
func (s *Tasks) signers(ctx context.Context, entries []ledger.Entry) ([]ledger.Entry, error) {
	names, last := map[string]bool{}, int64(0)
	for i := range entries {
		var vote struct {
			CastBy    string   `json:"cast_by"`
			Assertion wire.Raw `json:"assertion"`
		}
		if entries[i].Kind != "gate.voted" || entries[i].Body == nil {
			continue
		}
		if err := wire.UnmarshalPart(entries[i].Body, &vote); err != nil {
			return nil, err
		}
		if len(vote.Assertion) > 0 {
			names[vote.CastBy], last = true, entries[i].Seq
		}
	}
	if last == 0 {
		return nil, nil
	}
	all, err := s.allEntries(ctx, ledger.Query{UpTo: last, Kinds: append(slices.Clone(passkey.Kinds), OperatorKinds...)})
	if err != nil {
		return nil, err
	}
	ids, removers, about := map[string]bool{}, map[string]bool{}, make([]aboutOperator, len(all))
	for i, e := range all {
		if e.Body != nil {
			if err := wire.UnmarshalPart(e.Body, &about[i]); err != nil {
				return nil, err
			}
		}
		ids[e.Subject] = ids[e.Subject] || names[about[i].Operator]
		if actor, is := strings.CutPrefix(e.Actor, "operator:"); is && e.Kind == passkey.Removed && ids[e.Subject] {
			removers[actor] = true
		}
	}
	var chosen []ledger.Entry
	for i, e := range all {
		if removers[about[i].Operator] || removers[about[i].Name] || ids[e.Subject] && e.Kind != OperatorKinds[0] {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

// aboutOperator is what an entry about a passkey, or about an operator, says of whose it is.
type aboutOperator struct {
	Operator string `json:"operator"`
	Name     string `json:"name"`
}

// OperatorKinds are the kinds of entries that begin and end an operator, with whom the passkeys end.
var OperatorKinds = []string{"operator.added", "operator.removed"}

// IsStep reports whether entries of the kind are steps of a task, which Replay runs.
func IsStep(kind string) bool { return slices.Contains(recordedKinds(), kind) }

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
