package slack

import (
	"context"

	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

// reasonID names our modal, and the one thing that it asks.
const reasonID = "signalbox_reason"

// maxReason is how many characters a reason has at most: a note has 4,000 bytes.
const maxReason = 1000

// asking is what a modal remembers of the press that opened it.
type asking struct {
	Button  string `json:"button"`
	User    string `json:"user"`
	Channel string `json:"channel"` // where they are told what came of it
}

// askWhy opens a modal that asks for the reason of a rejection: what is submitted there
// decides, and not the press. It returns what is to be said to who pressed, if anything.
func (a *App) askWhy(ctx context.Context, callback *interaction, p notify.Press, n *notify.Notifier) string {
	if refusal := n.Refusal(ctx, p); refusal != "" {
		return refusal
	}
	about, err := wire.Marshal(asking{p.Data, p.Contact, callback.Channel.ID})
	if err != nil {
		return notAsked
	}
	asks := block{
		"type": "input", "block_id": reasonID, "optional": true, "label": plain("Reason, for the agent and the record"),
		"element": block{"type": "plain_text_input", "action_id": reasonID, "multiline": true, "max_length": maxReason},
	}
	_, err = a.api.document(ctx, a.Token, "views.open", map[string]any{"trigger_id": callback.TriggerID, "view": block{
		"type": "modal", "callback_id": reasonID, "private_metadata": string(about),
		"title": plain("Reject"), "submit": plain("Reject"), "close": plain("Cancel"), "blocks": []block{asks},
	}})
	if err != nil {
		a.Log.Warn("cannot ask somebody in Slack for a reason", "why", result(err, "").Text)
		return notAsked
	}
	return ""
}

const notAsked = "Slack did not open the form for the reason, so nothing was decided. " +
	"Press Reject again, or open the gate."

// submitted rejects with the reason that was given. The form is good for the person it
// was opened for, and the vote counts once.
func (a *App) submitted(ctx context.Context, callback *interaction, n *notify.Notifier) {
	view := &callback.View
	var about asking
	if view.CallbackID != reasonID || wire.UnmarshalPart([]byte(view.PrivateMetadata), &about) != nil {
		return
	}
	p := notify.Press{Channel: Name, Contact: callback.User.ID, Data: about.Button}
	p.Note = view.State.Values[reasonID][reasonID].Value
	say := "This form was opened for somebody else. Nothing was changed."
	if about.User == p.Contact {
		say = n.Press(ctx, p)
	}
	a.say(ctx, about.Channel, callback.User.ID, say)
}
