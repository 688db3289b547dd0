package harness

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/harness/spool"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Session is a session of an agent as operators see it. It opens with the first message
// that names it, and ends with session_end; session_start opens it again. Nothing
// closes it otherwise: an agent that is killed leaves an open session, which Heartbeat
// shows. The same name of two agents is two sessions.
type Session struct {
	ID        string     `json:"id"`
	Workspace string     `json:"workspace"`
	Agent     string     `json:"agent"`    // its name
	AgentID   string     `json:"agent_id"` // its id
	OpenedAt  time.Time  `json:"opened_at"`
	LastAt    time.Time  `json:"last_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Heartbeat *Pulse     `json:"heartbeat"` // null when it never sent one
	Errors    int64      `json:"errors"`

	// The rest is set only where one session is shown.
	Statistics   *Statistics `json:"statistics,omitempty"`
	Info         wire.Raw    `json:"info,omitzero"` // what the handshake said of the agent
	Runs         []Report    `json:"runs,omitzero"`
	Tasks        *Report     `json:"task_list,omitzero"`
	Verification *Report     `json:"verification,omitzero"`
	Start        *Report     `json:"session_start,omitzero"`
	Timeline     []Moment    `json:"timeline,omitzero"`
	Next         string      `json:"next,omitempty"`
}

// Trace is the trace of what happens in the session.
func (s *Session) Trace() string { return traceOf(s.AgentID, s.ID) }

// Pulse tells whether a session that sends heartbeats is alive.
type Pulse struct {
	LastAt  time.Time `json:"last_at"`
	DueAt   time.Time `json:"due_at"`
	Missed  bool      `json:"missed"`
	Payload wire.Raw  `json:"payload,omitzero"` // of the last one; only where one session is shown
}

// beatWithin is how long after a heartbeat the next one is due. A3S Code sends one a
// minute; two and a half times that leaves room for one that is lost.
const beatWithin = 150 * time.Second

// Statistics count what became of a session's steps.
type Statistics struct {
	Steps    int64 `json:"steps"`
	Allowed  int64 `json:"allowed"`
	Blocked  int64 `json:"blocked"`
	Modified int64 `json:"modified"`
	Deferred int64 `json:"deferred"`
	Held     int64 `json:"held"` // by a gate
	// Unsupervised are steps that the client answered by itself, while it could not ask.
	Unsupervised int64 `json:"unsupervised"`

	Errors int64 `json:"errors"`
}

// Report is the newest event of a type, and when it arrived.
type Report struct {
	At      time.Time `json:"at"`
	Payload wire.Raw  `json:"payload"`
}

// SessionPage is a page of sessions.
type SessionPage struct {
	Sessions []Session `json:"sessions"`
	Next     string    `json:"next"`
}

// selectSession reads the columns that readSessions scans.
const selectSession = "SELECT s.agent, s.session, s.workspace, s.opened_seq, s.opened_at, s.ended_at, " +
	"s.beat_at, s.errors FROM harness_session s "

// readSessions reads sessions with the names of their agents. last is the entry that
// opened the last of them, from which the next page goes on.
func (h *Harness) readSessions(ctx context.Context, where string, args ...any) (all []Session, last int64, err error) {
	all, err = store.All(h.core.DB.Reading(ctx), func(scan store.Scan) (s Session, err error) {
		var opened, ended, beat int64
		err = scan(&s.AgentID, &s.ID, &s.Workspace, &last, &opened, &ended, &beat, &s.Errors)
		s.OpenedAt, s.EndedAt = time.UnixMicro(opened).UTC(), store.Moment(ended)
		if beat > 0 {
			at := time.UnixMicro(beat).UTC()
			s.Heartbeat = &Pulse{
				LastAt: at, DueAt: at.Add(beatWithin), Missed: ended == 0 && h.core.Now().After(at.Add(beatWithin)),
			}
		}
		return s, err
	}, selectSession+where, args...)
	if err != nil {
		return nil, 0, err
	}
	return all, last, h.addNamesAndTimes(ctx, all)
}

// addNamesAndTimes adds the names of agents, and when something last happened. The
// latter is one query per session: a column would be one more row to write with every
// decision.
func (h *Harness) addNamesAndTimes(ctx context.Context, all []Session) error {
	var ids []string
	for _, s := range all {
		ids = append(ids, s.AgentID)
	}
	names, err := h.core.Roster.AgentNames(ctx, ids)
	if err != nil {
		return err
	}
	for i := range all {
		s := &all[i]
		s.Agent, s.LastAt = names[s.AgentID], s.OpenedAt
		newest, err := h.core.Ledger.Entries(ctx, ledger.Query{Trace: traceOf(s.AgentID, s.ID), Newest: true, Limit: 1})
		if err != nil {
			return err
		}
		if len(newest) == 1 {
			s.LastAt = newest[0].At
		}
	}
	return nil
}

// SessionFilter selects the sessions of one workspace, or a page of the timeline of one
// session.
type SessionFilter struct {
	Workspace string // "" for the one that the caller is confined to, or the first
	Agent     string // its name or id; "" for every agent
	User      string // on whose behalf something was done in it: a name, id or e-mail; "" for everybody
	Cursor    string // Next of the page before
	Limit     int    // 1 to wire.MaxPage
}

// bounds is the workspace that the caller may see, and the entry before which the page
// begins.
func (f *SessionFilter) bounds(ctx context.Context) (workspace string, before int64, err error) {
	if workspace, err = roster.WorkspaceOf(ctx, f.Workspace); err != nil {
		return "", 0, err
	}
	at, err := wire.ParseCursor(f.Cursor, 1)
	if err == nil {
		before, err = wire.CursorNumber(at[0])
	}
	return workspace, before, err
}

// Sessions lists sessions, the newest first, as far as the caller may see them.
func (h *Harness) Sessions(ctx context.Context, f SessionFilter) (SessionPage, error) {
	page := SessionPage{Sessions: []Session{}}
	workspace, before, err := f.bounds(ctx)
	if err != nil {
		return page, err
	}
	var where store.Where
	where.And("s.workspace = %s AND s.opened_seq < %s", workspace, before)
	if f.Agent != "" {
		ids, err := h.core.Roster.AgentIDs(ctx, workspace, f.Agent)
		if err != nil {
			return page, err
		}
		where.In("s.agent", ids)
	}
	trace := "'" + traceOf("' || s.agent || '", "' || s.session")
	if err := h.core.Behalf.AmongTraces(ctx, &where, trace, workspace, f.User); err != nil {
		return page, err
	}
	text := "WHERE " + where.String() + " ORDER BY s.opened_seq DESC LIMIT " + where.Mark(f.Limit)
	all, last, err := h.readSessions(ctx, text, where.Args()...)
	if err != nil {
		return page, err
	}
	if len(all) == f.Limit {
		page.Next = wire.SeqCursor(last)
	}
	page.Sessions = slices.DeleteFunc(all, func(s Session) bool {
		is, failed := h.core.Behalf.InTrace(ctx, workspace, traceOf(s.AgentID, s.ID), f.User)
		err = cmp.Or(err, failed)
		return !is
	})
	return page, err
}

// Session reads one session with its reports and a page of its timeline, as far as the caller
// may see it. Where two agents have a session of that id and none is named, it is the newest.
func (h *Harness) Session(ctx context.Context, id string, f SessionFilter) (Session, error) {
	workspace, before, err := f.bounds(ctx)
	if err != nil {
		return Session{}, err
	}
	key, agent := keyOf(id), f.Agent
	if agent != "" {
		named, err := h.core.Roster.AgentIDs(ctx, workspace, agent)
		if err != nil {
			return Session{}, err
		}
		if len(named) > 0 { // else it is no agent's id either, and nothing is found
			agent = named[0]
		}
	}
	found, opened, err := h.readSessions(ctx,
		"WHERE s.workspace = $1 AND s.session = $2 AND ($3 = '' OR s.agent = $3) ORDER BY s.opened_seq DESC LIMIT 1",
		workspace, key, agent)
	if err != nil {
		return Session{}, err
	}
	if len(found) == 0 {
		return Session{}, fault.New(fault.NotFound,
			"There is no session %.80q in workspace %q. GET /ops/sessions lists the sessions.", key, workspace)
	}
	s := found[0]
	if err := h.addDetail(ctx, &s, opened); err != nil {
		return s, err
	}
	s.Timeline, s.Next, err = h.readTimeline(ctx, &s, before, f.Limit)
	return s, err
}

// addDetail adds what is shown only of a single session.
func (h *Harness) addDetail(ctx context.Context, s *Session, openedSeq int64) error {
	first, err := h.core.Ledger.Entry(ctx, openedSeq)
	if err != nil {
		return err
	}
	var b opened
	if err := first.Decode(&b); err != nil {
		return err
	}
	s.Info = b.Info
	if s.Statistics, err = h.countSteps(ctx, s); err != nil {
		return err
	}
	s.Runs = []Report{}
	for typ, most := range map[Type]int{
		RunLifecycle: maxRuns, TaskList: 1, Verification: 1, SessionStart: 1, Heartbeat: 1,
	} {
		if err := h.readReports(ctx, s, typ, most); err != nil {
			return err
		}
	}
	slices.Reverse(s.Runs)
	return nil
}

// maxRuns is how many runs of a session are shown: the newest.
const maxRuns = 100

// readReports adds the newest reports of a type to the session. The table holds where a
// report is; the report itself is read out of its entry.
func (h *Harness) readReports(ctx context.Context, s *Session, typ Type, most int) error {
	return store.Each(h.core.DB.Reading(ctx), func(scan store.Scan) error {
		var seq, place int64
		if err := scan(&seq, &place); err != nil {
			return err
		}
		report, err := h.readReport(ctx, seq, place)
		if err != nil {
			return err
		}
		s.addReport(typ, report)
		return nil
	}, "SELECT seq, place FROM harness_report WHERE agent = $1 AND session = $2 AND type = $3 ORDER BY updated_at DESC, "+
		"seq DESC, place DESC LIMIT $4", s.AgentID, s.ID, string(typ), most)
}

// addReport adds a report to the session by its type.
func (s *Session) addReport(typ Type, report Report) {
	switch typ {
	case RunLifecycle:
		s.Runs = append(s.Runs, report)
	case TaskList:
		s.Tasks = &report
	case Verification:
		s.Verification = &report
	case SessionStart:
		s.Start = &report
	case Heartbeat:
		if s.Heartbeat != nil {
			s.Heartbeat.Payload = report.Payload
		}
	default:
	}
}

// readReport reads one notification out of its entry. session.reported is not erased,
// so it is there.
func (h *Harness) readReport(ctx context.Context, seq, place int64) (Report, error) {
	entry, err := h.core.Ledger.Entry(ctx, seq)
	if err != nil {
		return Report{}, err
	}
	var b notes
	if err := entry.Decode(&b); err != nil {
		return Report{}, err
	}
	if place >= int64(len(b.Notes)) {
		return Report{}, fmt.Errorf("entry %d has no note %d", seq, place)
	}
	var event struct {
		Payload wire.Raw `json:"payload"`
	}
	err = wire.UnmarshalPart(b.Notes[place].Event, &event)
	return Report{time.UnixMicro(b.Notes[place].At).UTC(), event.Payload}, err
}

// countSteps counts the steps of a session by what became of them, from the ledger's
// index by trace.
func (h *Harness) countSteps(ctx context.Context, s *Session) (*Statistics, error) {
	out := &Statistics{Errors: s.Errors}
	for kind, n := range map[string]*int64{
		kindAllowed: &out.Allowed, kindBlocked: &out.Blocked, kindModified: &out.Modified,
		kindDeferred: &out.Deferred, kindHeld: &out.Held, spool.KindStep: &out.Unsupervised,
	} {
		err := h.core.DB.QueryRow(ctx, "SELECT count(*) FROM "+ledger.EntryTable+" WHERE e.trace = $1 AND e.kind = $2",
			[]any{traceOf(s.AgentID, s.ID), kind}, n)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		out.Steps += *n
	}
	return out, nil
}
