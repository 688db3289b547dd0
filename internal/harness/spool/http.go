package spool

import (
	"context"
	"net/http"
	"time"

	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// The body of the operators' API.
type (
	// Overview is the spools of clients, the newest first, and the key by which clients know the lists of this server.
	Overview struct {
		Key    string `json:"key" doc:"the public key of the lists of tools that may be used while the server cannot be reached"`
		Spools []Info `json:"spools"`
	}
	// Info is a spool.
	Info struct {
		ID        string    `json:"id" doc:"its public key"`
		Workspace string    `json:"workspace"`
		Agent     string    `json:"agent" doc:"the id of the agent"`
		Place     string    `json:"place" doc:"where it is, as the client says"`
		OpenedAt  time.Time `json:"opened_at"`
		Steps     int64     `json:"steps" doc:"that were recorded"`
	}
)

// Routes are the calls of operators about spools.
func (s *Spools) Routes() []wire.Route {
	return []wire.Route{{
		Method: "GET", Path: "/ops/spools", Summary: "Up to 200 spools of clients, the newest first, and the key of the server's lists",
		Auth: wire.Viewer, Answer: Overview{}, Handle: wire.Answer(http.StatusOK, s.getSpools),
	}}
}

func (s *Spools) getSpools(r *http.Request) (Overview, error) {
	all, err := s.Spools(r.Context())
	return Overview{s.Key(), all}, err
}

// Spools lists up to 200 spools that the caller may see, the newest first.
func (s *Spools) Spools(ctx context.Context) ([]Info, error) {
	return store.All(s.core.DB.Reading(ctx), func(scan store.Scan) (i Info, err error) {
		var seq int64
		if err := scan(&i.ID, &i.Workspace, &i.Agent, &i.Place, &seq, &i.Steps); err != nil {
			return i, err
		}
		e, err := s.core.Ledger.Entry(ctx, seq)
		i.OpenedAt = e.At
		return i, err
	}, "SELECT s.spool, s.workspace, s.agent, s.place, s.opened_seq, (SELECT count(*) FROM harness_spool_step p WHERE "+
		"p.spool = s.spool) FROM harness_spool s WHERE $1 = '' OR s.workspace = $1 ORDER BY s.opened_seq DESC LIMIT 200",
		wire.Scope(ctx))
}
