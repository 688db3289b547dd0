package roster

import (
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

func (r *Roster) getKeys(req *http.Request, p wire.Paging) (KeyPage, error) {
	q := req.URL.Query()
	return r.ListKeys(req.Context(), q.Get("agent"), q.Get("workspace"), p.Cursor, p.Limit)
}

// postKey reads a request that may leave the kind out, which is then one for signals.
func (r *Roster) postKey(w http.ResponseWriter, req *http.Request) error {
	in := IssueKey{Kind: string(SignalKey)}
	if err := wire.ReadJSON(w, req, maxBody, &in); err != nil {
		return err
	}
	k, err := r.IssueAgentKey(req.Context(), From(req.Context()), in)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, IssuedKey(k))
}

func (r *Roster) rotateKey(req *http.Request) (IssuedKey, error) {
	k, err := r.RotateKey(req.Context(), From(req.Context()), req.PathValue("id"))
	return IssuedKey(k), err
}

func (r *Roster) revokeKey(req *http.Request) (Key, error) {
	return r.RevokeKey(req.Context(), From(req.Context()), req.PathValue("id"))
}
