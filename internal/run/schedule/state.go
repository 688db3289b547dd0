package schedule

import (
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/run"
	"signalbox/internal/store"
)

// The kinds of entries, whose subject is the schedule. They are stored, so they never change.
const (
	kindSet     = "schedule.set"
	kindRemoved = "schedule.removed"
	kindDue     = "schedule.due"     // which times are to start a run
	kindStarted = "schedule.started" // a time has its run
	kindRefused = "schedule.refused" // or will never have one
)

// timer is the kind of the timer of a schedule's next time.
const timer = "schedule.due"

// CatchUp is what becomes of times that were missed, while no server ran for example.
type CatchUp string

// The values of CatchUp.
const (
	Skip CatchUp = "skip" // nothing
	Once CatchUp = "once" // one run for all of them
	All  CatchUp = "all"  // a run for each, of the last maxCaughtUp
)

// The bodies of the entries. Times are microseconds.
type (
	setBody struct {
		Cron     string      `json:"cron"`
		Zone     string      `json:"timezone"`
		CatchUp  CatchUp     `json:"catch_up"`
		Run      run.Request `json:"run"`
		Operator string      `json:"operator"` // the id of whoever has set it
		Next     int64       `json:"next"`
	}
	dueBody struct {
		Times  []int64 `json:"times"`  // those that are to start a run
		Missed int64   `json:"missed"` // how many have passed unseen, whatever becomes of them
		Next   int64   `json:"next"`
	}
	startedBody struct {
		Time int64  `json:"time"`
		Run  string `json:"run"`
	}
	refusedBody struct {
		Time   int64  `json:"time"`
		Reason string `json:"reason"`
	}
	empty struct{}
)

// Migrations make the tables: the schedules there are, and the times that have no run yet.
var Migrations = store.Migrations{Package: "schedule", Steps: []string{`
CREATE TABLE schedule (
  id {text} PRIMARY KEY,
  workspace {text} NOT NULL,
  seq {bigint} NOT NULL,
  next_at {bigint} NOT NULL,
  last_at {bigint} NOT NULL,
  last_run {text} NOT NULL,
  last_reason {text} NOT NULL
) {strict};

CREATE TABLE schedule_due (
  schedule {text} NOT NULL,
  at {bigint} NOT NULL,
  PRIMARY KEY (schedule, at)
) {strict};
`}}

// Projection is what the entries do to the tables.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "schedule",
		Tables: ledger.Tables("schedule (id)", "schedule_due (schedule, at)"),
		Apply: map[string]ledger.Apply{
			kindSet: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *setBody) {
				tx.Exec("INSERT INTO schedule (id, workspace, seq, next_at, last_at, last_run, last_reason) "+
					"VALUES ($1, $2, $3, $4, 0, '', '')", e.Subject, e.Workspace, e.Seq, b.Next)
				setTimer(tx, e, b.Next)
			}),
			kindRemoved: func(tx *store.Tx, e *ledger.Entry) error {
				tx.Exec("DELETE FROM schedule WHERE id = $1", e.Subject)
				tx.Exec("DELETE FROM schedule_due WHERE schedule = $1", e.Subject)
				clock.Clear(tx, timer, e.Subject)
				return nil
			},
			kindDue: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *dueBody) {
				for _, at := range b.Times {
					tx.Exec("INSERT INTO schedule_due (schedule, at) VALUES ($1, $2)", e.Subject, at)
				}
				tx.Exec("UPDATE schedule SET next_at = $2 WHERE id = $1", e.Subject, b.Next)
				setTimer(tx, e, b.Next)
			}),
			kindStarted: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *startedBody) {
				applyOver(tx, e.Subject, b.Time, b.Run, "")
			}),
			kindRefused: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *refusedBody) {
				applyOver(tx, e.Subject, b.Time, "", b.Reason)
			}),
		},
	}
}

// setTimer sets the timer of a schedule's next time.
func setTimer(tx *store.Tx, e *ledger.Entry, next int64) {
	if next == 0 { // which was the last one of a calendar
		return
	}
	clock.Set(tx, clock.Timer{Kind: timer, Subject: e.Subject, Workspace: e.Workspace, Due: time.UnixMicro(next)})
}

// applyOver notes what became of a time.
func applyOver(tx *store.Tx, id string, at int64, began, reason string) {
	tx.Exec("DELETE FROM schedule_due WHERE schedule = $1 AND at = $2", id, at)
	tx.Exec("UPDATE schedule SET last_at = $2, last_run = $3, last_reason = $4 WHERE id = $1", id, at, began, reason)
}
