package signal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// beatTimer is the kind of the timer that fires when a heartbeat is overdue. Its subject is the
// agent's id, a space, and the run_id. An agent's id has no space, so the first one divides.
const beatTimer = "signal.heartbeat"

// How long after a heartbeat the next one is due: what the agent says, within these (SIG-45).
const (
	defaultTTL = time.Minute
	maxTTL     = 24 * time.Hour
)

type (
	// beat is the body of heartbeat.received and, without ttl_s, of missed and ended.
	beat struct {
		Agent string `json:"agent"` // its id
		RunID string `json:"run_id"`
		TTL   int64  `json:"ttl_s"`
	}
	// halted is the body of run.halted. Its subject is the agent's id.
	halted struct {
		RunID  string `json:"run_id"` // "" for all runs of the agent, later ones too
		Reason string `json:"reason"`
	}
)

// Pulse is the answer to a heartbeat (SIG-46).
type Pulse struct {
	Halt    bool   `json:"halt"` // stop now: an operator halted the run or suspended the agent
	Message string `json:"message"`
	NextIn  int64  `json:"next_within_s"`
}

// Beat records that a run is alive, sets the timer for its next heartbeat, and says whether it
// may go on. The halt is read in the same transaction, so that an operator who halts a run
// knows that every later heartbeat is told. A halt of the one run comes before a halt of all.
func (s *Signals) Beat(ctx context.Context, who roster.Identity, body []byte) (Pulse, error) {
	f, err := readFields(body, Heartbeat)
	if err != nil {
		return Pulse{}, err
	}
	name, run := f.kebabName("agent_id", "resume-tailor"), f.Text("run_id", maxRunID, "run_01jt4k")
	ttl := f.Count("ttl_s")
	if most := int64(maxTTL / time.Second); ttl > most || ttl == 0 && f.Has("ttl_s") {
		f.Fail("ttl_s", "should be how many seconds until the next heartbeat at the latest, from 1 to %d.", most)
	}
	if err := f.err(); err != nil {
		return Pulse{}, err
	}
	if err := inScope(who, name); err != nil {
		return Pulse{}, err
	}
	if ttl == 0 {
		ttl = int64(defaultTTL / time.Second)
	}
	p := Pulse{Message: "Go on", NextIn: ttl}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindBeat, Actor: who.Actor(), Subject: run,
			Trace: trace(who.ID, run), Body: beat{who.ID, run, ttl},
		})
		var reason string
		err := tx.QueryRow("SELECT reason FROM run_halt WHERE agent = $1 AND (run_id = $2 OR "+
			"run_id = '') ORDER BY run_id DESC LIMIT 1", []any{who.ID, run}, &reason)
		if err == nil {
			p.Halt, p.Message = true, reason
		} else if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	})
	if who.Suspended && !p.Halt {
		p.Halt, p.Message = true, "This agent is suspended. An operator can resume it."
	}
	return p, err
}

// applyBeat stores when the run was alive, and sets its timer anew. A run that had gone silent
// is alive again.
func applyBeat(tx *store.Tx, e *ledger.Entry, b *beat) {
	due := e.At.Add(time.Duration(b.TTL) * time.Second)
	tx.Exec(`INSERT INTO heartbeat (agent, run_id, workspace, last_at, due_at, missed)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (agent, run_id) DO UPDATE
SET last_at = excluded.last_at, due_at = excluded.due_at, missed = excluded.missed`,
		b.Agent, b.RunID, e.Workspace, e.At.UnixMicro(), due.UnixMicro(), false)
	clock.Set(tx, clock.Timer{Kind: beatTimer, Subject: beatSubject(b.Agent, b.RunID), Workspace: e.Workspace, Due: due})
}

func applyMissed(tx *store.Tx, _ *ledger.Entry, b *beat) {
	tx.Exec("UPDATE heartbeat SET missed = $3 WHERE agent = $1 AND run_id = $2", b.Agent, b.RunID, true)
}

func applyEnded(tx *store.Tx, _ *ledger.Entry, b *beat) {
	tx.Exec("DELETE FROM heartbeat WHERE agent = $1 AND run_id = $2", b.Agent, b.RunID)
}

// beatSubject names the timer of a run. The id of a run may be too long for the subject of an entry; then
// its digest stands for it, as in the trace.
func beatSubject(agent, run string) string { return agent + " " + traced(run) }

// overdueRun finds the run of a timer, "" if its heartbeats have ended.
func overdueRun(tx *ledger.Tx, subject string) (agent, run string, err error) {
	agent, run, _ = strings.Cut(subject, " ")
	if !strings.HasPrefix(run, digested) {
		return agent, run, nil
	}
	rows, err := tx.Query("SELECT run_id FROM heartbeat WHERE agent = $1", agent)
	if err != nil {
		return "", "", err
	}
	found := ""
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return "", "", err
		}
		if beatSubject(agent, id) == subject {
			found = id
		}
	}
	return agent, found, rows.Close()
}

// Timers are the handlers of overdue heartbeats. A run that has signalled its end owes none and
// is recorded as ended instead of missed. That is found out here and not when the signal
// arrives, so that signals of agents without heartbeats do not pay for it.
func (s *Signals) Timers() map[string]clock.Handler {
	return map[string]clock.Handler{beatTimer: func(tx *ledger.Tx, t clock.Timer) error {
		agent, run, err := overdueRun(tx, t.Subject)
		if err != nil || run == "" {
			return err
		}
		kind, one := kindEnded, 0
		err = tx.QueryRow("SELECT 1 FROM signal WHERE agent = $1 AND run_id = $2 AND request = ''", []any{agent, run}, &one)
		if errors.Is(err, sql.ErrNoRows) {
			kind, err = kindMissed, nil
		}
		tx.Append(ledger.Event{
			Workspace: t.Workspace, Kind: kind, Actor: "system", Subject: run,
			Trace: trace(agent, run), Body: beat{Agent: agent, RunID: run},
		})
		return err
	}}
}

func applyHalted(tx *store.Tx, e *ledger.Entry, b *halted) {
	tx.Exec("INSERT INTO run_halt (agent, run_id, reason) VALUES ($1, $2, $3) ON CONFLICT (agent, "+
		"run_id) DO UPDATE SET reason = excluded.reason", e.Subject, b.RunID, b.Reason)
}

// Halt is an operator's order to a run to stop, or without a RunID to all runs of the agent. The
// run is told with its next heartbeat; nothing is killed. It does not end: every later
// heartbeat is answered with it.
type Halt struct {
	RunID  string `json:"run_id,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Stop records a Halt and returns it with the reason that the run will be told.
func (s *Signals) Stop(ctx context.Context, by roster.Identity, workspace, agent string, in Halt) (Halt, error) {
	if len(in.RunID) > maxRunID || len(in.Reason) > maxText {
		return in, fault.New(fault.InvalidPayload, "The run_id may have %d bytes, and the reason %d.", maxRunID,
			maxText)
	}
	a, err := s.core.Roster.SeenAgent(ctx, workspace, agent)
	if err != nil {
		return in, err
	}
	in.Reason = cmp.Or(in.Reason, "An operator stopped this run.")
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: a.Workspace, Kind: kindHalted, Actor: by.Actor(), Subject: a.ID, Body: halted(in)})
		return nil
	})
	return in, err
}

func (s *Signals) postHalt(r *http.Request, in Halt) (Halt, error) {
	return s.Stop(r.Context(), roster.From(r.Context()), r.URL.Query().Get("workspace"), r.PathValue("name"), in)
}

// LiveRun is a run that sends heartbeats and has not signalled its end.
type LiveRun struct {
	Agent     string    `json:"agent"` // its id
	RunID     string    `json:"run_id"`
	Workspace string    `json:"workspace"`
	LastAt    time.Time `json:"last_at"`
	DueAt     time.Time `json:"due_at"`
	Missed    bool      `json:"missed"` // DueAt has passed without a heartbeat
}

// LiveRuns is the answer to GET /ops/heartbeats.
type LiveRuns struct {
	Runs []LiveRun `json:"runs"`
}

// LiveRuns lists the runs of the caller's workspace that send heartbeats, or of all workspaces
// for a caller who is not confined to one. It has one page: the runs that are due last.
func (s *Signals) LiveRuns(ctx context.Context) (LiveRuns, error) {
	runs, err := store.All(s.core.DB.Reading(ctx), func(scan store.Scan) (b LiveRun, err error) {
		var last, due int64
		err = scan(&b.Agent, &b.RunID, &b.Workspace, &last, &due, &b.Missed)
		b.LastAt, b.DueAt = time.UnixMicro(last).UTC(), time.UnixMicro(due).UTC()
		return b, err
	}, `SELECT h.agent, h.run_id, h.workspace, h.last_at, h.due_at, h.missed FROM heartbeat h
WHERE ($1 = '' OR h.workspace = $1) AND NOT EXISTS
(SELECT 1 FROM signal s WHERE s.agent = h.agent AND s.run_id = h.run_id AND s.request = '')
ORDER BY h.due_at DESC, h.agent, h.run_id LIMIT $2`, wire.Scope(ctx), wire.MaxPage)
	return LiveRuns{Runs: runs}, err
}

func (s *Signals) getHeartbeats(r *http.Request) (LiveRuns, error) { return s.LiveRuns(r.Context()) }
