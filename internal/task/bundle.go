package task

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
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
		proof, err := s.core.Ledger.ProofFile(ctx, e.Seq)
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
		if entries[i].Kind != kindVoted || entries[i].Body == nil {
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
	all, err := s.allEntries(ctx, ledger.Query{UpTo: last, Kinds: append(slices.Clone(passkey.Kinds), operatorKinds...)})
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
		if removers[about[i].Operator] || removers[about[i].Name] || ids[e.Subject] && e.Kind != operatorKinds[0] {
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

// operatorKinds are the kinds of entries that begin and end an operator, with whom the passkeys end.
var operatorKinds = []string{"operator.added", "operator.removed"}

// The kinds of entries about gates without which a task cannot be followed.
const (
	kindOpened   = "gate.opened"
	kindVoted    = "gate.voted"
	kindResolved = "gate.resolved"
)

// Verify checks a bundle with nothing but the ledger's key: every entry is in the ledger as it is
// here and belongs to this task, the rules lead from the entries to the task as it is shown, what was decided at gates
// follows from the votes there, and votes that were signed are signed. It returns what that shows, part by part.
//
// It cannot know of entries that were left out at the end, after the last one that is here. Before that a step that is
// missing breaks the replay, and so does a vote or a decision that the task depends on. Entries on which nothing in the
// task depends, such as notices to people, can be left out, and refusals are not part of a bundle.
func (b *Bundle) Verify(key string) ([]Part, error) {
	if strings.TrimSpace(b.Key) != strings.TrimSpace(key) {
		return nil, fault.New(fault.VerificationFailed,
			"The bundle is of another ledger: it names the key %.80q, and you verify with %.80q.", b.Key, strings.TrimSpace(key))
	}
	entries, err := open(b.Entries, key, b.belongs)
	if err != nil {
		return nil, err
	}
	signers, err := open(b.Signers, key, signs)
	if err != nil {
		return nil, err
	}
	engine, err := Replay(b.Policy, entries)
	if err != nil {
		return nil, fault.Wrap(err, fault.VerificationFailed,
			"Replaying the entries does not lead to the states that they record: %v.", err)
	}
	replayed := engine.Tasks[b.Task.TaskID]
	if replayed == nil || b.State == nil || replayed.Text() != b.State.Text() {
		return nil, fault.New(fault.VerificationFailed,
			"The task differs from what its entries lead to: entries are missing, or the task was changed.")
	}
	// The record is what people read, so it must be the one that the state gives.
	shown, err := wire.Marshal(replayed.Show(b.Workspace))
	if err != nil {
		return nil, err
	}
	given, err := wire.Marshal(b.Task)
	if err != nil {
		return nil, err
	}
	if !wire.Same(shown, given) {
		return nil, fault.New(fault.VerificationFailed, "The task as shown differs from its state.")
	}
	return showParts(replayed, entries, signers)
}

// open checks the proofs of entries, their bodies and their order, and that each is of the right kind: belongs is why it
// is not.
func open(list []Proved, key string, belongs func(*ledger.Entry) string) (entries []ledger.Entry, err error) {
	last := int64(0)
	for _, p := range list {
		rec, _, err := ledger.VerifyProof([]byte(p.Proof), key)
		if err != nil {
			return nil, fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) is not proved: %s", p.Seq, p.Kind,
				fault.From(err).Message)
		}
		var salt, body []byte
		if p.Body != nil {
			body = []byte(*p.Body)
		}
		// One spelling of base64 is accepted.
		if salt, err = base64.StdEncoding.DecodeString(p.Salt); err != nil || base64.StdEncoding.EncodeToString(salt) != p.Salt {
			return nil, fault.New(fault.VerificationFailed, "The salt of entry %d is not base64.", p.Seq)
		}
		if p.Salt == "" {
			salt = nil
		}
		e, err := ledger.Unseal(rec, salt, body)
		if err != nil {
			return nil, fault.Wrap(err, fault.VerificationFailed,
				"Entry %d (%s): its body is not the one that was signed.", p.Seq, p.Kind)
		}
		why := belongs(&e)
		switch {
		case e.Seq != p.Seq || e.Kind != p.Kind:
			why = fmt.Sprintf("the proof is of entry %d (%s)", e.Seq, e.Kind)
		case e.Seq <= last:
			why = fmt.Sprintf("it stands after entry %d: entries were swapped, or one is here twice", last)
		case why == "" && (salt == nil || p.Body == nil) && needsBody(e.Kind):
			why = "its body was erased or taken out, and without it the task cannot be followed"
		}
		if why != "" {
			return nil, fault.New(fault.VerificationFailed, "Entry %d (%s): %s.", p.Seq, p.Kind, why)
		}
		last = e.Seq
		entries = append(entries, e)
	}
	return entries, nil
}

// belongs is why an entry is not part of the bundle's task, "" if it is. A proof of an entry about another task would
// verify too.
func (b *Bundle) belongs(e *ledger.Entry) string {
	trace := "task:" + b.Workspace + ":" + b.Task.TaskID
	if e.Workspace == b.Workspace && e.Trace == trace {
		return ""
	}
	return "it belongs to " + cmp.Or(e.Trace, "no task") + " and not to " + trace
}

// signs is why an entry is not about who could sign, "" if it is.
func signs(e *ledger.Entry) string {
	if slices.Contains(passkey.Kinds, e.Kind) || slices.Contains(operatorKinds, e.Kind) {
		return ""
	}
	return "it is not about a passkey"
}

// needsBody reports whether nothing can be said of an entry of the kind without its body.
func needsBody(kind string) bool {
	return isTaskKind(kind) || kind == kindOpened || kind == kindVoted || kind == kindResolved ||
		slices.Contains(passkey.Kinds, kind)
}

// isTaskKind reports whether entries of the kind are steps of a task, which Replay runs.
func isTaskKind(kind string) bool { return slices.Contains(recordedKinds(), kind) }

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
