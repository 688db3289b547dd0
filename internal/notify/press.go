package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
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

// codeSize is how many bytes of the HMAC a button carries. 128 bits cannot be guessed.
const codeSize = 16

// button is what a button carries: the action, the gate, and a code that only this server can
// make, for this action on exactly what was shown. So a button cannot be forged, and one of a
// message that was changed decides nothing.
func (n *Notifier) button(action string, g gate.Gate) string {
	return action + ":" + g.ID + ":" + n.code(action, g)
}

// code is the proof that a button is ours. The digest binds it to what was shown.
func (n *Notifier) code(action string, g gate.Gate) string {
	h := hmac.New(sha256.New, n.key)
	// Each part is preceded by its length, so that no two lists of parts are alike.
	for _, part := range []string{"signalbox button", action, g.ID, g.ActionDigest} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:codeSize])
}

// notOurs is what whoever presses an unknown button hears. It does not say whether the gate
// exists.
const notOurs = "This button is not one of this server, or not for this gate. Nothing was changed."

// Press is a press of a button.
type Press struct {
	Channel string // the kind of channel
	Contact string // who pressed, as the channel knows them and has made sure
	Data    string // what the button carried
	Note    string // what they say to it; may be empty
}

// vote is a press that was understood and is allowed.
type vote struct {
	who     roster.Identity
	gate    gate.Gate
	approve bool
}

// readPress finds out what a press means and whether the person may; if not, refusal says why, as
// a sentence for that person. The code is checked before the person is looked up, so that a made
// up button tells nothing about who is an operator.
func (n *Notifier) readPress(ctx context.Context, p Press) (v vote, refusal string) {
	action, rest, _ := strings.Cut(p.Data, ":")
	gateID, code, _ := strings.Cut(rest, ":")
	if action != approveAction && action != rejectAction {
		return v, notOurs
	}
	g, err := n.gates.Get(ctx, gateID)
	if err != nil {
		return v, n.explain(err)
	}
	if !hmac.Equal([]byte(code), []byte(n.code(action, g))) {
		return v, notOurs
	}
	who, err := n.roster.ByContact(ctx, p.Channel, p.Contact)
	if fault.Is(err, fault.NotFound) {
		return v, fmt.Sprintf("You are not known here as an operator, so nothing was changed. An admin can say who you "+
			"are: signalbox operators set NAME --%s %s", p.Channel, p.Contact)
	}
	if err == nil {
		err = g.Admits(who, action == approveAction)
	}
	if err != nil {
		return v, n.explain(err)
	}
	return vote{who, g, action == approveAction}, ""
}

// Refusal is why a press would come to nothing, "" if it would count. A channel that asks for a
// reason first calls it, to ask nobody in vain.
func (n *Notifier) Refusal(ctx context.Context, p Press) string {
	_, refusal := n.readPress(ctx, p)
	return refusal
}

// Press votes as the operator who has the contact, and returns what that person is told. The vote
// goes through gate.Vote, so quorum, approvers and "the first decision counts" hold as for any
// other way to vote.
func (n *Notifier) Press(ctx context.Context, p Press) string {
	v, refusal := n.readPress(ctx, p)
	if refusal != "" {
		return refusal
	}
	did := "rejected"
	if v.approve {
		did = "approved"
	}
	note := strings.TrimSpace(strings.ReplaceAll(p.Note, "\x00", "")) // which no database keeps
	if note == "" {
		note = did + " in " + strings.ToUpper(p.Channel[:1]) + p.Channel[1:]
	}
	g, err := n.gates.Vote(ctx, v.who, v.gate.ID, gate.Ballot{Approve: v.approve, Note: note})
	if err != nil {
		return n.explain(err)
	}
	if g.Status == gate.Pending {
		return fmt.Sprintf("Your vote counts: you have %s this. It takes %d of %s.", did, g.Quorum,
			strings.Join(g.Approvers, ", "))
	}
	return fmt.Sprintf("You have %s this.", did)
}

// explain turns an error into a sentence for the person who pressed. Causes that are ours go to
// the log.
func (n *Notifier) explain(err error) string {
	e := fault.From(err)
	switch e.Code {
	case fault.NotFound:
		return notOurs
	case fault.AlreadyResolved, fault.Forbidden, fault.Conflict:
		return e.Message + " Nothing was changed."
	default:
		n.log.Warn("vote by button failed", "error", err.Error())
		return "Your vote could not be recorded. Try again in a moment."
	}
}
