package web

import (
	"signalbox/internal/address"
	"signalbox/internal/roster"
)

// Action is one address that forms are sent to. An action changes something only by calling a
// service, so it is in the ledger, and the same rules hold as for the API.
type Action struct {
	Path string
	Role roster.Role // the least that may, an operator when empty
	// Choices are the values of the form's field "do", each with the least role that may choose
	// it, for a form with several buttons. Do gets the one that was chosen from Request.Choice.
	Choices map[string]roster.Role
	Do      func(w *Web, r *Request) (Result, error)
}

// Actions are all forms of the dashboard, each with the role that it takes.
func Actions() []Action {
	return []Action{
		// The inbox: open to viewers, because a gate's own rules say who may decide.
		{Path: address.Gate.Of("decide"), Role: roster.Viewer, Do: (*Web).decide},
		{Path: address.Inbox.Of("bulk"), Role: roster.Viewer, Do: (*Web).askBulk},
		{Path: address.Inbox.Of("bulk/do"), Role: roster.Viewer, Do: (*Web).doBulk},

		// Agents: what an operator does to agents and their keys.
		{Path: string(address.NewAgent), Do: (*Web).addAgent},
		{Path: address.Agent.Of("suspend"), Do: (*Web).suspendAgent},
		{Path: address.Agent.Of("resume"), Do: (*Web).resumeAgent},
		{Path: address.Agent.Of("change"), Do: (*Web).changeAgent},
		{Path: address.Agent.Of("keys"), Do: (*Web).issueKey},
		{Path: address.Agent.Of("keys/{key}/rotate"), Do: (*Web).rotateKey},
		{Path: address.Agent.Of("keys/{key}/revoke"), Do: (*Web).revokeKey},

		// Accounts: open to every role, apart from delegating, which takes a vote to give away.
		{Path: "/ui/logout", Role: roster.Viewer, Do: (*Web).signOut},
		{Path: address.Account.Of("password"), Role: roster.Viewer, Do: (*Web).changePassword},
		{Path: address.Account.Of("passkey"), Role: roster.Viewer, Do: (*Web).changePasskeys},
		{Path: address.Account.Of("delegate"), Do: (*Web).delegate},
		{Path: address.Account.Of("undelegate"), Do: (*Web).undelegate},

		// Mail: open to viewers, because the gate's own rules say who may decide.
		{Path: address.Message.Of("quarantine"), Role: roster.Viewer, Do: (*Web).releaseMail},

		// Work: what an operator stops, instructs, or sends again.
		{Path: address.Task.Of("instruct"), Do: (*Web).instruct},
		{Path: address.Run.Of("cancel"), Do: (*Web).cancelRun},
		{Path: address.Handoff.Of("end"), Do: (*Web).endHandoff},
		{Path: address.Delivery.Of("resend"), Do: (*Web).resend},
		{Path: address.Alarms.Of("close"), Do: (*Web).closeAlarm},

		// The policy: one form with four buttons, each with the role that it takes.
		{
			Path: string(address.Policy), Role: roster.Viewer, Do: (*Web).tryPolicy,
			Choices: map[string]roster.Role{
				"check": roster.Viewer, "replay": roster.Operator, "trial": roster.Operator, "apply": roster.Admin,
			},
		},

		// Settings and prices are for admins.
		{Path: address.Settings.Of("channels/test"), Role: roster.Admin, Do: (*Web).testChannel},
		{Path: address.Settings.Of("operators/add"), Role: roster.Admin, Do: (*Web).addOperator},
		{Path: address.Settings.Of("operators/{name}/token"), Role: roster.Admin, Do: (*Web).newToken},
		{Path: address.Settings.Of("operators/{name}/remove"), Role: roster.Admin, Do: (*Web).removeOperator},
		{Path: address.Prices.Of("set"), Role: roster.Admin, Do: (*Web).setPrice},
		{Path: address.Prices.Of("remove"), Role: roster.Admin, Do: (*Web).removePrice},

		// The terminal: the person's answers.
		{
			Path: string(address.Terminal), Role: roster.Viewer, Do: (*Web).answerTerminal,
			Choices: map[string]roster.Role{"confirm": roster.Viewer, "refuse": roster.Viewer},
		},
	}
}
