package clock

import (
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Migrations make the table of timers.
var Migrations = store.Migrations{Package: "clock", Steps: []string{`
CREATE TABLE timer (
  kind {text} NOT NULL,
  subject {text} NOT NULL,
  workspace {text} NOT NULL,
  due_at {bigint} NOT NULL,
  PRIMARY KEY (kind, subject)
) {keyed};
CREATE INDEX timer_due ON timer (due_at);
`}}

// Timer says that something is due. An apply function sets it; it ends by firing, or when an
// apply function clears it. There is at most one of a kind for a subject.
type Timer struct {
	Kind      string // what is due, such as gate.expiry
	Subject   string // the id of what it is about
	Workspace string
	Due       time.Time
}

// Set sets a timer, or moves the one there is. It is for apply functions.
func Set(tx *store.Tx, t Timer) {
	tx.Exec("INSERT INTO timer (kind, subject, workspace, due_at) VALUES ($1, $2, $3, $4) ON CONFLICT (kind, subject) "+
		"DO UPDATE SET due_at = excluded.due_at",
		t.Kind, t.Subject, t.Workspace, t.Due.UnixMicro())
}

// Clear removes a timer if there is one. It is for apply functions.
func Clear(tx *store.Tx, kind, subject string) {
	tx.Exec("DELETE FROM timer WHERE kind = $1 AND subject = $2", kind, subject)
}

// fired is the body of timer.fired. Due is kept so that a timer that its own handler has set
// again is not taken for the one that fired.
type fired struct {
	Kind string `json:"kind"`
	Due  int64  `json:"due"`
}

// Projection is what firing does to the table; setting and clearing are part of
// other packages' entries.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "clock",
		Tables: ledger.Tables("timer (kind, subject)"),
		Apply: map[string]ledger.Apply{
			"timer.fired": func(tx *store.Tx, e *ledger.Entry) error {
				var f fired
				if err := e.Decode(&f); err != nil {
					return err
				}
				tx.Exec("DELETE FROM timer WHERE kind = $1 AND subject = $2 AND due_at = $3", f.Kind, e.Subject, f.Due)
				return nil
			},
		},
	}
}
