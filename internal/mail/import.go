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

// perRecipient is how many messages of other providers an agent gets a minute.
const perRecipient = 20

// Import takes a message that another provider answers for: it has signed it. Who the
// sender is, is for that provider to say, and only of its own agents; the sender's key is
// remembered from its first message on.
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
	at := envelope.Time("timestamp")
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
	return m.takeIn(ctx, o, immigrant{domain: domain, at: at, key: key, replaces: revokedKey})
}

// readArrival reads a message, and the members around it that are about its way here.
func readArrival(body []byte) (*outgoing, *amp.Fields, error) {
	o, err := parseRoute(body)
	if err != nil {
		return nil, nil, err
	}
	outer, err := amp.ReadFields(body)
	return o, outer, err
}

// immigrant is what is said of a message by who answers for its sender.
type immigrant struct {
	domain       string // the sender's provider
	sameProvider bool   // it is our own: another host has the sender
	at           time.Time
	key          string // the sender's, in any form
	replaces     string // the fingerprint of the key that it replaces
	hearsay      bool   // nobody has proved anything
}

// takeIn takes a message whose sender is somebody else's to vouch for.
func (m *Mail) takeIn(ctx context.Context, o *outgoing, im immigrant) (Answer, error) {
	l := &letter{outgoing: o}
	err := m.immigrate(ctx, l, im)
	if err != nil {
		return Answer{}, err
	}
	if im.key != "" {
		if l.sender.PublicKey, err = roster.ParsePublicKey(im.key); err != nil {
			return Answer{}, fault.New(fault.InvalidField, "%s", fault.From(err).Message).About("sender_public_key")
		}
	}
	if err := m.knowKey(ctx, l, im.replaces); err != nil {
		return Answer{}, err
	}
	if err := m.authenticate(l); err != nil {
		return Answer{}, err
	}
	if im.hearsay && l.trust == Verified {
		l.trust = External
	}
	if err := m.admitTo(ctx, l); err != nil {
		return Answer{}, err
	}
	if err := m.thread(ctx, l); err != nil {
		return Answer{}, err
	}
	if l.meta.Envelope.ThreadID == "" && amp.IDForm.MatchString(o.threadHint) {
		l.meta.Envelope.ThreadID = o.threadHint
	}
	answer, err := m.decide(ctx, l)
	if store.IsUnique(err) {
		return Answer{}, duplicate(o.clientID)
	}
	return answer, err
}

func duplicate(id string) error {
	return fault.New(fault.DuplicateMessage, "A message with the id %s came before.", id).About("envelope.id")
}

// immigrate settles who a message from another provider is from and for.
func (m *Mail) immigrate(ctx context.Context, l *letter, im immigrant) (err error) {
	if !amp.IDForm.MatchString(l.clientID) {
		return fault.New(fault.InvalidField,
			"The field \"envelope.id\" should be an id such as \"msg_1706648400_abc123\", and is %.80q.",
			l.clientID).About("envelope.id")
	}
	var seen string
	err = m.core.DB.QueryRow(ctx, "SELECT id FROM mail_message WHERE id = $1", []any{l.clientID}, &seen)
	if err == nil {
		return duplicate(l.clientID)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := m.foreigner(ctx, l, im); err != nil {
		return err
	}
	if l.to, err = m.Domains.Parse(l.outgoing.to); err != nil {
		return fault.From(err).About("envelope.to")
	}
	if !m.Domains.Ours(l.to.Provider) {
		return fault.New(fault.NotFound, "%s is no address of this provider.", l.to).About("envelope.to")
	}
	if l.recipient, err = m.Directory.Find(ctx, m.Domains.Home(l.to)); err != nil {
		return err
	}
	if l.recipient.Suspended {
		return fault.New(fault.RecipientSuspended, "%s is suspended, and gets no mail until an operator resumes it.",
			l.recipient.Address).About("envelope.to")
	}
	l.to, err = m.Domains.Parse(l.recipient.Address)
	l.workspace, l.imported, l.at = l.recipient.Workspace, l.clientID, im.at
	l.sender = roster.Identity{
		ID: "remote:" + l.from.String(), Kind: roster.HolderAgent, Name: l.from.String(),
		Address: l.from.String(), Workspace: l.recipient.Workspace, Trust: "untrusted", Labels: map[string]string{},
	}
	return err
}

// foreigner settles who a message is from: an agent of the provider that sends it, or, for
// another host of ours, one that is not here.
func (m *Mail) foreigner(ctx context.Context, l *letter, im immigrant) (err error) {
	theirs := amp.Domains{Own: im.domain}
	if im.sameProvider {
		theirs = m.Domains
	}
	if l.from, err = theirs.Parse(l.outgoing.from); err != nil {
		return fault.From(err).About("envelope.from")
	}
	if l.from = theirs.Home(l.from); l.from.Provider != im.domain {
		return fault.New(fault.Forbidden, "The provider %s may send for its own agents, and %.254q is none of them.",
			im.domain, l.outgoing.from).About("envelope.from")
	}
	if !im.sameProvider {
		return nil
	}
	if _, err = m.Directory.Find(ctx, l.from); err == nil {
		return fault.New(fault.Forbidden, "%s is an agent of this host, and sends with its own key.", l.from).About("from")
	} else if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return err
}

// knowKey refuses a key of the sender that was given up, or that is not the one it had.
func (m *Mail) knowKey(ctx context.Context, l *letter, replaces string) error {
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

// Forwarded is what another host says of a message in the headers of its call.
type Forwarded struct {
	ID     string // of the message, if it has none
	Key    string // the sender's public key, in hex
	Proved bool   // the host has shown that it is one of the mesh
}

// ImportForwarded takes a message that another host answers for, as Import does from
// another provider. The same body is taken once, whatever its headers say.
func (m *Mail) ImportForwarded(ctx context.Context, body []byte, by Forwarded) (Answer, error) {
	o, outer, err := readArrival(body)
	if err != nil {
		return Answer{}, err
	}
	about := outer.Object("_forwarded")
	if about == nil {
		outer.Missing("_forwarded", `an object such as {"original_to": "bob@acme.signalbox.local", "forwarded_by": "host-a"}`)
		return Answer{}, outer.Err
	}
	o.to = cmp.Or(about.Text("original_to", amp.MaxAddress), o.to) // which was signed
	o.from = cmp.Or(o.from, about.Text("original_from", amp.MaxAddress))
	at, replaced := outer.Time("timestamp"), about.Text("key_revoked", 128)
	outer.Join(about)
	if outer.Err != nil {
		return Answer{}, outer.Err
	}
	if at.IsZero() {
		at = m.core.Now()
	}
	o.clientID = cmp.Or(o.clientID, by.ID)
	o.idem = "mesh:" + o.request
	im := immigrant{domain: m.Domains.Own, at: at, replaces: replaced, hearsay: !by.Proved, sameProvider: true}
	if o.signature != "" {
		im.key = by.Key
	}
	return m.takeIn(ctx, o, im)
}
