package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/gate"
)

// What a button does. One letter, since Telegram lets a button carry 64 bytes.
const (
	approveAction = "a"
	rejectAction  = "r"
)

// codeSize is how many bytes of the code a button carries: as many as nobody guesses.
const codeSize = 16

// button is what a button carries: action, gate, and a code that only this server makes,
// good for this action on exactly what was shown.
func (n *Notifier) button(action string, g gate.Gate) string {
	return action + ":" + g.ID + ":" + n.code(action, g)
}

func (n *Notifier) code(action string, g gate.Gate) string {
	h := hmac.New(sha256.New, n.Key)
	// Each part is preceded by its length, so that no two lists of parts are alike.
	for _, part := range []string{"signalbox button", action, g.ID, g.ActionDigest} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:codeSize])
}

const notOurs = "This button is not one of this server, or not for this gate. Nothing was changed."

// Press votes as the operator whom the channel knows by the contact, and says to that
// person what came of it.
func (n *Notifier) Press(ctx context.Context, channel, contact, data string) string {
	action, rest, _ := strings.Cut(data, ":")
	gateID, code, _ := strings.Cut(rest, ":")
	if action != approveAction && action != rejectAction {
		return notOurs
	}
	g, err := n.Gates.Get(ctx, gateID)
	if err != nil {
		return n.explain(err)
	}
	if !hmac.Equal([]byte(code), []byte(n.code(action, g))) {
		return notOurs
	}
	who, err := n.Roster.ByContact(ctx, channel, contact)
	if fault.Is(err, fault.NotFound) {
		return fmt.Sprintf("You are not known here as an operator, so nothing was changed. An admin can say who you are: signalbox operators set NAME --%s %s", channel, contact)
	}
	if err != nil {
		return n.explain(err)
	}
	approve, did := action == approveAction, "rejected"
	if approve {
		did = "approved"
	}
	where := strings.ToUpper(channel[:1]) + channel[1:]
	g, err = n.Gates.Vote(ctx, who, gateID, gate.Ballot{Approve: approve, Note: did + " in " + where})
	if err != nil {
		return n.explain(err)
	}
	if g.Status == gate.Pending {
		return fmt.Sprintf("Your vote counts: you have %s this. It takes %d of %s.", did, g.Quorum, strings.Join(g.Approvers, ", "))
	}
	return fmt.Sprintf("You have %s this.", did)
}

// explain is a refusal as a sentence for the person who pressed.
func (n *Notifier) explain(err error) string {
	e := fault.From(err)
	switch e.Code {
	case fault.NotFound:
		return notOurs
	case fault.AlreadyResolved, fault.Forbidden, fault.Conflict:
		return e.Message + " Nothing was changed."
	default:
		n.Log.Warn("a press of a button could not be recorded", "error", err.Error())
		return "Your vote could not be recorded. Try again in a moment."
	}
}
