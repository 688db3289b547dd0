package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
	"signalbox/internal/store"
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
	domain       string // the sender's provider
	sameProvider bool   // another host of our own provider has the sender
	at           time.Time
	key          string // the sender's public key, PEM or hex
	replaces     string // the fingerprint of the key that it replaces
	unproved     bool   // from a host of mail.mesh.open, which has proved nothing (MSG-87)
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
	if err := m.checkSenderKey(ctx, l, im.replaces); err != nil {
		return Answer{}, err
	}
	if err := m.authenticate(l); err != nil {
		return Answer{}, err
	}
	// MSG-87: nobody has proved that the sender is of our tenant.
	if im.unproved && l.trust == Verified {
		l.trust = External
	}
	if err := m.checkRecipientLimits(ctx, l); err != nil {
		return Answer{}, err
	}
	if err := m.thread(ctx, l); err != nil {
		return Answer{}, err
	}
	// The thread may have begun at the other server, where we know none of its messages.
	if l.meta.Envelope.ThreadID == "" && amp.IDForm.MatchString(o.ThreadHint) {
		l.meta.Envelope.ThreadID = o.ThreadHint
	}
	answer, err := m.decide(ctx, l)
	if store.IsUnique(err) {
		return Answer{}, duplicate(o.ClientID)
	}
	return answer, err
}

// duplicate is the answer that tells the other server to stop sending: we have the message.
func duplicate(id string) error {
	return fault.New(fault.DuplicateMessage, "A message with the id %s was received before.", id).About("envelope.id")
}

// resolveImported settles sender and recipient of a message from elsewhere. The sender gets an
// identity that no agent of ours can have, with the trust "untrusted" for the rules.
func (m *Mail) resolveImported(ctx context.Context, l *letter, im provenance) (err error) {
	if !amp.IDForm.MatchString(l.ClientID) {
		return fault.New(fault.InvalidField,
			"The field \"envelope.id\" should be an id such as \"msg_1706648400_abc123\", and is %.80q.",
			l.ClientID).About("envelope.id")
	}
	// MSG-81: ids of other servers are kept as they are, so a repetition has the same id. The index
	// catches two that arrive at the same moment.
	var seen string
	err = m.core.DB.QueryRow(ctx, "SELECT id FROM mail_message WHERE id = $1", []any{l.ClientID}, &seen)
	if err == nil {
		return duplicate(l.ClientID)
	}
	if !errors.Is(err, sql.ErrNoRows) {
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
	if im.sameProvider { // an agent of another host is one of a workspace of that name
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
	if im.sameProvider {
		theirs = m.Domains
	}
	if l.from, err = theirs.Parse(l.Draft.From); err != nil {
		return fault.From(err).About("envelope.from")
	}
	if l.from = theirs.Home(l.from); l.from.Provider != im.domain {
		return fault.New(fault.Forbidden, "The provider %s may send only for its own agents, and %.254q is not one of them.",
			im.domain, l.Draft.From).About("envelope.from")
	}
	if !im.sameProvider {
		return nil
	}
	// MSG-86: an agent of this host sends here, with its own key.
	if _, err = m.Directory.Find(ctx, l.from); err == nil {
		return fault.New(fault.Forbidden, "%s is an agent of this host, and sends with its own key.", l.from).About("from")
	} else if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return err
}

// checkSenderKey refuses a sender's key that was given up, or that is not the pinned one. The pin is
// stored with the message.
func (m *Mail) checkSenderKey(ctx context.Context, l *letter, replaces string) error {
	if l.sender.PublicKey == nil {
		return nil
	}
	if err := m.Directory.CheckRevoked(ctx, l.sender.PublicKey); err != nil {
		return err
	}
	pin, err := m.Federation.Pin(ctx, l.from.String(), l.sender.PublicKey, replaces)
	l.meta.Pin, l.meta.Unpin = pin.Fingerprint, pin.Replaces
	return err
}

// Forwarded is what another host says about a message in the headers of its call.
type Forwarded struct {
	ID     string // of the message, if the body has none
	Key    string // the sender's public key, in hex
	Proved bool   // the host has shown that it has the shared secret
}

// ImportForwarded accepts a message from another host of our provider. MSG-89: the digest of the
// body is its idempotency key, so the same body is accepted once, whatever its headers say.
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
	at, replaced := outer.Time("timestamp"), forwarded.Text("key_revoked", 128)
	outer.Join(forwarded)
	if outer.Err != nil {
		return Answer{}, outer.Err
	}
	if at.IsZero() {
		at = m.core.Now()
	}
	o.ClientID = cmp.Or(o.ClientID, by.ID)
	o.Idem = "mesh:" + o.Request
	im := provenance{domain: m.Domains.Own, at: at, replaces: replaced, unproved: !by.Proved, sameProvider: true}
	// A key without a signature would be pinned without proof that the sender has it.
	if o.Signature != "" {
		im.key = by.Key
	}
	return m.importDraft(ctx, o, im)
}
