package proof

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/task"
	"signalbox/internal/wire"
)

// Verify checks a bundle with nothing but the ledger's key: every entry is in the ledger as it is
// here and belongs to this task, the rules lead from the entries to the task as it is shown, what was decided at gates
// follows from the votes there, and votes that were signed are signed. It returns what that shows, part by part.
//
// It cannot know of entries that were left out at the end, after the last one that is here. Before that a step that is
// missing breaks the replay, and so does a vote or a decision that the task depends on. Entries on which nothing in the
// task depends, such as notices to people, can be left out, and refusals are not part of a bundle.
func Verify(b *task.Bundle, key string) ([]Part, error) {
	if strings.TrimSpace(b.Key) != strings.TrimSpace(key) {
		return nil, fault.New(fault.VerificationFailed,
			"The bundle is of another ledger: it names the key %.80q, and you verify with %.80q.", b.Key, strings.TrimSpace(key))
	}
	entries, err := open(b.Entries, key, func(e *ledger.Entry) string { return belongs(b, e) })
	if err != nil {
		return nil, err
	}
	signers, err := open(b.Signers, key, signs)
	if err != nil {
		return nil, err
	}
	engine, err := task.Replay(b.Policy, entries)
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
func open(list []task.Proved, key string, belongs func(*ledger.Entry) string) (entries []ledger.Entry, err error) {
	last := int64(0)
	for _, p := range list {
		proved, _, err := ledger.VerifyProof([]byte(p.Proof), key)
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
		e, err := ledger.Unseal(proved.Record, salt, body)
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
func belongs(b *task.Bundle, e *ledger.Entry) string {
	trace := "task:" + b.Workspace + ":" + b.Task.TaskID
	if e.Workspace == b.Workspace && e.Trace == trace {
		return ""
	}
	return "it belongs to " + cmp.Or(e.Trace, "no task") + " and not to " + trace
}

// signs is why an entry is not about who could sign, "" if it is.
func signs(e *ledger.Entry) string {
	if slices.Contains(passkey.Kinds, e.Kind) || slices.Contains(task.OperatorKinds, e.Kind) {
		return ""
	}
	return "it is not about a passkey"
}

// The kinds of entries about gates without which a task cannot be followed.
const (
	kindOpened   = "gate.opened"
	kindVoted    = "gate.voted"
	kindResolved = "gate.resolved"
)

// needsBody reports whether nothing can be said of an entry of the kind without its body.
func needsBody(kind string) bool {
	return task.IsStep(kind) || kind == kindOpened || kind == kindVoted || kind == kindResolved ||
		slices.Contains(passkey.Kinds, kind)
}
