package notify

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/roster"
)

// What a button does. One letter each, since Telegram lets a button carry 64 bytes.
const (
	approveAction = "a"
	rejectAction  = "r"
)

// A button carries the beginning of the digest of what its message shows, and an HMAC. Telegram has
// room for 64 bytes, of which action and gate take 34, and these in base64 the other 30.
const (
	seenSize = 8  // 16 digits, the least that a vote names
	codeSize = 14 // 112 bits cannot be guessed
)

// button is what a button carries: the action, the gate, what of it was shown, and a code that only
// this server can make for these, and that no version made which left out a part of the gate. So a
// button cannot be forged, and one of a message that shows
// something else than the gate is now decides nothing.
func (n *Notifier) button(action string, g gate.Gate) string {
	seen, err := hex.DecodeString(g.ShownDigest())
	if err != nil || len(seen) < seenSize {
		return "" // cannot be; without one there is no button
	}
	seen = seen[:seenSize]
	return action + ":" + g.ID + ":" + base64.RawURLEncoding.EncodeToString(append(seen, n.code(action, g.ID, seen)...))
}

// readButton reads a button back. ok is whether it is ours.
func (n *Notifier) readButton(data string) (action, gateID, digest string, ok bool) {
	action, rest, _ := strings.Cut(data, ":")
	gateID, proof, _ := strings.Cut(rest, ":")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(proof)
	if err != nil || len(raw) != seenSize+codeSize || action != approveAction && action != rejectAction {
		return "", "", "", false
	}
	seen, code := raw[:seenSize], raw[seenSize:]
	return action, gateID, hex.EncodeToString(seen), hmac.Equal(code, n.code(action, gateID, seen))
}

// Rejects reports whether a button asks for a reason before it decides.
func Rejects(data string) bool { return strings.HasPrefix(data, rejectAction+":") }

// code is the proof that a button is ours.
func (n *Notifier) code(action, gateID string, seen []byte) []byte {
	h := hmac.New(sha256.New, n.key)
	// Each part is preceded by its length, so that no two lists of parts are alike.
	for _, part := range []string{"signalbox button under the whole gate", action, gateID, string(seen)} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		h.Write([]byte(part))
	}
	return h.Sum(nil)[:codeSize]
}

// undecidable says why a gate has no buttons in a channel, "" if it has. A message and a press ask the
// same, so a button that should not be there decides nothing.
func undecidable(c Channel, g gate.Gate) string {
	m := Message{Event: Opened, Gate: g}
	missing := m.write(c.Room())
	switch {
	case len(g.Unshown) > 0: // it takes a second step
		return "Not decided here: a part of it is too long to be shown"
	case missing != "":
		return "Not decided here: " + missing
	case g.Presence != "":
		return "Not decided here: a vote is signed with a passkey, in a browser"
	case !c.Buttons(gate.Gate{}):
		return "Not decided here: nobody can tell who presses"
	case !c.Buttons(g):
		return "Not decided here: its risk is " + g.Risk
	}
	return ""
}

// undecidableIn is undecidable for a kind of channel.
func (n *Notifier) undecidableIn(kind string, g gate.Gate) string {
	why := "Not decided here: the channel is not configured any more"
	for _, c := range n.Channels {
		if c.Name() == kind {
			if why = undecidable(c, g); why == "" {
				return ""
			}
		}
	}
	return why
}

// notOurs is what whoever presses an unknown button hears. It does not say whether the gate
// exists.
const notOurs = "This button is not one of this server, or from before an upgrade. Nothing was changed; open the gate."

// Press is a press of a button.
type Press struct {
	Channel string // the kind of channel
	Contact string // who pressed, as the channel knows them and has made sure
	Data    string // what the button carried
	Note    string // what they say to it; a rejection needs it
}

// vote is a press that was understood and is allowed.
type vote struct {
	who    roster.Identity
	gate   string
	ballot gate.Ballot
}

// readPress finds out what a press means and whether the person may; if not, refusal says why, as
// a sentence for that person; failed is the cause if that is ours. The code is checked before the person is looked up,
// so that a made up button tells nothing about who is an operator.
func (n *Notifier) readPress(ctx context.Context, p Press) (v vote, refusal string, failed error) {
	action, gateID, digest, ours := n.readButton(p.Data)
	if !ours {
		return v, notOurs, nil
	}
	g, err := n.gates.Get(ctx, gateID)
	if err != nil {
		refusal, failed = n.explain(err)
		return v, refusal, failed
	}
	who, err := n.roster.ByContact(ctx, p.Channel, p.Contact)
	if fault.Is(err, fault.NotFound) {
		return v, fmt.Sprintf("You are not known here as an operator, so nothing was changed. An admin can say who you "+
			"are: signalbox operators set NAME --%s %s", p.Channel, p.Contact), nil
	}
	if err == nil {
		err = g.Admits(who, action == approveAction)
	}
	if err == nil {
		err = g.CheckSeen(digest)
	}
	if why := n.undecidableIn(p.Channel, g); err == nil && why != "" {
		return v, why + ". Nothing was changed; open the gate to decide.", nil
	}
	if err == nil {
		err = n.gates.CheckPresence(ctx, who, &g)
	}
	if err != nil {
		refusal, failed = n.explain(err)
		return v, refusal, failed
	}
	return vote{who, gateID, gate.Ballot{Approve: action == approveAction, Digest: digest}}, "", nil
}

// Refusal is why a press would come to nothing, "" if it would count. A channel that asks for a
// reason first calls it, to ask nobody in vain.
func (n *Notifier) Refusal(ctx context.Context, p Press) string {
	_, refusal, _ := n.readPress(ctx, p)
	return refusal
}

// Press votes as the operator who has the contact, and returns what that person is told. The vote
// goes through gate.Vote, so quorum, approvers and "the first decision counts" hold as for any
// other way to vote. An error says that it failed for a reason of ours, and may count when it is tried again.
func (n *Notifier) Press(ctx context.Context, p Press) (say string, failed error) {
	v, refusal, err := n.readPress(ctx, p)
	if refusal != "" {
		return refusal, err
	}
	did := "rejected"
	v.ballot.Note = strings.TrimSpace(strings.ReplaceAll(p.Note, "\x00", "")) // which no database keeps
	if v.ballot.Approve {
		did = "approved"
		v.ballot.Note = cmp.Or(v.ballot.Note, "approved in "+strings.ToUpper(p.Channel[:1])+p.Channel[1:])
	}
	g, err := n.gates.Vote(ctx, v.who, v.gate, v.ballot)
	if err != nil {
		return n.explain(err)
	}
	if g.Status == gate.Pending {
		return fmt.Sprintf("Your vote counts: you have %s this. It takes %d of %s.", did, g.Quorum,
			strings.Join(g.Approvers, ", ")), nil
	}
	if err := n.gates.AwaitUse(ctx, &g); err != nil {
		n.log.Warn("cannot read whether an approval was taken", "gate", g.ID, "error", err.Error())
	}
	return strings.TrimSpace(fmt.Sprintf("You have %s this. %s", did, g.UnusedNote())), nil
}

// explain turns an error into a sentence for the person who pressed. Causes that are ours go to
// the log, and are returned.
func (n *Notifier) explain(err error) (say string, failed error) {
	e := fault.From(err)
	switch e.Code {
	case fault.NotFound:
		return notOurs, nil
	case fault.NotWhatWasShown, fault.NotAllShown, fault.PresenceRequired:
		return e.Message, nil
	case fault.AlreadyResolved, fault.Forbidden, fault.Conflict, fault.InvalidPayload:
		return e.Message + " Nothing was changed.", nil
	default:
		n.log.Warn("vote by button failed", "error", err.Error())
		return "Your vote could not be recorded. Try again in a moment.", err
	}
}
