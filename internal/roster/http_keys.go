package roster

import (
	"cmp"
	"net/http"

	"signalbox/internal/wire"
)

// The answers and requests about keys.
type (
	// KeyPage is a page of keys.
	KeyPage struct {
		Keys []Key  `json:"keys"`
		Next string `json:"next"`
	}
	// IssuedKey is a new key, shown this once.
	IssuedKey struct {
		Key    Key    `json:"key"`
		Secret string `json:"secret"`
	}
	// IssueKey asks for a key.
	IssueKey struct {
		Agent     string `json:"agent"`
		Workspace string `json:"workspace,omitempty"`
		Kind      string `json:"kind,omitempty"`
		RateLimit int64  `json:"rate_limit,omitzero"`
	}
)

func (r *Roster) getKeys(w http.ResponseWriter, req *http.Request) error {
	limit, err := wire.Limit(req)
	if err != nil {
		return err
	}
	after, err := wire.ReadCursor(req, 1)
	if err != nil {
		return err
	}
	holder := ""
	if name := req.URL.Query().Get("agent"); name != "" {
		workspace, err := QueryWorkspace(req)
		if err != nil {
			return err
		}
		a, err := r.Agent(req.Context(), workspace, name)
		if err != nil {
			return err
		}
		holder = a.ID
	}
	keys, err := r.Keys(req.Context(), cmp.Or(wire.Scope(req.Context()), req.URL.Query().Get("workspace")), holder, after[0], limit)
	if err != nil {
		return err
	}
	page := KeyPage{Keys: keys}
	if len(keys) == limit {
		page.Next = wire.Cursor(keys[limit-1].ID)
	}
	return wire.Reply(w, http.StatusOK, page)
}

func (r *Roster) postKey(w http.ResponseWriter, req *http.Request) error {
	in := IssueKey{Kind: string(SignalKey)}
	if err := wire.ReadJSON(w, req, maxBody, &in); err != nil {
		return err
	}
	var err error
	if in.Workspace, err = WorkspaceOf(req, in.Workspace); err != nil {
		return err
	}
	k, err := r.IssueAgentKey(req.Context(), From(req.Context()), in)
	return replyIssued(w, k, err)
}

func (r *Roster) rotateKey(w http.ResponseWriter, req *http.Request) error {
	k, err := r.RotateKey(req.Context(), From(req.Context()), req.PathValue("id"))
	return replyIssued(w, k, err)
}

func replyIssued(w http.ResponseWriter, k Issued, err error) error {
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, IssuedKey(k))
}

func (r *Roster) revokeKey(w http.ResponseWriter, req *http.Request) error {
	k, err := r.RevokeKey(req.Context(), From(req.Context()), req.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, k)
}
