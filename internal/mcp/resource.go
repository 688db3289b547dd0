package mcp

import (
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"signalbox/internal/harness"
	"signalbox/internal/wire"
)

// Path is where the tools are.
const Path = "/mcp"

// Routes are the HTTP calls of MCP: one to send a message, one for the rest of an answer, one to end a session.
func (h *Handler) Routes() []wire.Route {
	serve := func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	}
	return []wire.Route{
		{
			Method: "POST", Path: Path, Auth: wire.Agent, Handle: serve,
			Summary: "The Model Context Protocol over streamable HTTP: tools for the role that the agent plays",
			Request: harness.Call{}, Answer: harness.Reply{}, // JSON-RPC too
		},
		{
			Method: "GET", Path: Path, Auth: wire.Agent, Handle: serve, Media: "text/event-stream",
			Summary: "The rest of an answer whose connection dropped, after the Last-Event-ID",
		},
		{
			Method: "DELETE", Path: Path, Auth: wire.Agent, Handle: serve, Status: http.StatusNoContent,
			Summary: "End the session of MCP that Mcp-Session-Id names",
		},
	}
}

// ResourcePath is where clients find out which issuers they can get a token from (RFC 9728). There are two, since
// clients ask for the metadata of the server or of the path.
const ResourcePath = "/.well-known/oauth-protected-resource"

// Resource answers with the metadata of the tools as a protected resource: the issuers of tokens that are taken in
// place of an agent's key. base is the address of the server.
func Resource(base string, issuers []string) http.Handler {
	return auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: base + Path, AuthorizationServers: issuers, BearerMethodsSupported: []string{"header"},
		ResourceName: "Signalbox",
	})
}

// Challenge is the WWW-Authenticate header of a refused call. base, if it is not "", leads a client to the metadata.
// invalid says that the call had a token, and not a good one.
func Challenge(base string, invalid bool) string {
	text := `Bearer realm="Signalbox"`
	if base != "" {
		text += `, resource_metadata="` + base + ResourcePath + Path + `"`
	}
	if invalid {
		text += `, error="invalid_token", error_description="The key of the agent is unknown, revoked or expired."`
	}
	return text
}
