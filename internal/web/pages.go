package web

import (
	"signalbox/internal/address"
	"signalbox/internal/roster"
)

// Pages is the whole dashboard. Tests go through it: every page is loaded as every role, audited
// for accessibility, and filled with hostile texts.
func Pages() []Page {
	// The nouns that several pages follow.
	gates, mail, tasks := []string{"gate", "receipt"}, []string{"message", "delivery"}, []string{"task", "review"}
	agents, sessions := []string{"agent", "key", "signal", "step"}, []string{"session", "step"}
	runs, deliveries := []string{"run"}, []string{"delivery"}
	return []Page{
		// /ui/inbox/{gate} is a gate's address everywhere: in chats, in e-mails and in answers to agents.
		{Path: string(address.Inbox), Template: "inbox", Title: "Inbox", Live: gates, Load: (*Web).loadInbox},
		{Path: string(address.Gate), Template: "inbox", Title: "Gate", Live: gates, Load: (*Web).loadInbox},
		{
			Path: string(address.Overview), Template: "overview", Title: "Overview",
			Live: []string{"signal", "run", "agent", "step"}, Load: (*Web).loadOverview,
		},
		{Path: string(address.Agents), Template: "agents", Title: "Agents", Live: agents, Load: (*Web).loadAgents},
		{
			Path: string(address.NewAgent), Template: "agent_new", Title: "Register an agent",
			Role: roster.Operator, Load: (*Web).loadNewAgent,
		},
		{Path: string(address.Agent), Template: "agent", Title: "Agent", Live: agents, Load: (*Web).loadAgent},
		{Path: string(address.User), Template: "user", Title: "User", Live: ledgerNouns, Load: (*Web).loadUser},
		{Path: string(address.Account), Template: "account", Title: "Your account", Load: (*Web).loadAccount},
		{Path: string(address.Mail), Template: "mail", Title: "Mail", Live: mail, Load: (*Web).loadMail},
		{Path: string(address.Message), Template: "mail", Title: "Message", Live: mail, Load: (*Web).loadMail},
		{Path: string(address.Tasks), Template: "tasks", Title: "Tasks", Live: tasks, Load: (*Web).loadBoard},
		{Path: string(address.Task), Template: "task", Title: "Task", Live: tasks, Load: (*Web).loadTask},
		{Path: string(address.Sessions), Template: "sessions", Title: "Sessions", Live: sessions, Load: (*Web).loadSessions},
		{Path: string(address.Session), Template: "session", Title: "Session", Live: sessions, Load: (*Web).loadSession},
		{
			Path: string(address.Handoffs), Template: "handoffs", Title: "Handoffs", Live: []string{"handoff"},
			Load: (*Web).loadHandoffs,
		},
		{
			Path: string(address.Handoff), Template: "handoff", Title: "Handoff", Live: []string{"handoff", "step", "action"},
			Load: (*Web).loadHandoff,
		},
		{Path: string(address.Runs), Template: "runs", Title: "Runs", Live: runs, Load: (*Web).loadRuns},
		{Path: string(address.Run), Template: "run", Title: "Run", Live: runs, Load: (*Web).loadRun},
		{Path: string(address.Ledger), Template: "ledger", Title: "Ledger", Live: ledgerNouns, Load: (*Web).loadLedger},
		{Path: string(address.Entry), Template: "entry", Title: "Entry", Load: (*Web).loadEntry},
		{
			Path: string(address.Deliveries), Template: "deliveries", Title: "Deliveries", Live: deliveries,
			Load: (*Web).loadDeliveries,
		},
		{
			Path: string(address.Delivery), Template: "delivery", Title: "Delivery", Live: deliveries,
			Load: (*Web).loadDelivery,
		},
		{
			Path: string(address.Alarms), Template: "alarms", Title: "Alarms", Live: []string{"alarm"},
			Load: func(w *Web, r *Request) (any, error) { return w.Alarms.List(r.Context(), true) },
		},
		{
			Path: string(address.Policy), Template: "policy", Title: "Policy", Live: []string{"policy"},
			Load: (*Web).loadPolicy,
		},
		{Path: string(address.Version), Template: "version", Title: "Version", Load: (*Web).loadVersion},
		// The settings are shown; the configuration is changed in its file.
		{
			Path: string(address.Settings), Template: "settings", Title: "Settings",
			Live: []string{"operator"}, Load: (*Web).loadSettings,
		},
		{Path: string(address.Prices), Template: "prices", Title: "Prices", Live: []string{"prices"}, Load: (*Web).loadPrices},
		{Path: string(address.Terminal), Template: "terminal", Title: "A terminal asks", Load: (*Web).loadTerminal},
	}
}
