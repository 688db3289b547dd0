package kin

import (
	"net/http"

	"signalbox/internal/proc"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The bodies of the operators' API.
type (
	// NewHook is what `signalbox hook install` reports.
	NewHook struct {
		Hook
		Key string `json:"key,omitzero" doc:"the key of the agent that the hooks use; not stored"`
	}
	// NewConfig is what `signalbox config set` reports.
	NewConfig struct {
		SHA256 string `json:"sha256" doc:"the digest of what the configuration file will hold, in hex; empty when there will be none"`
	}
	// Walls is what stands between agents and operators on the server's machine.
	Walls struct {
		Host string `json:"host" doc:"the server's machine"`
		// Processes says whether the server can see which process calls.
		Processes bool   `json:"processes" doc:"whether the server can see which process calls"`
		UID       int    `json:"uid" doc:"the user that the server runs as"`
		Roots     int    `json:"roots" doc:"how many processes of agents are known, also ended ones of the last day"`
		Hooks     []Hook `json:"hooks" doc:"the hooks that were reported, and are watched if they are on this machine"`
	}
)

// Routes are the calls of operators about hooks and walls.
func (k *Kin) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/walls", Summary: "What keeps agents from deciding as operators on the server's machine",
			Auth: wire.Viewer, Answer: Walls{}, Handle: wire.Answer(http.StatusOK, k.getWalls),
		},
		{
			Method: "PUT", Path: "/ops/hooks", Summary: "Report hooks in the settings of an agent CLI, to have them watched",
			Auth: wire.Operator, Request: NewHook{}, Answer: Hook{}, Handle: wire.Take(http.StatusOK, 1<<16, k.putHook),
		},
		{
			Method: "DELETE", Path: "/ops/hooks", Summary: "Report that hooks are taken out of the settings of an agent CLI",
			Auth: wire.Operator, Status: http.StatusNoContent, Handle: wire.Do(k.deleteHook),
			Query: []wire.Param{{Name: "file", Meaning: "the settings"}, {Name: "host", Meaning: "the machine they are on"}},
		},
		{
			Method: "PUT", Path: "/ops/config", Summary: "Report a change of the configuration file, so that it raises no alarm",
			Auth: wire.Admin, Request: NewConfig{}, Answer: NewConfig{}, Handle: wire.Take(http.StatusOK, 1<<10, k.putConfig),
		},
	}
}

func (k *Kin) putConfig(r *http.Request, in NewConfig) (NewConfig, error) {
	return in, k.ExpectConfig(r.Context(), roster.From(r.Context()), in.SHA256)
}

func (k *Kin) getWalls(r *http.Request) (Walls, error) {
	k.mu.Lock()
	roots := len(k.roots)
	k.mu.Unlock()
	w := Walls{Host: k.Watch.Host, Processes: proc.Readable(), UID: k.uid, Roots: roots, Hooks: []Hook{}}
	if wire.Scope(r.Context()) == "" {
		w.Hooks = append(w.Hooks, k.Hooks()...)
	}
	return w, nil
}

func (k *Kin) putHook(r *http.Request, in NewHook) (Hook, error) {
	return k.Install(r.Context(), roster.From(r.Context()), in.Hook, in.Key)
}

func (k *Kin) deleteHook(r *http.Request) error {
	q := r.URL.Query()
	return k.Uninstall(r.Context(), roster.From(r.Context()), q.Get("host"), q.Get("file"))
}
