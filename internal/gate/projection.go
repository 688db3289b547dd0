package gate

import (
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// The kinds of timers that gates set.
const (
	expiryTimer = "gate.expiry"
	ladderTimer = "gate.ladder"
)

// The kinds of entries about an operator's votes, whose name is the subject.
const (
	kindDelegated   = "delegation.granted"
	kindUndelegated = "delegation.ended"
)

// The bodies of the entries about a gate, whose id is the subject.
type (
	voted struct {
		behalf.Of        // that of the gate
		Operator  string `json:"operator"`
		CastBy    string `json:"cast_by"`
		Approve   bool   `json:"approve"`
		Note      string `json:"note"`
		// Modified and Digest are what the decision would carry, and what its caster was shown.
		Modified wire.Raw `json:"modified,omitzero"`
		Digest   string   `json:"digest,omitzero"`
		Unseen   int64    `json:"unseen,omitzero"` // bytes that the caster knew not to be shown
		// Assertion is the caster's signature. A vote with one has the whole digest.
		Assertion *passkey.Assertion `json:"assertion,omitzero"`
	}
	escalated struct {
		Step Step  `json:"step"`
		Next int64 `json:"next"` // when the next step is due; 0 when none is left
	}
	delegated struct {
		Delegate string `json:"delegate"`
		Until    int64  `json:"until"`
	}
)

// Resolution is the body of gate.resolved, whose subject is the gate's id.
type Resolution struct {
	behalf.Of          // that of the gate
	Opened    int64    `json:"opened"`    // the entry that opened it
	OpenedAt  int64    `json:"opened_at"` // and when that was, in microseconds
	Project   string   `json:"project"`
	Agent     string   `json:"agent"` // the id of the agent whose gate it was
	Protocol  string   `json:"protocol,omitzero"`
	Rule      string   `json:"rule,omitzero"` // that held what it is about
	Risk      string   `json:"risk"`
	Status    Status   `json:"status"`
	By        string   `json:"by"`
	Cause     Cause    `json:"cause"`
	Note      string   `json:"note"`
	Modified  wire.Raw `json:"modified,omitzero"`
}

// Projection is what the entries do to the tables.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name: "gate",
		Tables: ledger.Tables(
			"gate_waiting (workspace, risk, opened_seq)", "gate_resolved (opened_seq)",
			"gate_vote (gate, operator)", "gate_receipt (gate, seq)",
			"gate_approval (agent, key, digest)", "delegation (operator, delegate)",
		),
		Erasable: []string{kindReceipt},
		Apply: map[string]ledger.Apply{
			"gate.opened":    applyOpened,
			"gate.voted":     ledger.ApplyBody(applyVoted),
			"gate.resolved":  ledger.TryBody(applyResolved),
			"gate.escalated": ledger.ApplyBody(applyEscalated),
			kindReceipt:      applyReceipt,
			kindDelegated:    ledger.ApplyBody(applyDelegated),
			kindUndelegated: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *delegated) {
				tx.Exec("DELETE FROM delegation WHERE operator = $1 AND delegate = $2", e.Subject, b.Delegate)
			}),
		},
	}
}

// applyOpened puts a gate into the inbox and sets its timers. The times follow from the
// entry's own, so that a rebuild sets the same ones.
func applyOpened(tx *store.Tx, e *ledger.Entry) error {
	o, err := ledger.Read[Opening](e)
	if err != nil {
		return err
	}
	risk, err := riskRank(o.Risk)
	if err != nil {
		return err
	}
	if due := o.expiry(e); due != nil {
		clock.Set(tx, clock.Timer{Kind: expiryTimer, Subject: e.Subject, Workspace: e.Workspace, Due: *due})
	}
	if step := o.Rules.next(0); step != nil {
		clock.Set(tx, clock.Timer{
			Kind: ladderTimer, Subject: e.Subject, Workspace: e.Workspace,
			Due: e.At.Add(time.Duration(step.After) * time.Microsecond),
		})
	}
	tx.Exec("INSERT INTO gate_waiting (workspace, risk, opened_seq, project, agent, run) VALUES ($1, $2, $3, $4, $5, $6)",
		e.Workspace, risk, e.Seq, o.Project, o.Agent, o.Origin.Run)
	return nil
}

func applyVoted(tx *store.Tx, e *ledger.Entry, b *voted) {
	signedWith := ""
	if b.Assertion != nil {
		signedWith = b.Assertion.Credential
		passkey.Counted(tx, b.Assertion)
	}
	tx.Exec("INSERT INTO gate_vote (gate, operator, cast_by, approve, note, at, modified, digest, passkey) "+
		"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		e.Subject, b.Operator, b.CastBy, b.Approve, b.Note, e.At.UnixMicro(), []byte(b.Modified), b.Digest, signedWith)
}

// applyResolved takes a gate out of the inbox and clears its timers. The primary key of
// gate_resolved makes a second resolution of the same gate impossible.
func applyResolved(tx *store.Tx, e *ledger.Entry, b *Resolution) error {
	risk, err := riskRank(b.Risk)
	if err != nil {
		return err
	}
	tx.Exec("DELETE FROM gate_waiting WHERE workspace = $1 AND risk = $2 AND opened_seq = $3", e.Workspace, risk, b.Opened)
	tx.Exec("INSERT INTO gate_resolved (opened_seq, workspace, project, agent, status, resolved_at, resolved_by, cause, "+
		"note, modified) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		b.Opened, e.Workspace, b.Project, b.Agent, string(b.Status), e.At.UnixMicro(), b.By, string(b.Cause), b.Note,
		[]byte(b.Modified))
	clock.Clear(tx, expiryTimer, e.Subject)
	clock.Clear(tx, ladderTimer, e.Subject)
	return nil
}

// applyEscalated sets the timer of the next step. The step itself leaves no row: those who are
// notified follow the ledger.
func applyEscalated(tx *store.Tx, e *ledger.Entry, b *escalated) {
	if b.Next > 0 {
		clock.Set(tx, clock.Timer{Kind: ladderTimer, Subject: e.Subject, Workspace: e.Workspace, Due: time.UnixMicro(b.Next)})
	}
}

func applyDelegated(tx *store.Tx, e *ledger.Entry, b *delegated) {
	tx.Exec("INSERT INTO delegation (operator, delegate, until_at) VALUES ($1, $2, $3) ON CONFLICT (operator, delegate) "+
		"DO UPDATE SET until_at = excluded.until_at",
		e.Subject, b.Delegate, b.Until)
}
