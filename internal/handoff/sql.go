package handoff

import (
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// The kinds of entries. The subject is the id of the handoff, and the trace that of the first of its chain.
const (
	Opened = "handoff.opened"
	Taken  = "handoff.taken"
	Ended  = "handoff.ended"
)

var kinds = []string{Opened, Taken, Ended}

// The bodies of the entries. They are stored for ever: members are only added.
type (
	// opened is the body of handoff.opened. Names are those of that moment; ids are what counts.
	opened struct {
		Parent   string        `json:"parent,omitzero"`
		From     string        `json:"from,omitzero"` // the id of an agent, "" for a person or the server
		FromName string        `json:"from_name"`
		To       string        `json:"to"` // the id of an agent
		ToName   string        `json:"to_name"`
		User     string        `json:"user,omitzero"` // an id
		UserName string        `json:"user_name,omitzero"`
		Proof    roster.Proof  `json:"proof,omitzero"`  // how it was known for whom the first agent acts
		Scopes   []string      `json:"scopes,omitzero"` // nil is everything, and an empty list nothing
		Tools    []string      `json:"tools,omitzero"`  // likewise
		Budget   policy.Budget `json:"budget,omitzero"`
		Ends     int64         `json:"ends_at"` // microseconds
		Depth    int64         `json:"depth,omitzero"`
		Work     string        `json:"work,omitzero"`
		Bound    bool          `json:"bound,omitzero"`   // to the first session that uses it
		Session  string        `json:"session,omitzero"` // the one in which it was opened
		Subagent string        `json:"subagent,omitzero"`
		Protocol string        `json:"protocol,omitzero"` // that has handed it on, "" if the agent has asked for it
	}
	// taken is the body of handoff.taken: a session has used it first, and no other can.
	taken struct {
		Session string `json:"session"`
	}
	// ended is the body of handoff.ended.
	ended struct {
		Reason string `json:"reason"`
	}
)

// Migrations make the table of handoffs, which finds what is open for an agent and for a piece of work.
var Migrations = store.Migrations{Package: "handoff", Steps: []string{`
CREATE TABLE handoff (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  parent {text} NOT NULL,
  sender {text} NOT NULL,
  receiver {text} NOT NULL,
  user_id {text} NOT NULL,
  work {text} NOT NULL,
  opened_at {bigint} NOT NULL,
  ends_at {bigint} NOT NULL,
  ended_at {bigint} NOT NULL,
  opened_seq {bigint} NOT NULL,
  budgeted {bool} NOT NULL
) {strict};
CREATE INDEX handoff_receiver ON handoff (receiver, id) WHERE ended_at = 0;
CREATE INDEX handoff_work ON handoff (workspace, work) WHERE ended_at = 0;
CREATE INDEX handoff_workspace ON handoff (workspace, id);
CREATE INDEX handoff_budget ON handoff (opened_seq) WHERE budgeted AND ended_at = 0;
`}}

// Projection is what the entries do to the table.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name: "handoff", Tables: ledger.Tables("handoff (id)"),
		Apply: map[string]ledger.Apply{
			Opened: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *opened) {
				tx.Exec("INSERT INTO handoff (id, workspace, parent, sender, receiver, user_id, work, opened_at, ends_at, ended_at, "+
					"opened_seq, budgeted) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11)",
					e.Subject, e.Workspace, b.Parent, b.From, b.To, b.User, b.Work, e.At.UnixMicro(), b.Ends, e.Seq,
					b.Budget != policy.Budget{})
			}),
			// That there is an apply function keeps retention from erasing the body.
			Taken: func(*store.Tx, *ledger.Entry) error { return nil },
			Ended: func(tx *store.Tx, e *ledger.Entry) error {
				tx.Exec("UPDATE handoff SET ended_at = $2 WHERE id = $1 AND ended_at = 0", e.Subject, e.At.UnixMicro())
				return nil
			},
		},
	}
}
