package server

import (
	"net/http"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/mcp"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// resourceRoutes tell clients of MCP which issuers they can get a token from.
func (s *Server) resourceRoutes() (routes []wire.Route) {
	var issuers []string
	for _, i := range s.config.UserIssuers {
		issuers = append(issuers, i.URL)
	}
	slices.Sort(issuers)
	metadata := mcp.Resource(s.core.BaseURL, slices.Compact(issuers))
	for _, path := range []string{mcp.ResourcePath, mcp.ResourcePath + mcp.Path} {
		routes = append(routes, wire.Route{
			Method: "GET", Path: path, Summary: "Which issuers' tokens are taken at " + mcp.Path + " (RFC 9728)",
			Media: "application/json",
			Handle: func(w http.ResponseWriter, r *http.Request) error {
				if len(issuers) == 0 {
					return fault.New(fault.NotFound, "No issuer of tokens is set up here: "+mcp.Path+
						" takes keys of agents. An admin sets users.oidc.")
				}
				metadata.ServeHTTP(w, r)
				return nil
			},
		})
	}
	return routes
}

// challenge tells a client of MCP that was refused how to authenticate, and where it can get a token, if there is such
// a place.
func (s *Server) challenge(w http.ResponseWriter, r *http.Request, route *wire.Route, err error) {
	if route.Path == mcp.Path && fault.Is(err, fault.Unauthenticated) {
		metadata := ""
		if len(s.config.UserIssuers) > 0 {
			metadata = s.core.BaseURL
		}
		w.Header().Set("WWW-Authenticate", mcp.Challenge(metadata, r.Header.Get("Authorization") != ""))
	}
}

// refuseWorkspace refuses a call of an agent, or of a user with a key, whose header names another workspace than its own.
// A parameter that does so is refused by whoever reads it (roster.WorkspaceOf).
func refuseWorkspace(r *http.Request, who roster.Identity) error {
	if who.Kind == roster.HolderOperator {
		return nil
	}
	for _, named := range r.Header.Values("X-Amp-Workspace") {
		if rulebook.OtherWorkspace(who, named) {
			return rulebook.RefuseWorkspace(who)
		}
	}
	return nil
}
