package mail

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// perRecipient is how many messages from other providers an agent receives in a minute.
const perRecipient = 20

// Import accepts a message from another provider, whose call federation has verified. The
// provider vouches for the sender, and only for agents of its own domain (MSG-81). revokedKey is
// the fingerprint that the sender's key replaces, "" for none (MSG-82).
func (m *Mail) Import(ctx context.Context, domain string, body []byte, revokedKey string) (Answer, error) {
	o, outer, err := readArrival(body)
	if err != nil {
		return Answer{}, err
	}
	envelope := outer.Object("envelope")
	if envelope == nil {
		return Answer{}, fault.New(fault.MissingField,
			"The field \"envelope\" is missing. It should be that of the message.").About("envelope")
	}
	// MSG-81: the message's own time is checked beside that of the call, so that an old message cannot be
	// wrapped into a new call.
	at := envelope.Time("timestamp")
	// PEM by the document, hex from AI Maestro; ParsePublicKey reads both.
	key := outer.Text("sender_public_key", 4096)
	if err := errors.Join(outer.Err, envelope.Err); err != nil {
		return Answer{}, err
	}
	if at.IsZero() {
		return Answer{}, fault.New(fault.MissingField,
			"The field \"envelope.timestamp\" is missing.").About("envelope.timestamp")
	}
	if err := federation.CheckTime(at, m.core.Now()); err != nil {
		return Answer{}, err
	}
	return m.importDraft(ctx, o, provenance{domain: domain, at: at, key: key, replaces: revokedKey})
}

// readArrival reads a message, and the members beside it that the sending server added.
func readArrival(body []byte) (*amp.Draft, *amp.Fields, error) {
	o, err := amp.ReadDraft(body)
	if err != nil {
		return nil, nil, err
	}
	outer, err := amp.ReadFields(body)
	return o, outer, err
}

// provenance is what the server that hands a message over says about it and its sender.
type provenance struct {
	domain    string // the sender's provider
	host      string // the host of our own provider that has the sender, "" for another provider
	at        time.Time
	key       string         // the sender's public key, PEM or hex
	replaces  string         // the fingerprint of the key that it replaces
	rotations []amp.Rotation // proofs of how the sender's key changed
	unproved  bool           // from a host of mail.mesh.open, which has proved nothing (MSG-87)
	// recorded are the attachments as a host of ours recorded them, nil for those of everybody else.
	recorded []amp.Attachment
}

// importDraft is Route for a message whose sender is registered elsewhere: the same checks and
// decisions, with the sender's key from the server that vouches for it. Attachments stay with
// that server (MSG-84).
func (m *Mail) importDraft(ctx context.Context, o *amp.Draft, im provenance) (Answer, error) {
	l := &letter{Draft: o}
	err := m.resolveImported(ctx, l, im)
	if err != nil {
		return Answer{}, err
	}
	if im.key != "" {
		if l.sender.PublicKey, err = roster.ParsePublicKey(im.key); err != nil {
			return Answer{}, fault.New(fault.InvalidField, "%s", fault.From(err).Message).About("sender_public_key")
		}
	}
	// Before the signature: a key that was revoked must not verify anything.
	if err := m.checkSenderKey(ctx, l, im); err != nil {
		return Answer{}, err
	}
	if err := m.authenticate(ctx, l); err != nil {
		return Answer{}, err
	}
	// MSG-87: nobody has proved that the sender is of our tenant.
	if im.unproved && l.trust == Verified {
		l.trust = External
	}
	// MSG-86: nobody knows yet whose the address is.
	if im.host != "" && !im.unproved && !l.vouched {
		l.trust = Untrusted
	}
	if err := m.checkRecipientLimits(ctx, l); err != nil {
		return Answer{}, err
	}
	vouched := false
	if o.Attached {
		others, err := m.Attachments.OfAnother(ctx, im.host, o.Payload)
		if err != nil {
			return Answer{}, err
		}
		if vouched = l.vouched && !others; !vouched {
			im.recorded = nil // whoever forwards it has not seen the files of the sender, or they are not its
		}
		if l.meta.Files, err = attachment.Elsewhere(o.Payload, im.recorded); err != nil {
			return Answer{}, err
		}
	}
	if err := m.thread(ctx, l); err != nil {
		return Answer{}, err
	}
	// The thread may have begun at the other server, where we know none of its messages.
	if l.meta.Envelope.ThreadID == "" && amp.IDForm.MatchString(o.ThreadHint) {
		l.meta.Envelope.ThreadID = o.ThreadHint
	}
	if vouched {
		l.meta.Away = attachment.Named(im.host, o.Payload)
	}
	answer, err := m.decide(ctx, l)
	if store.IsUnique(err) || fault.Is(err, fault.DuplicateMessage) {
		return Answer{}, m.copied(ctx, o.ClientID)
	}
	return answer, err
}

// received refuses a message of another server that was received before, and says if it is held: the other
// server can stop sending it. MSG-81: ids of other servers are kept as they are, so a repetition has the same id. The
// index catches two that arrive at the same moment.
func (m *Mail) received(ctx context.Context, id string) error {
	var status string
	err := m.core.DB.QueryRow(ctx, "SELECT status FROM mail_message WHERE id = $1", []any{id}, &status)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	again := fault.New(fault.DuplicateMessage, "A message with the id %s was received before.", id).About("envelope.id")
	if status == Held {
		return again.With("status", Held)
	}
	return again
}

// copied is the answer to a message that is not known, and whose signature or text is: a copy of another one, which is
// not delivered (MSG-89). The other server has to tell it from a repetition of its own call.
func (m *Mail) copied(ctx context.Context, id string) error {
	if err := m.received(ctx, id); err != nil {
		return err
	}
	return fault.New(fault.DuplicateMessage, "A message with this signature was received before, and a signature is good once "+
		"here. To say the same again, sign a payload with another nonce.").About("signature").
		With("duplicate", federation.BySignature)
}

// resolveImported settles sender and recipient of a message from elsewhere. The sender gets an
// identity that no agent of ours can have, with the trust "untrusted" for the rules.
func (m *Mail) resolveImported(ctx context.Context, l *letter, im provenance) (err error) {
	if !amp.IDForm.MatchString(l.ClientID) {
		return fault.New(fault.InvalidField,
			"The field \"envelope.id\" should be an id such as \"msg_1706648400_abc123\", and is %.80q.",
			l.ClientID).About("envelope.id")
	}
	if err := m.received(ctx, l.ClientID); err != nil {
		return err
	}
	if err := m.resolveForeignSender(ctx, l, im); err != nil {
		return err
	}
	if l.to, err = m.Domains.Parse(l.Draft.To); err != nil {
		return fault.From(err).About("envelope.to")
	}
	if !m.Domains.Ours(l.to.Provider) {
		return fault.New(fault.NotFound, "%s is no address of this provider.", l.to).About("envelope.to")
	}
	find := m.Directory.Find
	if im.host != "" { // an agent of another host is one of a workspace of that name
		find = func(ctx context.Context, to amp.Address) (roster.Identity, error) {
			return m.Directory.FindFor(ctx, m.Directory.Workspace(l.from.Tenant), to)
		}
	}
	if l.recipient, err = find(ctx, m.Domains.Home(l.to)); err != nil {
		return err
	}
	if l.recipient.Suspended {
		return fault.New(fault.RecipientSuspended, "%s is suspended, and gets no mail until an operator resumes it.",
			l.recipient.Address).About("envelope.to")
	}
	l.to, err = m.Domains.Parse(l.recipient.Address)
	// The entry belongs to the recipient's workspace: the sender has none here.
	l.workspace, l.imported, l.at = l.recipient.Workspace, l.ClientID, im.at
	l.sender = roster.Identity{
		ID: "remote:" + l.from.String(), Kind: roster.HolderAgent, Name: l.from.String(),
		Address: l.from.String(), Workspace: l.recipient.Workspace, Trust: "untrusted", Labels: map[string]string{},
	}
	return err
}

// resolveForeignSender settles the sender: an agent of the provider that calls or, if another host of ours
// calls, an agent of our provider that is not on this host (MSG-86).
func (m *Mail) resolveForeignSender(ctx context.Context, l *letter, im provenance) (err error) {
	// The foreign provider's own domain is known, however many labels it has; its aliases are not.
	theirs := amp.Domains{Own: im.domain}
	if im.host != "" {
		theirs = m.Domains
	}
	if l.from, err = theirs.Parse(l.Draft.From); err != nil {
		return fault.From(err).About("envelope.from")
	}
	if l.from = theirs.Home(l.from); l.from.Provider != im.domain {
		return fault.New(fault.Forbidden, "The provider %s may send only for its own agents, and %.254q is not one of them.",
			im.domain, l.Draft.From).About("envelope.from")
	}
	// Those names are the server's own: it writes notices with them.
	if strings.HasPrefix(l.from.Name, "_") {
		return fault.New(fault.Forbidden, "%s is no agent: no agent's name begins with \"_\".", l.from).About("envelope.from")
	}
	if im.host == "" {
		return nil
	}
	// MSG-86: an agent of this host sends here, with its own key, unless another host had its address first.
	elsewhere, err := m.Homes.Elsewhere(ctx, l.from)
	if err != nil {
		return err
	}
	if _, err = m.Directory.Find(ctx, l.from); err == nil && !elsewhere {
		return fault.New(fault.Forbidden, "%s is an agent of this host, and sends with its own key.", l.from).About("from")
	} else if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	l.vouched, err = m.Homes.Vouches(ctx, im.host, l.from)
	return err
}

// checkSenderKey refuses a sender's key that was given up, or that is not the known one. The key of another provider's
// agent is the one of its first message, or one that its provider names; that of another host's agent the one that it
// was registered with, or one that it went to by itself (MSG-98). The pin is stored with the message.
func (m *Mail) checkSenderKey(ctx context.Context, l *letter, im provenance) error {
	if l.sender.PublicKey == nil {
		return nil
	}
	if err := m.Directory.CheckRevoked(ctx, l.sender.PublicKey); err != nil {
		return err
	}
	if im.host != "" && !im.unproved && !l.vouched {
		return nil // nobody knows whose the address is, so its key proves nothing, and is not remembered
	}
	changed := func(pinned string) bool { return im.replaces == pinned }
	if im.host != "" {
		changed = func(pinned string) bool { return amp.Rotated(pinned, l.sender.PublicKey, im.rotations) }
	}
	pin, err := m.Federation.Pin(ctx, l.from.String(), l.sender.PublicKey, changed)
	l.meta.Pin, l.meta.Unpin = pin.Fingerprint, pin.Replaces
	if pin.Replaces != "" {
		l.meta.Rotations = im.rotations
	}
	return err
}

// Forwarded is what another host says about a message in the headers of its call.
type Forwarded struct {
	Host   string // the host
	ID     string // of the message, if the body has none
	Key    string // the sender's public key, in hex
	Proved bool   // the host has shown that it has the shared secret
}

// oncePerSignature is the idempotency key of a signed message from another host. A signature covers neither id nor
// time, so a host could repeat what an agent said once: it is accepted once for as long as a message may wait (MSG-89).
func (m *Mail) oncePerSignature(ctx context.Context, id, signature string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(signature) // another spelling of it is the same
	if err != nil {
		raw = []byte(signature) // does not verify
	}
	sum, now := sha256.Sum256(raw), m.core.Now()
	key := func(at time.Time) string { return fmt.Sprintf("mesh:%d:%x", at.UnixNano()/int64(TTL), sum) }
	var n int64
	err = m.core.DB.QueryRow(ctx, "SELECT count(*) FROM mail_message WHERE sender = '' AND idem = $1 AND idem <> '' AND at > $2",
		[]any{key(now.Add(-TTL)), now.Add(-TTL).UnixMicro()}, &n)
	if err == nil && n > 0 {
		err = m.copied(ctx, id)
	}
	return key(now), err
}

// ImportForwarded accepts a message from another host of our provider. MSG-89: the signature, or the digest of the
// body if there is none, is its idempotency key, so it is accepted once, whatever id and headers it comes with.
func (m *Mail) ImportForwarded(ctx context.Context, body []byte, by Forwarded) (Answer, error) {
	o, outer, err := readArrival(body)
	if err != nil {
		return Answer{}, err
	}
	forwarded := outer.Object("_forwarded")
	if forwarded == nil {
		outer.Missing("_forwarded", `an object such as {"original_to": "bob@acme.signalbox.local", "forwarded_by": "host-a"}`)
		return Answer{}, outer.Err
	}
	// AI Maestro sends the bare name in "to"; what was signed is in _forwarded.
	o.To = cmp.Or(forwarded.Text("original_to", amp.MaxAddress), o.To) // which was signed
	o.From = cmp.Or(o.From, forwarded.Text("original_from", amp.MaxAddress))
	at, rotations := outer.Time("timestamp"), []amp.Rotation(nil)
	if raw, there := forwarded.Get("key_rotations"); there && wire.UnmarshalPart(raw, &rotations) != nil {
		forwarded.Fail("key_rotations", "should be a list of proofs, each with old_public_key, new_public_key, sent and proof.")
	}
	var recorded []amp.Attachment
	if raw, there := forwarded.Get("attachments"); there && by.Proved && wire.UnmarshalForeign(raw, &recorded) != nil {
		forwarded.Fail("attachments", "should be the list of attachments as the forwarding host recorded them.")
	}
	outer.Join(forwarded)
	if outer.Err != nil {
		return Answer{}, outer.Err
	}
	if at.IsZero() {
		at = m.core.Now()
	}
	o.ClientID = cmp.Or(o.ClientID, by.ID)
	if o.Idem = "mesh:" + o.Request; o.Signature != "" {
		if o.Idem, err = m.oncePerSignature(ctx, o.ClientID, o.Signature); err != nil {
			return Answer{}, err
		}
	}
	im := provenance{
		domain: m.Domains.Own, host: by.Host, at: at, rotations: rotations, unproved: !by.Proved, recorded: recorded,
	}
	// A key without a signature would be pinned without proof that the sender has it.
	if o.Signature != "" {
		im.key = by.Key
	}
	return m.importDraft(ctx, o, im)
}
