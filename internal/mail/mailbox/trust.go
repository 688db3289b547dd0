package mailbox

import (
	"bytes"
	"context"
	"encoding/json" // the folder is shared with clients that write what wire would refuse
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/injection"
	"signalbox/internal/roster"
)

// Trust is how far the sender of a message is known. It is decided when the message is fetched, and
// kept with it.
type Trust string

// The levels of trust (MSG-46).
const (
	Verified  Trust = "verified"  // signed by an agent of the same tenant
	External  Trust = "external"  // signed by an agent of another tenant or provider
	Untrusted Trust = "untrusted" // unsigned, wrongly signed, or signed with an unexpected key
)

// known reports whether a file has one of these levels; anything else counts as Untrusted.
func (t Trust) known() bool { return t == Verified || t == External || t == Untrusted }

// ahead is how far in the future the time of a message may be.
const ahead = time.Minute

// assess decides the trust of a message that was fetched with a registration, and updates the known
// keys. It verifies by itself (MSG-92): the provider's verdict can lower the trust, and its flags
// are added to ours.
//
// Untrusted is the start, and every check that fails returns it with a reason. Only a message that
// passes all of them is External or Verified.
func (b *Box) assess(ctx context.Context, m *Message, senderKey string, r *Registration,
	known map[string]knownSender,
) Security {
	now := b.now()
	marks := injection.ScanMessage(m.Envelope.Subject, m.payloadBytes())
	s := Security{Trust: Untrusted, Flags: append([]string{}, injection.Categories(marks)...), Places: marks}
	// What the provider found, as sent with the message. Its texts are foreign too.
	theirs := m.Security
	s.Files = theirs.Files // asMessage has compared them with the payload
	// At most 32 and 64 characters each: they are printed.
	for _, flag := range theirs.Flags {
		if flag = oneLine(flag, 64); !slices.Contains(s.Flags, flag) && len(s.Flags) < 32 {
			s.Flags = append(s.Flags, flag)
		}
	}
	if s.Reason = m.distrustReason(senderKey, r, now); s.Reason != "" {
		return s
	}
	// Not theirs.Trust: asMessage has replaced an unknown or missing level by Untrusted there.
	provider := m.file.part("local").part("security").text("trust")
	if provider == string(Untrusted) {
		s.Reason = "the provider does not trust it"
		return s
	}
	// After the provider's word: a key that it does not believe must not become the known one.
	key, _ := roster.ParsePublicKey(senderKey) // distrustReason has parsed it
	if s.Reason = b.checkKnownKey(ctx, known, m.Envelope.From, key, r); s.Reason != "" {
		return s
	}
	// The least that a good signature is worth.
	s.Trust, s.VerifiedAt = External, now.UTC().Format("2006-01-02T15:04:05Z")
	from, _ := r.domains().Parse(m.Envelope.From) // distrustReason has parsed it
	// Verified takes both: our own finding that the tenant is ours, and a provider that does not object.
	if home := r.domains().Home(from); home.Provider == r.domains().Own && home.Tenant == r.Tenant &&
		provider != string(External) {
		s.Trust = Verified
	}
	return s
}

// distrustReason is why a message is untrusted, "" if its signature verifies with senderKey. The key is only
// the provider's word here; checkKnownKey compares it with the known one.
func (m *Message) distrustReason(senderKey string, r *Registration, now time.Time) string {
	e := &m.Envelope
	to, err := r.domains().Parse(e.To)
	own, ownErr := r.domains().Parse(r.Address)
	// Without this check a message to somebody else could be replayed to us: its signature is right.
	if err != nil || ownErr != nil || r.domains().Home(to).Short() != own.Short() {
		return "it is for another address"
	}
	if _, err := r.domains().Parse(e.From); err != nil {
		return "the sender's address is invalid"
	}
	if e.Signature == "" {
		return "it is not signed"
	}
	key, err := roster.ParsePublicKey(senderKey)
	if err != nil {
		return "the sender's key is missing"
	}
	priority := e.Priority
	if priority == "" {
		priority = "normal"
	}
	// Only the spelling of the envelope is tried: the provider was to deliver the signed one (MSG-42).
	signed := amp.Signed{
		From: []string{e.From}, To: []string{e.To}, Subject: e.Subject, Priority: priority,
		InReplyTo: e.InReplyTo, Payload: m.payloadBytes(), Signature: e.Signature,
	}
	if _, _, ok := signed.Verify(key); !ok {
		return "the signature does not verify"
	}
	if at, err := time.Parse(time.RFC3339, e.Timestamp); err == nil && at.After(now.Add(ahead)) {
		return "it says that it was sent in the future"
	}
	return ""
}

// Foreign reports whether a message is shown in a wrapper (MSG-48).
func (m *Message) Foreign() bool {
	return m.Security.Trust != Verified || len(m.Security.Flags) > 0
}

// Sender is the address to show as the sender's: a placeholder if the message is untrusted, since
// the address in it proves nothing.
func (m *Message) Sender() string {
	// An address that cannot be parsed could contain anything, a quote that ends the attribute too.
	if _, err := (amp.Domains{}).Parse(m.Envelope.From); err != nil || m.Security.Trust == Untrusted {
		return "unknown@unverified"
	}
	return m.Envelope.From
}

// notPlain is what addresses, ids, times and signatures do not have.
var notPlain = regexp.MustCompile(`[^A-Za-z0-9@._:+/=-]`)

// Plain is an address, an id, a time or a signature as it is shown outside of a wrapper: it has no blanks, and is
// short. It is the provider's word, or the sender's.
func Plain(text string) string {
	text = notPlain.ReplaceAllString(text, "?")
	return text[:min(len(text), 254)]
}

// Suspect reports whether not even the subject of a message is shown in a list: nobody knows who wrote it, or it
// has marks of injection.
func (m *Message) Suspect() bool {
	return m.Security.Trust == Untrusted || len(m.Security.Flags) > 0
}

// Claims reports whether the message has attachments about which nothing is known but what its sender says.
func (m *Message) Claims() bool {
	return slices.ContainsFunc(m.Security.Files, func(a Attachment) bool { return a.ScanStatus == amp.Unverified })
}

// otherType stands for a type that the protocol does not name. It is the sender's own text.
const otherType = "other"

// types are those that the protocol and its clients name.
var types = []string{
	"request", "response", "notification", "update", "alert", "task", "status", "handoff", "ack", "system",
}

// Type is the type of a message as it can be shown outside of a wrapper.
func (m *Message) Type() string { return among(types, m.Payload.Type, otherType) }

// Priority is the priority of a message as it can be shown outside of a wrapper.
func (m *Message) Priority() string {
	return among([]string{"low", "normal", "high", "urgent"}, m.Envelope.Priority, "normal")
}

// among is a word if it is one of those that are known, and otherwise another one.
func among(known []string, word, otherwise string) string {
	if slices.Contains(known, word) {
		return word
	}
	return otherwise
}

// Show is a text of the message as a model should see it: wrapped, unless the message is verified
// and has no flags (MSG-48).
func (m *Message) Show(text string) string {
	if !m.Foreign() {
		return text
	}
	source := "agent"
	if m.Security.Trust == Untrusted {
		source = "unknown"
	}
	return injection.Foreign{
		Source: source, Sender: m.Sender(), Trust: string(m.Security.Trust), Unverified: m.Security.Trust == Untrusted,
		Flags: m.Security.Flags,
	}.Wrap(text)
}

// Text is the whole message as a model should read it. Everything that the sender wrote is inside
// one wrapper, the claimed address of an untrusted sender too.
func (m *Message) Text() string {
	var b strings.Builder
	if m.Security.Trust == Untrusted {
		b.WriteString("Says it is from: " + oneLine(m.Envelope.From, 254) + "\n")
	}
	// The subject is the sender's text as much as the message is.
	b.WriteString("Subject: " + oneLine(m.Envelope.Subject, maxSubject) + "\n")
	if m.Type() == otherType && m.Payload.Type != "" {
		b.WriteString("Type: " + oneLine(m.Payload.Type, 64) + "\n")
	}
	b.WriteString("\n" + m.Payload.Message)
	var more bytes.Buffer
	if json.Compact(&more, m.Payload.Context) == nil && more.String() != "null" {
		b.WriteString("\n\nContext: " + more.String())
	}
	for _, a := range m.Security.Files {
		b.WriteString("\n\nAttachment " + a.ID + ": " + a.Filename + ", " + a.ContentType + ", " +
			strconv.FormatInt(a.Size, 10) + " bytes, " + a.ScanStatus)
		if a.ScanNote != "" {
			b.WriteString(": " + oneLine(a.ScanNote, 300))
		}
	}
	return m.Show(b.String())
}
