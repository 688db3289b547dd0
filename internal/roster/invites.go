package roster

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster/key"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Invites are for servers where registration is not open: an operator hands out a code, and
// whoever has it may register that many agents. They are used by the messaging protocol.

// Invite lets agents register in a workspace, a limited number of times. An operator makes
// it; it ends when its uses are taken, at its time, or by an operator. Its code is shown once
// and stored as its SHA-256.
type Invite struct {
	ID        string     `json:"id"`
	Workspace string     `json:"workspace"`
	UsesLeft  int64      `json:"uses_left"`
	ExpiresAt *time.Time `json:"expires_at"`
	MadeAt    time.Time  `json:"made_at"`
}

// The requests and answers about invites.
type (
	// NewInvite asks for an invite.
	NewInvite struct {
		Workspace string    `json:"workspace,omitempty"`
		Uses      int64     `json:"uses,omitempty"` // 1 when absent
		ExpiresAt time.Time `json:"expires_at,omitzero"`
	}
	// MadeInvite is a new invite with its code, shown this once.
	MadeInvite struct {
		Invite Invite `json:"invite"`
		Code   string `json:"code"`
	}
	// InviteList is the invites that the caller may see.
	InviteList struct {
		Invites []Invite `json:"invites"`
	}
)

// maxUses is how often one invite can be used at the most.
const maxUses = 10_000

// inviteMade is the body of invite.made. The code itself is not in the ledger.
type inviteMade struct {
	Hash      string `json:"sha256"`
	Uses      int64  `json:"uses"`
	ExpiresAt int64  `json:"expires_at,omitzero"` // microseconds
}

func applyInviteMade(tx *store.Tx, e *ledger.Entry, b *inviteMade) error {
	hash, err := hex.DecodeString(b.Hash)
	if err != nil {
		return err
	}
	tx.Exec("INSERT INTO invite (id, hash, workspace, uses_left, expires_at, made_at) VALUES ($1, $2, $3, $4, $5, $6)",
		e.Subject, hash, e.Workspace, b.Uses, b.ExpiresAt, e.At.UnixMicro())
	return nil
}

// applyInviteUsed counts down. UseInvite has checked in the same transaction that a use was
// left.
func applyInviteUsed(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE invite SET uses_left = uses_left - 1 WHERE id = $1", e.Subject)
	return nil
}

func applyInviteEnded(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("DELETE FROM invite WHERE id = $1", e.Subject)
	return nil
}

// MakeInvite makes an invite for a workspace.
func (r *Roster) MakeInvite(ctx context.Context, by Identity, n NewInvite) (MadeInvite, error) {
	if n.Uses = cmp.Or(n.Uses, 1); n.Uses < 1 || n.Uses > maxUses {
		return MadeInvite{}, fault.New(fault.InvalidPayload,
			"uses should be how many agents may register with the invite, from 1 to %d, and is %d.", maxUses,
			n.Uses).About("uses")
	}
	var err error
	if n.Workspace, err = WorkspaceOf(ctx, n.Workspace); err != nil {
		return MadeInvite{}, err
	}
	made := MadeInvite{
		Invite: Invite{ID: id.New("invite"), Workspace: n.Workspace, UsesLeft: n.Uses},
		Code:   "inv_" + key.Base36(32),
	}
	body := inviteMade{Hash: hex.EncodeToString(key.Hash(made.Code)), Uses: n.Uses}
	err = r.Write(ctx, func(tx *ledger.Tx) error {
		if err := RequireWorkspace(tx, n.Workspace); err != nil {
			return err
		}
		if !n.ExpiresAt.IsZero() {
			if !n.ExpiresAt.After(tx.Now()) {
				return fault.New(fault.InvalidPayload, "expires_at should be in the future, and is %s.",
					n.ExpiresAt.Format(time.RFC3339)).About("expires_at")
			}
			body.ExpiresAt = n.ExpiresAt.UnixMicro()
		}
		made.Invite.MadeAt, made.Invite.ExpiresAt = tx.Now(), store.Moment(body.ExpiresAt)
		tx.Append(ledger.Event{
			Workspace: n.Workspace, Kind: "invite.made", Actor: by.Actor(), Subject: made.Invite.ID,
			Body: body,
		})
		return nil
	})
	return made, err
}

// UseInvite takes one use of an invite in the caller's transaction, and returns its workspace.
// Unknown, used up and expired are one error, so that codes cannot be probed.
func (r *Roster) UseInvite(tx *ledger.Tx, actor Identity, code string) (workspace string, err error) {
	var inviteID string
	var left, expires int64
	err = tx.QueryRow("SELECT id, workspace, uses_left, expires_at FROM invite WHERE hash = $1", []any{key.Hash(code)},
		&inviteID, &workspace, &left, &expires)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (left < 1 || expires != 0 && tx.Now().UnixMicro() >= expires) {
		return "", fault.New(fault.Unauthenticated,
			"This invite is not known here, or was used up, or has expired. Ask an operator for another.").About("invite_code")
	}
	if err == nil {
		err = proveInvite(tx.Prover(), inviteID, workspace, code, left, expires)
	}
	if err != nil {
		return "", err
	}
	tx.Append(ledger.Event{
		Workspace: workspace, Kind: "invite.used", Actor: actor.Actor(), Subject: inviteID,
		Body: empty{},
	})
	return workspace, nil
}

// proveInvite checks that the ledger says of an invite what its row says.
func proveInvite(p ledger.Prover, inviteID, workspace, code string, left, expires int64) error {
	entries, err := p.Entries(ledger.Query{
		Subject: inviteID, Workspace: workspace, Kinds: []string{"invite.made", "invite.used", "invite.ended"},
	})
	if err != nil {
		return err
	}
	var made inviteMade
	for i := range entries {
		switch entries[i].Kind {
		case "invite.made":
			err = entries[i].Decode(&made)
		case "invite.used":
			made.Uses--
		default:
			made = inviteMade{}
		}
		if err != nil {
			return err
		}
	}
	if made.Uses != left || made.ExpiresAt != expires || made.Hash != hex.EncodeToString(key.Hash(code)) {
		return contradicted(p, "invite", inviteID, inviteID)
	}
	return nil
}

// Invites lists the invites that the caller may see.
func (r *Roster) Invites(ctx context.Context) ([]Invite, error) {
	return store.All(r.db.Reading(ctx), func(scan store.Scan) (Invite, error) {
		var i Invite
		var expires, made int64
		err := scan(&i.ID, &i.Workspace, &i.UsesLeft, &expires, &made)
		i.ExpiresAt, i.MadeAt = store.Moment(expires), time.UnixMicro(made).UTC()
		return i, err
	}, "SELECT id, workspace, uses_left, expires_at, made_at FROM invite WHERE $1 = '' "+
		"OR workspace = $1 ORDER BY id LIMIT 1000", wire.Scope(ctx))
}

// EndInvite ends an invite, whether or not it was used up.
func (r *Roster) EndInvite(ctx context.Context, by Identity, inviteID string) error {
	return r.Write(ctx, func(tx *ledger.Tx) error {
		var workspace string
		err := tx.QueryRow("SELECT workspace FROM invite WHERE id = $1", []any{inviteID}, &workspace)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err != nil || by.Workspace != "" && by.Workspace != workspace {
			return fault.New(fault.NotFound, "There is no invite %.80q. GET /ops/invites lists those there are.", inviteID)
		}
		tx.Append(ledger.Event{
			Workspace: workspace, Kind: "invite.ended", Actor: by.Actor(), Subject: inviteID,
			Body: empty{},
		})
		return nil
	})
}

func (r *Roster) getInvites(req *http.Request) (InviteList, error) {
	all, err := r.Invites(req.Context())
	return InviteList{all}, err
}

func (r *Roster) postInvite(req *http.Request, n NewInvite) (MadeInvite, error) {
	return r.MakeInvite(req.Context(), From(req.Context()), n)
}

func (r *Roster) deleteInvite(req *http.Request) error {
	return r.EndInvite(req.Context(), From(req.Context()), req.PathValue("id"))
}
