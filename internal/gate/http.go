package gate

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/passkey"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// maxBody bounds the body of a decision, which may hold a modified payload.
const maxBody = 1 << 20

// The bodies of the operators' API.
type (
	// GatePage is a page of gates.
	GatePage struct {
		Gates []Gate `json:"gates"`
		Next  string `json:"next"`
	}
	// Decision is what is sent with an approval or a rejection. All of it may be left out, but a
	// rejection has a note. Digest is that of the gate as it was shown.
	Decision struct {
		Note     string   `json:"note,omitempty"`
		Modified wire.Raw `json:"modified,omitzero"`
		For      string   `json:"for,omitempty"`
		Digest   string   `json:"digest,omitempty"`
		Unseen   int64    `json:"unseen,omitzero" doc:"the bytes that the gate does not show, to approve it nonetheless"`
		// Assertion is the signature that a gate with presence asks for.
		Assertion *passkey.Assertion `json:"assertion,omitzero" doc:"the signature of a passkey, where presence asks for one"`
	}
	// Delegation lets another operator cast one's votes.
	Delegation struct {
		Delegate string    `json:"delegate"`
		Until    time.Time `json:"until"`
	}
)

// Routes are the gates' part of the operators' API. Whether an operator may decide
// is a matter of the gate's rules, so looking is all that the routes ask for.
func (g *Gates) Routes() []wire.Route {
	list := slices.Concat([]wire.Param{
		{Name: "status", Meaning: "pending, approved or rejected"},
		{Name: "workspace", Meaning: "only gates of this workspace"},
		{Name: "project", Meaning: "only gates of this project"},
		{Name: "agent", Meaning: "only gates of the agent with this name or id"},
	}, behalf.UserParams, wire.PageParams)
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/gates", Summary: "List gates: those that wait by risk, others the newest first",
			Auth: wire.Viewer, Query: list, Answer: GatePage{}, Handle: wire.List(g.getGates),
		},
		{
			Method: "GET", Path: "/ops/gates/{id}", Summary: "Show a gate", Auth: wire.Viewer, Answer: Gate{},
			Handle: wire.Answer(http.StatusOK, g.getGate),
		},
		{
			Method: "GET", Path: "/ops/gates/{id}/artifacts/{number}", Auth: wire.Viewer,
			Summary: "Download an artifact, also one that the gate does not show whole; the first is number 1",
			Media:   "application/octet-stream", Handle: g.getArtifact,
		},
		{
			Method: "POST", Path: "/ops/gates/{id}/approve", Auth: wire.Viewer,
			Summary: "Approve; 409 already_resolved when somebody was first, not_what_was_shown for another digest, " +
				"not_all_shown for a part that the gate does not show; 403 presence_required without the signature of a passkey",
			Request: Decision{}, Answer: Gate{}, Handle: g.decide(true),
		},
		{
			Method: "POST", Path: "/ops/gates/{id}/reject", Summary: "Reject, with a note, which reaches the agent",
			Auth: wire.Viewer, Request: Decision{}, Answer: Gate{}, Handle: g.decide(false),
		},
		{
			Method: "POST", Path: "/ops/delegations", Summary: "Let another operator cast your votes until a date",
			Auth: wire.Operator, Request: Delegation{}, Answer: Delegation{}, Status: 201,
			Handle: wire.Take(http.StatusCreated, maxBody, g.postDelegation),
		},
		{
			Method: "DELETE", Path: "/ops/delegations/{delegate}", Summary: "End a delegation at once", Auth: wire.Operator,
			Status: 204, Handle: wire.Do(g.deleteDelegation),
		},
	}
}

func (g *Gates) getGates(r *http.Request, p wire.Paging) (GatePage, error) {
	q := r.URL.Query()
	user, claimed, err := behalf.Asked(r)
	if err != nil {
		return GatePage{}, err
	}
	return g.Page(r.Context(), Selection{
		User: user, Claimed: claimed, Status: q.Get("status"), Workspace: q.Get("workspace"), Project: q.Get("project"), Agent: q.Get("agent"),
		Cursor: p.Cursor, Limit: p.Limit,
	})
}

func (g *Gates) getGate(r *http.Request) (Gate, error) { return g.Show(r.Context(), r.PathValue("id")) }

// getArtifact sends the bytes as they are, for a browser to save and never to show.
func (g *Gates) getArtifact(w http.ResponseWriter, r *http.Request) error {
	number, _ := strconv.Atoi(r.PathValue("number")) // 0 is no artifact either
	content, err := g.Artifact(r.Context(), r.PathValue("id"), number)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-artifact-%d.bin"`, r.PathValue("id"), number))
	h.Set("Content-Length", strconv.Itoa(len(content)))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":") // RFC 9530
	h.Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTime))
	_, err = w.Write(content)
	return err
}

// downloadTime is how long a download may take: the largest over a slow line.
const downloadTime = 10 * time.Minute

// decide casts a vote. A decision may come without a body.
func (g *Gates) decide(approve bool) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var d Decision
		if r.ContentLength != 0 {
			if err := wire.ReadJSON(w, r, maxBody, &d); err != nil {
				return err
			}
		}
		found, err := g.Vote(r.Context(), roster.From(r.Context()), r.PathValue("id"),
			Ballot{approve, d.Note, d.Modified, d.For, d.Digest, d.Unseen, d.Assertion})
		if err != nil {
			return err
		}
		return wire.Reply(w, http.StatusOK, found)
	}
}

func (g *Gates) postDelegation(r *http.Request, d Delegation) (Delegation, error) {
	return d, g.Delegate(r.Context(), roster.From(r.Context()), d.Delegate, d.Until)
}

func (g *Gates) deleteDelegation(r *http.Request) error {
	return g.Undelegate(r.Context(), roster.From(r.Context()), r.PathValue("delegate"))
}
