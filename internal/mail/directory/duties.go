package directory

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// Duties are what an agent has to keep when it sends, and cannot lift by itself: an operator sets and lifts them, and
// an agent may take the one on itself to sign. They end with the agent, and are the body of duties.changed.
type Duties struct {
	RequireSignature bool                 `json:"require_signature,omitzero"` // MSG-110
	Policy           *CommunicationPolicy `json:"communication_policy,omitzero"`
}

// AgentDuties is the answer to an operator about the duties of an agent.
type AgentDuties struct {
	AgentID string `json:"agent_id"`
	Address string `json:"address"`
	Duties
}

// DutiesDocument is the body of PATCH /v1/agents/{id}. What it does not mention stays; null lifts a policy.
type DutiesDocument struct {
	RequireSignature *bool                `json:"require_signature,omitempty"`
	Policy           *CommunicationPolicy `json:"communication_policy,omitempty"`
}

// Duties are those of an agent, from memory. What decides about a message goes by DutiesNow.
func (d *Directory) Duties(agentID string) Duties {
	duties, _ := d.duties.Get(agentID)
	return duties
}

// CheckUnsigned refuses an unsigned message of an agent that demands signatures (MSG-110): its API key alone is not enough.
func (d *Duties) CheckUnsigned(who roster.Identity) error {
	if d.RequireSignature {
		return fault.New(fault.SignatureMissing,
			"%s demands that what it sends is signed. Sign from|to|subject|priority|in_reply_to|payload_hash with its "+
				"Ed25519 key, as `signalbox mail` does; an operator can lift the demand.", who.Address).About("signature")
	}
	return nil
}

// DutiesNow are the duties of an agent by every change that was answered, on whichever node. A process that has the
// database alone knows them: who changes them puts them into memory before the answer. With other nodes the memory follows
// the ledger, and may be behind; then the database says which entry counts, and an entry never changes, so it is read once.
func (d *Directory) DutiesNow(ctx context.Context, agentID string) (Duties, error) {
	if d.core.Ledger.Alone() {
		return d.Duties(agentID), nil
	}
	row := func(query string, args []any, into ...any) error {
		return d.core.DB.QueryRow(ctx, query, args, into...)
	}
	var seq int64
	err := row(newestDuties, []any{agentID}, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return d.Duties(agentID), nil // none: nothing deletes them but the end of the agent
	}
	if err != nil {
		return Duties{}, err
	}
	if known, is := d.read.Load(agentID); is && known.(readAt).seq == seq {
		return known.(readAt).Duties, nil
	}
	duties, err := readDuties(d.core.Ledger.Prover(ctx), agentID, row)
	if err == nil && duties.seq == seq { // else it was changed in between, and is read again the next time
		d.read.Store(agentID, duties)
	}
	return duties.Duties, err
}

// readAt are duties with the entry that they are from.
type readAt struct {
	seq int64
	Duties
}

// newestDuties finds the entry with the duties of an agent.
const newestDuties = "SELECT seq FROM mail_duties WHERE agent = $1"

// readDuties reads the duties of an agent, and proves the entry that has them.
func readDuties(p ledger.Prover, agentID string, row func(string, []any, ...any) error) (readAt, error) {
	var seq int64
	err := row(newestDuties, []any{agentID}, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return readAt{}, nil
	}
	if err != nil {
		return readAt{}, err
	}
	e, err := p.At(seq)
	if err != nil {
		return readAt{}, err
	}
	if e.Kind != kindDuties || e.Subject != agentID {
		return readAt{}, p.Contradicts("mail_duties", agentID, "the entry %d is not about the duties of %s", seq, agentID)
	}
	duties, err := ledger.Read[Duties](&e)
	if err != nil {
		return readAt{}, err
	}
	return readAt{seq, *duties}, nil
}

// changeDutiesIn changes the duties of an agent in a transaction, which reads them: two changes at once both count.
func changeDutiesIn(tx *ledger.Tx, actor roster.Identity, workspace, agentID string, change func(*Duties)) (readAt, error) {
	duties, err := readDuties(tx.Prover(), agentID, tx.QueryRow)
	if err != nil {
		return duties, err
	}
	change(&duties.Duties)
	duties.seq = tx.Append(ledger.Event{
		Workspace: workspace, Kind: kindDuties, Actor: actor.Actor(), Subject: agentID, Body: duties.Duties,
	})
	return duties, nil
}

// DutiesMigration is the step of package mail that makes the table of duties.
const DutiesMigration = `
CREATE TABLE mail_duties (
  agent {text} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};
`

// applyDuties points to the newest duties of an agent; Load joins with the entries.
func applyDuties(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("INSERT INTO mail_duties (agent, seq) VALUES ($1, $2) ON CONFLICT (agent) DO UPDATE SET seq = excluded.seq",
		e.Subject, e.Seq)
	return nil
}

// ChangeDuties changes the duties of an agent that the calling operator may see.
func (d *Directory) ChangeDuties(ctx context.Context, by roster.Identity, name string, body []byte) (AgentDuties, error) {
	f, err := amp.ReadFields(body)
	if err != nil {
		return AgentDuties{}, err
	}
	sign, policy := f.Flag("require_signature"), readPolicy(f)
	if f.Err == nil && sign == nil && !f.Has("communication_policy") {
		f.Missing("require_signature", "true or false, or leave it out and say a communication_policy")
	}
	if f.Err != nil {
		return AgentDuties{}, f.Err
	}
	a, err := d.Agent(ctx, name)
	if err != nil {
		return AgentDuties{}, err
	}
	var now readAt
	err = d.core.Ledger.Write(ctx, func(tx *ledger.Tx) (err error) {
		now, err = changeDutiesIn(tx, by, a.Workspace, a.ID, func(duties *Duties) {
			if sign != nil {
				duties.RequireSignature = *sign
			}
			if f.Has("communication_policy") {
				duties.Policy = policy
			}
		})
		return err
	})
	if err == nil {
		d.duties.Put(a.ID, now.seq, now.Duties)
	}
	return AgentDuties{AgentID: a.ID, Address: a.Address, Duties: now.Duties}, err
}

// demandsSignature reads whether an agent wants to take on the duty to sign, in a change of its profile. MSG-110: that
// takes a signature, so that a stolen API key cannot silence an agent that does not sign; and nothing that an agent
// sends lifts it.
func (d *Directory) demandsSignature(ctx context.Context, f *amp.Fields, who roster.Identity) (bool, error) {
	if !f.Has("require_signature") {
		return false, nil
	}
	wanted := f.Flag("require_signature")
	proof, at := f.Proof()
	if f.Err != nil {
		return false, f.Err
	}
	if wanted == nil || !*wanted {
		duties, err := d.DutiesNow(ctx, who.ID)
		if err == nil && duties.RequireSignature {
			err = fault.New(fault.Forbidden, "Only an operator can lift require_signature: an agent that has it set sends "+
				"signed messages alone. Leave it out.").About("require_signature")
		}
		return false, err
	}
	now := d.core.Now()
	if off := now.Sub(time.Unix(at, 0)); proof == nil || off.Abs() > proofWindow ||
		who.PublicKey == nil || !ed25519.Verify(who.PublicKey, amp.SigningProof(who.Address, at), proof) {
		return false, fault.New(fault.SignatureInvalid,
			"To demand signatures, send proof and proof_timestamp: a signature of the agent's key over "+
				"\"amp-require-signature\\n%s\\n\" and the time in seconds, now %d.", who.Address, now.Unix()).About("proof")
	}
	return true, nil
}
