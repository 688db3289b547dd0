package slack

import (
	"context"

	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

// reasonID names our modal, and the one field in it.
const reasonID = "signalbox_reason"

// maxReason is how many characters a reason may have. A note has at most 4,000 bytes.
const maxReason = 1000

// pendingReason is what a modal remembers of the press that opened it. Slack hands it back as it
// is; the button in it carries its own proof.
type pendingReason struct {
	Button  string `json:"button"`
	User    string `json:"user"`
	Channel string `json:"channel"` // where they are told what came of it
}

// openReasonForm opens a modal that asks for the reason of a rejection. What is submitted there is
// the vote, and not the press. It returns what whoever pressed is told, "" for nothing.
func (a *App) openReasonForm(ctx context.Context, callback *interaction, p notify.Press, n *notify.Notifier) string {
	if refusal := n.Refusal(ctx, p); refusal != "" {
		return refusal
	}
	about, err := wire.Marshal(pendingReason{p.Data, p.Contact, callback.Channel.ID})
	if err != nil {
		return notAsked
	}
	asks := block{
		"type": "input", "block_id": reasonID, "label": plain("Reason, for the agent and the record"),
		"element": block{"type": "plain_text_input", "action_id": reasonID, "multiline": true, "max_length": maxReason},
	}
	_, err = a.api.document(ctx, a.Token, "views.open", map[string]any{"trigger_id": callback.TriggerID, "view": block{
		"type": "modal", "callback_id": reasonID, "private_metadata": string(about),
		"title": plain("Reject"), "submit": plain("Reject"), "close": plain("Cancel"), "blocks": []block{asks},
	}})
	if err != nil {
		a.Log.Warn("cannot open the reason form in Slack", "why", result(err, "").Text)
		return notAsked
	}
	return ""
}

// notAsked is what whoever pressed is told if the form could not be opened.
const notAsked = "Slack did not open the form for the reason, so nothing was decided. " +
	"Press Reject again, or open the gate."

// handleReason rejects with the reason from the form. Only the person for whom it was opened may
// submit it, and the vote counts once.
func (a *App) handleReason(ctx context.Context, callback *interaction, n *notify.Notifier) {
	view := &callback.View
	var about pendingReason
	if view.CallbackID != reasonID || wire.UnmarshalPart([]byte(view.PrivateMetadata), &about) != nil {
		return
	}
	p := notify.Press{Channel: Name, Contact: callback.User.ID, Data: about.Button}
	p.Note = view.State.Values[reasonID][reasonID].Value
	say := "This form was opened for somebody else. Nothing was changed."
	if about.User == p.Contact {
		say, _ = n.Press(ctx, p) // as for a press
	}
	a.sendPrivately(ctx, about.Channel, callback.User.ID, say)
}
