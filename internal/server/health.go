package server

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/audit"
	"signalbox/internal/backup"
	"signalbox/internal/counter"
	"signalbox/internal/drift"
	"signalbox/internal/fault"
	"signalbox/internal/reload"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/sink"
	"signalbox/internal/store"
	"signalbox/internal/wire"
	"signalbox/internal/witness"
)

// Version is the version of this program, as it stands in releases, in /openapi.json and in handshakes.
const Version = "0.1.0"

// Build says which build of the program this is. Commit is empty if it was built outside of a git repository.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

// ReadBuild reads the build information that the compiler has embedded.
func ReadBuild() Build {
	b := Build{Version: Version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	return b
}

// Status is the state of the server as operators see it. Ready is false if the ledger refuses writes or the database
// does not answer; Problem then says why. Entries may be ahead of Checkpoint for about half a second.
type Status struct {
	Version    string    `json:"version"`
	Ready      bool      `json:"ready"`
	Problem    string    `json:"problem,omitempty"`
	StartedAt  time.Time `json:"started_at"`
	Database   string    `json:"database"`
	Entries    int64     `json:"entries"`
	Checkpoint int64     `json:"checkpoint"` // entries under the newest checkpoint
	Signs      bool      `json:"signs"`
	Origin     string    `json:"origin"`
	Memory     uint64    `json:"memory_bytes"`
	// Alarms are those that are open and that the caller may see.
	Alarms []alarm.Alarm `json:"alarms"`
	// Now is what there is at this moment, of all that the caller may see.
	Now Now `json:"now"`
	// Reload is what came of the last reload of the configuration, for operators of the whole server.
	Reload *reload.Result `json:"reload,omitempty"`
	// Exports are how far each sink of entries has come, for callers who are not confined to a workspace.
	Exports []sink.State `json:"exports,omitempty"`
	// Backup is how scheduled backups are; nil without a schedule.
	Backup *backup.State `json:"backup,omitempty"`
	// Forwarder is a reverse proxy in front of the server that its configuration does not name.
	Forwarder *Forwarder `json:"forwarder,omitempty"`
	// Audit is how far the server is with auditing itself, and what it has found.
	Audit audit.Status `json:"audit"`
	// Clock says what is wrong with the clocks, and is empty if nothing is.
	Clock drift.State `json:"clock,omitzero"`
	// Witnesses are those that cosign the checkpoints, and how far they have come; Witnessed is how many entries are
	// under one that the quorum has cosigned.
	Witnesses []witness.State `json:"witnesses,omitempty"`
	Witnessed int64           `json:"witnessed,omitempty"`
}

// Now is what there is at a moment, counted and not listed, and what was counted today (UTC).
type Now struct {
	GatesWaiting int64       `json:"gates_waiting"`
	OldestSince  *time.Time  `json:"oldest_waiting_since"`
	AgentsOnline int64       `json:"agents_online"`
	Agents       int64       `json:"agents"`
	RunsRunning  int64       `json:"runs_running"`
	AlarmsOpen   int64       `json:"alarms_open"`
	Today        counter.Sum `json:"today"`
}

// Readiness is the answer of /readyz. It is public: load balancers have no token.
type Readiness struct {
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`
	// Audit is what the audit has found, by kind.
	Audit []string `json:"audit,omitempty"`
	// Backup is how scheduled backups are; an old one does not make the server unready.
	Backup *backup.State `json:"backup,omitempty"`
	// Notes are what people should look at, though calls are answered.
	Notes []string `json:"notes,omitempty"`
}

// ownRoutes are the calls about the server itself. /healthz looks at nothing: a process
// whose database is away must not be restarted for it. /readyz is for load balancers.
func (s *Server) ownRoutes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/healthz", Summary: "Whether the process is alive", Answer: map[string]bool{},
			Handle: func(w http.ResponseWriter, _ *http.Request) error {
				return wire.Reply(w, http.StatusOK, map[string]bool{"alive": true})
			},
		},
		{
			Method: "GET", Path: "/readyz",
			Summary: "Whether this node can do its work: the database and the disk take writes, and the ledger is what was " +
				"signed and goes on being signed; 503 and the reason when not",
			Answer: Readiness{}, Handle: s.getReady,
		},
		{
			Method: "GET", Path: "/metrics", Summary: "Counters in Prometheus' form; with an operator's token, if others can reach the server", Media: "text/plain",
			Handle: s.getMetrics,
		},
		{
			Method: "GET", Path: "/ops/status", Summary: "How the server is", Auth: wire.Viewer, Answer: Status{},
			Handle: wire.Answer(http.StatusOK, s.getStatus),
		},
		{
			Method: "GET", Path: "/ops/settings", Auth: wire.Admin, Answer: SettingList{},
			Summary: "The configuration of the running server, with secrets redacted",
			Handle:  wire.Answer(http.StatusOK, s.getSettings),
		},
	}
}

// problem is the reason why the server cannot do its work, or nil. It waits at most
// three seconds for the database, less than load balancers wait.
func (s *Server) problem(ctx context.Context) error {
	if err := s.core.Ledger.Mismatch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := s.core.Ledger.Head(ctx); err != nil {
		return store.Explain(err)
	}
	return s.core.node.Problem(ctx)
}

// getReady answers GET /readyz.
func (s *Server) getReady(w http.ResponseWriter, r *http.Request) error {
	if err := s.problem(r.Context()); err != nil {
		return wire.Reply(w, http.StatusServiceUnavailable, Readiness{Problem: fault.From(err).Message, Audit: s.core.audit.Brief()})
	}
	state, err := s.core.backups.State(r.Context())
	if err == nil && state != nil {
		state.Problem = "" // which may name places
	}
	return wire.Reply(w, http.StatusOK, Readiness{Ready: true, Audit: s.core.audit.Brief(), Backup: state, Notes: s.notes()})
}

// notes are what /readyz says beside that the server is ready.
func (s *Server) notes() (all []string) {
	if text := s.core.keeper.State().Problem; text != "" {
		all = append(all, text)
	}
	if text := s.core.asker.Problem(); text != "" {
		all = append(all, text)
	}
	return all
}

// status is the state of the server. It never fails: what cannot be read now is left at zero, and Problem says why.
func (s *Server) status(ctx context.Context) Status {
	out := Status{
		Version: Version, Ready: true, StartedAt: s.started.UTC(), Database: s.core.DB.Name(),
		Signs: s.core.Ledger.Signs(), Origin: s.core.Ledger.Origin(), Forwarder: s.edge.unknown.Load(), Audit: s.core.auditStatus(ctx),
		Clock: s.core.keeper.State(),
	}
	if err := s.problem(ctx); err != nil {
		out.Ready, out.Problem = false, fault.From(err).Message
	}
	out.Witnesses = s.core.asker.States()
	if _, size, err := s.core.asker.Witnessed(ctx); err == nil {
		out.Witnessed = size
	}
	if wire.Scope(ctx) == "" {
		out.Reload = s.core.reloader.Last()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out.Memory = m.Sys
	if open, err := s.core.Alarms.List(ctx, false); err == nil {
		out.Alarms = open
	}
	if now, err := s.now(ctx); err == nil {
		out.Now = now
	}
	if wire.Scope(ctx) == "" {
		out.Exports, _ = s.core.sinks.States(ctx)
	}
	if head, err := s.core.Ledger.Head(ctx); err == nil {
		out.Entries = head
	}
	if _, size, err := s.core.Ledger.Signed(ctx); err == nil {
		out.Checkpoint = size
	}
	if state, err := s.core.backups.State(ctx); err == nil {
		out.Backup = state
	}
	return out
}

// now counts what there is.
func (s *Server) now(ctx context.Context) (n Now, err error) {
	day := s.core.Now().UTC().Format(time.DateOnly)
	today, err := s.core.counters.Ask(ctx, counter.Question{From: day, To: day, By: counter.ByDay})
	if err != nil {
		return n, err
	}
	n.GatesWaiting, n.OldestSince, n.Today = today.Total.Gates.Waiting, today.OldestWaiting, today.Total
	if err := s.core.Roster.EachPresence(ctx, wire.Scope(ctx), func(p roster.Presence) {
		n.Agents++
		if p.Online && !p.Suspended {
			n.AgentsOnline++
		}
	}); err != nil {
		return n, err
	}
	running, err := s.core.services.runs.Sum(ctx, run.Filter{Status: string(run.Running)})
	if err != nil {
		return n, err
	}
	n.RunsRunning = running.Runs
	n.AlarmsOpen, err = s.core.Alarms.Open(ctx)
	return n, err
}

// getStatus answers GET /ops/status.
func (s *Server) getStatus(r *http.Request) (Status, error) { return s.status(r.Context()), nil }

// getSettings answers GET /ops/settings. The configuration is the same for all
// workspaces, so operators who are confined to one do not see it.
func (s *Server) getSettings(r *http.Request) (SettingList, error) {
	if err := wire.Unconfined(r.Context(), "This shows the configuration of"); err != nil {
		return SettingList{}, err
	}
	return s.edge.config().InForce(), nil
}
