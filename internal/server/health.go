package server

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Version is what this program calls itself.
const Version = "0.1.0"

// Build tells where this program comes from.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

// ReadBuild reads what the compiler has written into the program.
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

// Status is how the server is.
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
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`
}

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
			Summary: "Whether the database is reached and the ledger is what was signed; 503 and the reason when not",
			Answer:  Readiness{}, Handle: s.getReady,
		},
		{
			Method: "GET", Path: "/metrics", Summary: "Counters in Prometheus' form", Media: "text/plain",
			Handle: s.metrics.handle,
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

// problem is why the server cannot do its work, nil when it can.
func (s *Server) problem(ctx context.Context) error {
	if err := s.core.Ledger.Mismatch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := s.core.Ledger.Head(ctx)
	return store.Explain(err)
}

func (s *Server) getReady(w http.ResponseWriter, r *http.Request) error {
	if err := s.problem(r.Context()); err != nil {
		return wire.Reply(w, http.StatusServiceUnavailable, Readiness{Problem: fault.From(err).Message})
	}
	return wire.Reply(w, http.StatusOK, Readiness{Ready: true})
}

// status is how the server is. What cannot be found out now is left out.
func (s *Server) status(ctx context.Context) Status {
	out := Status{
		Version: Version, Ready: true, StartedAt: s.started.UTC(), Database: s.core.DB.Name(),
		Signs: s.core.Ledger.Signs(), Origin: s.core.Ledger.Origin(),
	}
	if err := s.problem(ctx); err != nil {
		out.Ready, out.Problem = false, fault.From(err).Message
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out.Memory = m.Sys
	if head, err := s.core.Ledger.Head(ctx); err == nil {
		out.Entries = head
	}
	if _, size, err := s.core.Ledger.Signed(ctx); err == nil {
		out.Checkpoint = size
	}
	return out
}

func (s *Server) getStatus(r *http.Request) (Status, error) { return s.status(r.Context()), nil }

// getSettings shows the configuration, to those who may see every workspace: it is the same for all.
func (s *Server) getSettings(r *http.Request) (SettingList, error) {
	if err := wire.Unconfined(r.Context(), "This shows the configuration of"); err != nil {
		return SettingList{}, err
	}
	return s.config.InForce(), nil
}
