package spool

import (
	"signalbox/internal/behalf"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Migration makes the tables. It is a step of the harness, whose tables they are.
const Migration = `
CREATE TABLE harness_spool (
  spool {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  agent {text} NOT NULL,
  place {text} NOT NULL,
  opened_seq {bigint} NOT NULL
) {strict};
CREATE INDEX harness_spool_agent ON harness_spool (agent, place);

CREATE TABLE harness_spool_step (
  spool {text} NOT NULL,
  number {bigint} NOT NULL,
  digest {text} NOT NULL,
  seq {bigint} NOT NULL,
  PRIMARY KEY (spool, number)
) {keyed};
`

// The kinds of entries. They are stored and never renamed.
const (
	// KindStep is what a client did, or refused, without us.
	KindStep   = "step.unsupervised"
	kindOpened = "spool.opened"
	kindBroken = "spool.broken"
)

// Said are the kinds of entries that hold what agents say.
func Said() []string { return []string{KindStep, kindBroken} }

// opened is the body of spool.opened: from now on this key signs for the agent.
type opened struct {
	Agent string `json:"agent"`
	Place string `json:"place"` // where the spool is, as the client says
}

// Unsupervised is the body of step.unsupervised. What the client says is its word: that it happened, and when. Its
// JSON names are stored: never rename one.
type Unsupervised struct {
	behalf.Of
	Agent    string      `json:"agent"`
	AgentID  string      `json:"agent_id,omitzero"` // what the agent calls itself
	Type     string      `json:"type,omitzero"`
	Tool     string      `json:"tool,omitzero"`
	Session  string      `json:"session,omitzero"`
	Tier     policy.Tier `json:"tier,omitzero"`
	Decision string      `json:"decision"` // allow or refused
	Reason   string      `json:"reason,omitzero"`
	SaidAt   string      `json:"said_at"` // when it happened, by the client's clock
	Spool    string      `json:"spool"`
	Number   int64       `json:"number"`
	Digest   string      `json:"digest"`
	Policy   int64       `json:"policy,omitzero"`  // the version whose list allowed it
	Problem  string      `json:"problem,omitzero"` // what does not fit
	Event    wire.Raw    `json:"event,omitzero"`   // as the agent sent it; absent if it was too long
}

// Shown is what people see of a step beside the event.
type Shown struct {
	Decision string `json:"decision" doc:"allow or refused"`
	Reason   string `json:"reason,omitempty"`
	SaidAt   string `json:"said_at" doc:"when it happened, by the client's clock"`
	Problem  string `json:"problem,omitempty" doc:"what does not fit"`
}

// Shown is the step as people see it.
func (u *Unsupervised) Shown() *Shown { return &Shown{u.Decision, u.Reason, u.SaidAt, u.Problem} }

// broken is the body of spool.broken.
type broken struct {
	Agent    string    `json:"agent"`
	Spool    string    `json:"spool"`
	Problems []Problem `json:"problems"`
}

// Problem is something in a spool that does not fit.
type Problem struct {
	Number int64  `json:"number,omitzero"`
	What   string `json:"what"`
	Line   string `json:"line,omitzero"` // its beginning, if it could not be recorded as a step
}

// Tables are those that the entries change.
func Tables() []ledger.Table {
	return ledger.Tables("harness_spool (spool)", "harness_spool_step (spool, number)")
}

// Apply is what the entries do to the tables, by their kind.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{
		kindOpened: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *opened) {
			tx.Exec("INSERT INTO harness_spool (spool, workspace, agent, place, opened_seq) VALUES ($1, $2, $3, $4, $5)",
				e.Subject, e.Workspace, b.Agent, b.Place, e.Seq)
		}),
		KindStep: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *Unsupervised) {
			tx.Exec("INSERT INTO harness_spool_step (spool, number, digest, seq) VALUES ($1, $2, $3, $4)", b.Spool, b.Number,
				b.Digest, e.Seq)
		}),
	}
}

// Readers count what was allowed without us as what we allow, from the moment it is recorded. A refusal that only says
// that nobody could be asked counts as nothing: no rule has blocked anything.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{KindStep: func(e *ledger.Entry) (rulebook.Reading, error) {
		var b Unsupervised
		if err := wire.UnmarshalPart(e.Body, &b); err != nil || b.Decision != allowed {
			return rulebook.Reading{}, err
		}
		of := rulebook.Belongs{Agent: b.Agent, Tool: b.Tool, Session: b.Session, User: b.User, Tier: b.Tier}
		return rulebook.Reading{Facts: []rulebook.Fact{
			{Belongs: of, What: "actions", N: 1}, {Belongs: of, What: "allowed", N: 1},
		}}, nil
	}}
}
