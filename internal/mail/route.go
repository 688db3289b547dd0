package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/errand"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/injection"
	"signalbox/internal/mail/once"
	"signalbox/internal/mail/sent"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// letter is a message on its way through Route or importDraft. The steps fill it in, in this order:
// address (from, to, recipient or remote), authenticate (trust, the signed spelling), attach,
// thread, decide (flags, decision), complete (meta). Nothing is stored before the last one, so
// a step that fails leaves no trace but message.blocked.
type letter struct {
	*amp.Draft
	sender    roster.Identity
	recipient roster.Identity // its ID is the name of a queue if remote is set
	from, to  amp.Address
	duties    directory.Duties // what operators and the sender itself demand of it
	trust     Trust
	flags     []string         // what the scan found,
	marks     []injection.Mark // and where
	meta      Meta
	decision  rulebook.Decision
	workspace string
	warnings  []string

	remote   federation.Target // the other server that it goes to, "" for an agent of this one
	imported string            // the id that another provider or host gave it, "" for our own
	vouched  bool              // the host that sends it is known to have the sender
	at       time.Time         // the time of that id
}

// Route accepts a message from an agent: it is verified, decided upon and stored, or nothing
// happens. When Route returns without an error the message is committed. It counts against no
// rate limit; Send does.
func (m *Mail) Route(ctx context.Context, who roster.Identity, body []byte) (Answer, error) {
	o, err := amp.ReadDraft(body)
	if err != nil {
		return Answer{}, err
	}
	if o.Idem != "" {
		if again, err := sent.Repeated(ctx, &m.core, who.ID, o); err != nil || again != nil {
			return orZero(again), err
		}
	}
	// Each step may look things up and refuse; none of them writes. The order matters: the recipient has
	// to be known before the signature can be tried with its spellings, and the signature has to hold
	// before anything is counted against the recipient.
	l := &letter{Draft: o, sender: who, workspace: who.Workspace}
	if err := m.address(ctx, l); err != nil {
		return Answer{}, err
	}
	near := l.remote == "" && l.recipient.Workspace == l.workspace
	if l.meta.Hands, err = errand.Read(o.Kind, o.Handoff, near); err != nil {
		return Answer{}, err
	}
	if err := m.authenticate(ctx, l); err != nil {
		return Answer{}, err
	}
	if err := m.checkRecipientLimits(ctx, l); err != nil {
		return Answer{}, err
	}
	if err := m.attach(ctx, l); err != nil {
		return Answer{}, err
	}
	if err := m.thread(ctx, l); err != nil {
		return Answer{}, err
	}
	answer, err := m.decide(ctx, l)
	if !store.IsUnique(err) {
		return answer, err
	}
	if o.Idem != "" { // the same request committed in the meantime
		if again, err := sent.Repeated(ctx, &m.core, who.ID, o); err != nil || again != nil {
			return orZero(again), err
		}
	}
	return Answer{}, l.meta.Once.Explain(ctx, m.core.DB, err)
}

// orZero is the answer, or an empty one beside an error.
func orZero(a *Answer) Answer {
	if a == nil {
		return Answer{}
	}
	return *a
}

// address settles sender and recipient: an agent of ours, one of another host of ours, or one
// of another provider. It changes nothing.
func (m *Mail) address(ctx context.Context, l *letter) error {
	if err := m.active(ctx, l.sender); err != nil {
		return err
	}
	var err error
	if l.from, err = m.Domains.Parse(l.sender.Address); err != nil {
		return err
	}
	// MSG-28: the key says who sends. A client may repeat it, in any spelling.
	if l.Draft.From != "" && !slices.Contains(m.Domains.Spellings(l.from), strings.ToLower(l.Draft.From)) {
		return fault.New(fault.Forbidden,
			"This key is for %s, and the message says it is from %.254q. Leave from out, or send it with that agent's own key.",
			l.sender.Address, l.Draft.From).About("from")
	}
	// MSG-12: short forms are completed with the sender's tenant.
	if l.to, err = m.Domains.Expand(l.Draft.To, l.from.Tenant); err != nil {
		return fault.From(err).About("to")
	}
	// Our own provider may also mean another host of the mesh; inland finds out.
	if m.Domains.Ours(l.to.Provider) {
		err = m.resolveLocal(ctx, l)
	} else {
		err = m.resolveForeign(ctx, l)
	}
	if err != nil {
		return err
	}
	// What an operator allows the agent, and then the agent's own policy, a seat belt that it can change.
	if l.duties, err = m.Directory.DutiesNow(ctx, l.sender.ID); err != nil {
		return err
	}
	if !l.duties.Policy.Allows(l.to) {
		return fault.New(fault.RecipientNotAllowed, "%s may not write to %s: an operator has restricted whom it may write "+
			"to. Ask an operator.", l.sender.Address, l.to).About("to")
	}
	if !m.Directory.Profile(l.sender.ID).Policy.Allows(l.to) {
		return fault.New(fault.RecipientNotAllowed,
			"The communication_policy of %s does not name %s. Change it with PATCH /v1/agents/me.", l.sender.Address,
			l.to).About("to")
	}
	return nil
}

// resolveLocal finds a recipient with our provider, here or on another host of the mesh.
func (m *Mail) resolveLocal(ctx context.Context, l *letter) (err error) {
	l.recipient, err = m.Directory.FindFor(ctx, l.sender.Workspace, m.Domains.Home(l.to))
	if len(m.Mesh.Hosts) > 0 && fault.Is(err, fault.NotFound) {
		return m.resolveOnMesh(ctx, l, err)
	}
	if err != nil {
		return err
	}
	// MSG-53: refused at once, so that nothing piles up for an agent that may never come back.
	if l.recipient.Suspended {
		// MSG-99: another host may have had the address first.
		elsewhere, err := m.Homes.Elsewhere(ctx, m.Domains.Home(l.to))
		if err != nil {
			return err
		}
		if elsewhere {
			return m.resolveOnMesh(ctx, l, roster.NoAddress(l.to.String()))
		}
		return fault.New(fault.RecipientSuspended, "%s is suspended, and gets no mail until an operator resumes it.",
			l.recipient.Address).About("to")
	}
	l.to, err = m.Domains.Parse(l.recipient.Address)
	return err
}

// authenticate verifies the signature and sets the trust. MSG-42: the envelope gets the spelling
// of the addresses that was signed, so that the recipient can verify it too.
func (m *Mail) authenticate(ctx context.Context, l *letter) error {
	from, to := l.sender.Address, l.to.String()
	if l.Signature == "" {
		if l.imported == "" {
			if err := l.duties.CheckUnsigned(l.sender); err != nil {
				return err
			}
		}
		if m.SignaturesRequired {
			return fault.New(fault.SignatureMissing,
				"This server takes signed messages only. Sign from|to|subject|priority|in_reply_to|payload_hash with the agent's "+
					"Ed25519 key, and send it as signature.").About("signature")
		}
	} else {
		// MSG-44: a signature that cannot be checked is refused, not ignored.
		if l.sender.PublicKey == nil {
			return fault.New(fault.SignatureInvalid,
				"%s has no public key here, so its signature cannot be checked. Register one, or send without a signature.",
				l.sender.Address).About("signature")
		}
		// Most messages verify with the first spelling; the others are made only if it does not.
		s := amp.Signed{
			From: []string{l.from.String()}, To: []string{l.Draft.To}, Subject: l.Subject, Priority: l.Priority,
			InReplyTo: l.InReplyTo, Payload: l.Payload, Signature: l.Signature,
			All: func() (from, to []string) { return m.senderSpellings(l), m.recipientSpellings(l) },
		}
		if l.imported != "" {
			s.From[0] = l.Draft.From
		}
		var ok bool
		if from, to, ok = s.Verify(l.sender.PublicKey); !ok {
			return fault.New(fault.SignatureInvalid,
				"The signature does not verify with the registered key of %s (%s). If the agent has a new key, register it "+
					"with POST /v1/auth/rotate-keys.", l.sender.Address, roster.Fingerprint(l.sender.PublicKey)).About("signature")
		}
	}
	// MSG-111: over the mesh nobody here knows what the sender demands of itself.
	if l.Signature != "" && (l.imported != "" && l.from.Provider == m.Domains.Own ||
		l.imported == "" && l.duties.RequireSignature) {
		l.meta.Once = once.Of(l.Signature, l.Nonce)
	}
	// Verified or not present: a signature that is there and wrong has been refused above.
	l.trust = trustOf(l.Signature != "", l.from, l.to)
	if l.trust == Verified && l.imported == "" {
		own, err := m.Directory.KeyIsItsOwn(ctx, l.sender)
		if err != nil {
			return err
		}
		if !own { // MSG-116
			l.trust = External
		}
	}
	l.meta.Envelope.From, l.meta.Envelope.To = from, to
	return nil
}

// senderSpellings are the ways in which the sender may have written its own address. An agent of
// another provider has exactly one; with our alias domains it could pass for one of ours.
func (m *Mail) senderSpellings(l *letter) []string {
	if l.imported != "" {
		return []string{l.Draft.From}
	}
	return m.Domains.Spellings(l.from)
}

// recipientSpellings are the ways in which the sender may have written the recipient, as sent
// first: nearly every client signs what it sends.
func (m *Mail) recipientSpellings(l *letter) []string {
	all := []string{l.Draft.To}
	full := []string{strings.ToLower(l.Draft.To), l.to.String()}
	if l.remote == "" {
		full = append(full, m.Domains.Spellings(l.to)...)
	}
	for _, s := range full {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// attach checks the attachments that the payload names, and notes what is recorded about them. They are
// claimed later, in the transaction that stores the message.
func (m *Mail) attach(ctx context.Context, l *letter) error {
	if !l.Attached {
		return nil
	}
	found, err := m.Attachments.Check(ctx, l.sender, l.Payload)
	if err != nil {
		return err
	}
	l.meta.Attachments, l.meta.AttachedUntil, l.meta.Files = found.IDs, found.Until, found.Files
	if found.Suspicious {
		l.warnings = append(l.warnings, "attachment_suspicious")
	}
	return nil
}

// thread settles which thread a message belongs to (MSG-29): the one it names, if the sender
// took part in it, else that of the message it answers. If neither exists, complete makes a new
// one. The hint is not signed, so it is worth nothing without the sender's part in the thread.
func (m *Mail) thread(ctx context.Context, l *letter) error {
	hint := l.ThreadHint
	if hint != "" && hint == l.ClientID {
		hint = "" // some clients name their own id: a new thread
	}
	for _, id := range []string{hint, l.InReplyTo} {
		if id == "" || !amp.IDForm.MatchString(id) {
			continue
		}
		var thread string
		err := m.core.DB.QueryRow(ctx,
			`SELECT thread FROM mail_message WHERE (id = $1 OR alias = $1 AND alias <> '' OR seq IN (`+ledger.SeqsOfTrace+`$3))
AND (sender = $2 OR recipient = $2) ORDER BY seq LIMIT 1`, []any{id, l.sender.ID, trace(id)}, &thread)
		if err == nil {
			l.meta.Envelope.ThreadID = thread
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// event is the message as rules see it. Its Fill is called only if a rule reads the payload or
// the metadata, which costs a full decoding.
func (l *letter) event() policy.Event {
	return policy.Event{
		Point: policy.OnMessage, Protocol: Name, Kind: l.Kind, From: l.sender.Address, To: l.to.String(), Subject: l.Subject,
		Text: l.Text, User: l.Named.User, Claim: l.Named.Claim,
		Thread: l.meta.Envelope.ThreadID, Priority: l.Priority, External: l.from.Provider != l.to.Provider,
		Fill: func(e *policy.Event) {
			// ForeignData, since rules must see everything that a recipient will see, even what
			// our own API would refuse.
			payload, _ := wire.ForeignData(l.Payload) // ReadDraft has parsed it
			e.Payload, _ = payload.(map[string]any)
			attachment.HideTickets(e.Payload, l.meta.Attachments, strings.HasPrefix(l.sender.ID, "remote:"))
			flags, files := []any{}, []any{}
			for _, f := range l.flags {
				flags = append(flags, f)
			}
			for _, f := range l.meta.Files { // the provider's word, not the payload's
				files = append(files, map[string]any{
					"filename": f.Filename, "content_type": f.ContentType, "size": f.Size,
					"scan_status": f.ScanStatus, "scan_note": f.ScanNote,
				})
			}
			e.Metadata = map[string]any{"trust": string(l.trust), "injection_flags": flags, "attachments": files}
		},
	}
}

// scan searches everything that the recipient will read (MSG-49).
func (l *letter) scan() {
	l.marks = injection.ScanMessage(l.Subject, l.Payload)
	l.flags = injection.Categories(l.marks)
}

// decide asks the policy and the scan, and stores, holds or refuses the message.
func (m *Mail) decide(ctx context.Context, l *letter) (answer Answer, err error) {
	l.scan()
	meta := l.meta // each round completes its own
	err = rulebook.Settle(m.core.Book.Decide(ctx, l.sender, l.event()), func(d rulebook.Decision) (err error) {
		l.decision, l.meta = d, meta
		answer, err = m.takeDecided(ctx, l)
		return err
	})
	return answer, err
}

// takeDecided does with a message as was decided. The order of the cases is MSG-51: neither the policy nor the scan
// can undo a refusal of the other. With *rulebook.StaleError nothing was written.
func (m *Mail) takeDecided(ctx context.Context, l *letter) (Answer, error) {
	severity := injection.SeverityOf(l.flags)
	switch d := l.decision; {
	case d.Action == policy.Block:
		return Answer{}, m.recordBlocked(ctx, l, fault.New(fault.Forbidden, "The rule %s refuses this message: %s", d.Rule,
			d.Reason).With("rule", d.Rule))
	case d.Action == policy.Defer:
		err := d.Write(ctx, m.core.Ledger, l.sender, l.sender.ID, "")
		return Answer{}, cmp.Or(err, d.Deferred("the message"))
	case severity >= injection.Critical:
		return Answer{}, m.recordBlocked(ctx, l, fault.New(fault.Forbidden,
			"This message has marks of prompt injection (%s). Rewrite it without them.",
			injection.Explain(l.marks)).With("injection_flags", l.flags).With("injection_places", l.marks))
	// A rule's gate comes with its own approvers and expiry; the scan's own hold is below.
	case d.Action == policy.Gate:
		return m.hold(ctx, l, gate.RulesOf(d.Gate), d.Gate.Risk, d.Rule, d.Reason)
	case severity >= injection.High:
		// The default approvers: any operator of the workspace.
		rules := gate.Rules{Expires: quarantineTTL.Microseconds()}
		return m.hold(ctx, l, rules, "high", "quarantine",
			"The text has marks of prompt injection: "+injection.Explain(l.marks)+".")
	}
	return m.send(ctx, l)
}

// recordBlocked records message.blocked with the decision and without the text, counts it against the
// sender's risk, and returns why. If the entry cannot be written, that error is the answer.
func (m *Mail) recordBlocked(ctx context.Context, l *letter, why *fault.Error) error {
	err := m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		d, err := l.decision.Recheck(tx)
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: l.workspace, Kind: kindBlocked, Actor: l.sender.Actor(), Subject: l.sender.ID,
			Body: blocked{
				To: l.to.String(), Subject: l.Subject, Flags: l.flags, Marks: l.marks, Decision: &d.Record,
			},
		})
		return nil
	})
	if err != nil {
		return err
	}
	m.suspendIfCritical(ctx, l.sender)
	return why
}
