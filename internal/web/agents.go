package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// agentsPage is the roster: one page of it, or the agents that a search found. Workspaces says
// whether the list needs a column for them, More whether a search may have missed some.
type agentsPage struct {
	Agents     []roster.Agent
	Search     string
	Next       string
	Workspaces bool // there is more than one
	More       bool // there may be more that match
}

// agentRows is how many agents one page lists.
const agentRows = 100

// loadAgents lists agents. A search reads through them, because it looks at labels and addresses,
// which no index covers.
func (w *Web) loadAgents(r *Request) (any, error) {
	page := &agentsPage{Search: strings.TrimSpace(r.Query("q"))}
	workspaces, err := w.Roster.Workspaces(r.Context(), r.Who.Workspace)
	if err != nil {
		return nil, err
	}
	page.Workspaces = len(workspaces) > 1
	// A search has no pages: it shows the first matches and says whether there may be more.
	if page.Search != "" {
		more, err := w.eachAgent(r.Context(), r.Who.Workspace, func(a *roster.Agent) {
			switch {
			case !matchesAgent(a, strings.ToLower(page.Search)):
			case len(page.Agents) == agentRows:
				page.More = true
			default:
				page.Agents = append(page.Agents, *a)
			}
		})
		page.More = page.More || more
		return page, err
	}
	// The roster confines the list to the caller's scope, which is in the context.
	found, err := w.Roster.ListAgents(r.Context(), "", r.Query("cursor"), agentRows)
	page.Agents, page.Next = found.Agents, nextPage(r, found.Next)
	return page, err
}

// maxAgents is how many agents a search looks at. It reads them in pages, so memory stays small.
const maxAgents = 5 * wire.MaxPage

// eachAgent calls fn for each agent, up to maxAgents, and reports whether there are more.
func (w *Web) eachAgent(ctx context.Context, workspace string, fn func(*roster.Agent)) (more bool, err error) {
	after := [2]string{}
	for range maxAgents / wire.MaxPage {
		some, err := w.Roster.Agents(ctx, workspace, after, wire.MaxPage)
		if err != nil {
			return false, err
		}
		for i := range some {
			fn(&some[i])
		}
		if len(some) < wire.MaxPage {
			return false, nil
		}
		after = [2]string{some[len(some)-1].Workspace, some[len(some)-1].Name}
	}
	return true, nil
}

// matchesAgent reports whether the text occurs in anything that people know an agent by.
func matchesAgent(a *roster.Agent, text string) bool {
	all := []string{a.Name, a.Address, a.Owner, a.Trust, a.ID}
	// Labels can be searched as they are written: role=executor.
	for k, v := range a.Labels {
		all = append(all, k+"="+v)
	}
	return strings.Contains(strings.ToLower(strings.Join(all, "\n")), text)
}

// agentPage is one agent with what an operator looks after: its keys, the gates it opened, what it
// did last, its trust and labels, and programs to start from.
type agentPage struct {
	roster.Agent
	Keys     []keyRow
	Gates    []gate.Gate
	Actions  []ledger.Entry    // the newest first
	Handoffs []handoff.Handoff // that it has given or got
	Trusts   []string
	Text     string // the labels as lines
	Snippets []snippet
	// Today and Month are what was counted of it, and Models what that cost by model, in 30 days.
	Today, Month counter.Sum
	Models       []costBar
}

// PageTitle is the agent's name.
func (a *agentPage) PageTitle() string { return a.Name }

// keyRow is a key with its state in words.
type keyRow struct {
	roster.Key
	State string
}

// How much the page of an agent shows.
const (
	agentKeys    = 50
	agentGates   = 8
	agentActed   = 12
	agentEntries = 500 // how far back actions are looked for
)

// loadAgent reads an agent with its keys, gates and last actions. Actions are searched in the
// newest entries of the workspace only: the ledger has no index by actor.
func (w *Web) loadAgent(r *Request) (any, error) {
	found, err := w.agentOf(r)
	if err != nil {
		return nil, err
	}
	page := &agentPage{
		Agent: found, Trusts: roster.TrustLevels, Text: labelLines(found.Labels),
		Snippets: snippets(w.BaseURL, found.Name, ""),
	}
	keys, err := w.Roster.Keys(r.Context(), found.Workspace, found.ID, "", agentKeys)
	if err != nil {
		return nil, err
	}
	// The newest key first: that is the one in use.
	for _, k := range slices.Backward(keys) {
		page.Keys = append(page.Keys, keyRow{k, keyState(&k, w.Now())})
	}
	if page.Gates, _, err = w.Gates.List(r.Context(), gate.Filter{Workspace: found.Workspace, Agents: []string{found.ID}},
		nil, agentGates); err != nil {
		return nil, err
	}
	if page.Handoffs, err = w.handoffsOf(r.Context(), found.Workspace, found.ID, ""); err != nil {
		return nil, err
	}
	used, err := w.Counters.Ask(r.Context(), counter.Question{Workspace: found.Workspace, Agent: found.ID})
	if err != nil {
		return nil, err
	}
	page.Today, page.Month = used.Today(), used.Total
	page.Models = costBars(used.Models, func(name string) string { return cmp.Or(name, "no model named") })
	// What the agent did, and what was done to it.
	entries, err := w.ledger.Entries(r.Context(),
		ledger.Query{Workspace: found.Workspace, Newest: true, Limit: agentEntries})
	for _, e := range slices.Backward(entries) {
		if (e.Actor == "agent:"+found.Name || e.Subject == found.ID) && len(page.Actions) < agentActed {
			page.Actions = append(page.Actions, e)
		}
	}
	return page, err
}

// keyState is the state of a key in words. A rotated key works on until it expires.
func keyState(k *roster.Key, now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && now.After(*k.ExpiresAt):
		return "replaced"
	case k.ExpiresAt != nil:
		return "being replaced"
	}
	return "active"
}

// agentOf is the agent that the address names, if the caller may see it.
func (w *Web) agentOf(r *Request) (roster.Agent, error) {
	if !wire.InScope(r.Context(), r.PathValue("workspace")) {
		return roster.Agent{}, fault.New(fault.NotFound, "There is no agent %.80q.", r.PathValue("agent"))
	}
	return w.Roster.Agent(r.Context(), r.PathValue("workspace"), r.PathValue("agent"))
}

// newAgent is the form that registers an agent.
type newAgent struct {
	Workspaces []string
	Trusts     []string
}

// loadNewAgent reads what the form offers.
func (w *Web) loadNewAgent(r *Request) (any, error) {
	workspaces, err := w.Roster.Workspaces(r.Context(), r.Who.Workspace)
	return newAgent{workspaces, roster.TrustLevels}, err
}

// issued is what is shown once: an agent's keys, with what to do with them.
type issued struct {
	Agent    roster.Agent
	Keys     []roster.Issued
	Snippets []snippet
}

// addAgent registers an agent and shows its keys.
func (w *Web) addAgent(r *Request) (Result, error) {
	labels, err := readLabels(r.Field("labels"))
	if err != nil {
		return Result{}, err
	}
	a, keys, err := w.Roster.AddAgent(r.Context(), r.Who,
		roster.NewAgent{Name: r.Field("name"), Workspace: r.Field("workspace"), Trust: r.Field("trust"), Labels: labels})
	if err != nil {
		return Result{}, err
	}
	return w.showKeys(a, keys...), nil
}

// showKeys is the page that shows keys, this once. It is rendered in the answer to the form,
// because after a redirect the secrets would be gone.
func (w *Web) showKeys(a roster.Agent, keys ...roster.Issued) Result {
	secret := ""
	// The examples use the signal key. Any key of the agent would do.
	for _, k := range keys {
		if k.Key.Kind == roster.SignalKey {
			secret = k.Secret
		}
	}
	return Result{
		Template: "agent_keys", Title: "Keys of " + a.Name,
		Data: issued{a, keys, snippets(w.BaseURL, a.Name, secret)},
	}
}

// suspendAgent suspends an agent, for some hours or until somebody resumes it.
func (w *Web) suspendAgent(r *Request) (Result, error) {
	a, err := w.agentOf(r)
	if err != nil {
		return Result{}, err
	}
	var until time.Time
	// Anything else than these is "until somebody resumes it".
	if hours := map[string]int{"1": 1, "24": 24}[r.Field("hours")]; hours > 0 {
		until = w.Now().Add(time.Duration(hours) * time.Hour)
	}
	_, err = w.Roster.Suspend(r.Context(), r.Who, a.Workspace, a.ID, r.Field("reason"), until)
	return Result{To: agentAddress(a), Flash: a.Name + " is suspended. What it asks for is refused until it is resumed."},
		err
}

// resumeAgent ends a suspension.
func (w *Web) resumeAgent(r *Request) (Result, error) {
	a, err := w.agentOf(r)
	if err != nil {
		return Result{}, err
	}
	no := false
	_, err = w.Roster.ChangeAgent(r.Context(), r.Who, a.Workspace, a.ID, roster.AgentChange{Suspended: &no})
	return Result{To: agentAddress(a), Flash: a.Name + " goes on."}, err
}

// changeAgent sets trust and labels. The form shows all labels, so what is missing was removed.
func (w *Web) changeAgent(r *Request) (Result, error) {
	a, err := w.agentOf(r)
	if err != nil {
		return Result{}, err
	}
	labels, err := readLabels(r.Field("labels"))
	if err != nil {
		return Result{To: agentAddress(a)}, err
	}
	trust := r.Field("trust")
	_, err = w.Roster.ChangeAgent(r.Context(), r.Who, a.Workspace, a.ID,
		roster.AgentChange{Trust: &trust, Labels: &labels})
	return Result{To: agentAddress(a), Flash: "Saved."}, err
}

// issueKey issues a further key.
func (w *Web) issueKey(r *Request) (Result, error) {
	a, err := w.agentOf(r)
	if err != nil {
		return Result{}, err
	}
	k, err := w.Roster.IssueAgentKey(r.Context(), r.Who,
		roster.IssueKey{Agent: a.ID, Workspace: a.Workspace, Kind: r.Field("kind")})
	if err != nil {
		return Result{To: agentAddress(a)}, err
	}
	return w.showKeys(a, k), nil
}

// keyOf is the id of the key that the address names, if it is the agent's. Without that check an
// operator of one workspace could rotate a key of another.
func (w *Web) keyOf(r *Request) (roster.Agent, string, error) {
	a, err := w.agentOf(r)
	if err != nil {
		return a, "", err
	}
	keys, err := w.Roster.Keys(r.Context(), a.Workspace, a.ID, "", wire.MaxPage)
	if err != nil {
		return a, "", err
	}
	for _, k := range keys {
		if k.ID == r.PathValue("key") {
			return a, k.ID, nil
		}
	}
	return a, "", fault.New(fault.NotFound, "%s has no key %.80q.", a.Name, r.PathValue("key"))
}

// rotateKey replaces a key; the old one works on for its grace period.
func (w *Web) rotateKey(r *Request) (Result, error) {
	a, key, err := w.keyOf(r)
	if err != nil {
		return Result{}, err
	}
	k, err := w.Roster.RotateKey(r.Context(), r.Who, key)
	if err != nil {
		return Result{To: agentAddress(a)}, err
	}
	return w.showKeys(a, k), nil
}

// revokeKey revokes a key at once.
func (w *Web) revokeKey(r *Request) (Result, error) {
	a, key, err := w.keyOf(r)
	if err != nil {
		return Result{}, err
	}
	k, err := w.Roster.RevokeKey(r.Context(), r.Who, key)
	return Result{To: agentAddress(a), Flash: "The key " + k.Hint + " is refused from now on."}, err
}

// agentAddress is the page of an agent.
func agentAddress(a roster.Agent) string { return address.Agent.At(a.Workspace, a.ID) }

// labelLines are labels as people edit them: one a line, name=value.
func labelLines(labels map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		lines = append(lines, name+"="+labels[name])
	}
	return strings.Join(lines, "\n")
}

// readLabels reads what labelLines writes. A label without a value is an empty one, and allowed.
func readLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fault.New(fault.InvalidPayload, "A label should look like team=growth, one a line. %.60q has no =.",
				line).About("labels")
		}
		labels[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return labels, nil
}

// snippet is a program that asks for a decision, in one language.
type snippet struct{ Name, Text string }

// snippets are ready to be copied and run; a test runs each of them against a server. Without a
// key they read it from the environment, so that nobody pastes a key into a file by habit.
func snippets(base, agent, key string) []snippet {
	shown := cmp.Or(key, "$SIGNALBOX_KEY")
	body := fmt.Sprintf(`{"amp_version":"1.0","agent_id":%q,"run_id":"run-1","status":"completed",
    "summary":"Drafted the reply","proposed_action":"Send it to the customer","gate_required":true,
    "model":"claude-sonnet-4-6","input_tokens":1842,"output_tokens":614,"cost_usd":0.014736,
    "started_at":"2026-03-06T22:10:38Z","completed_at":"2026-03-06T22:10:46Z"}`, agent)
	// A key is only shown on the page that is shown once; everywhere else the code reads a variable.
	environment := func(language string) string {
		if key != "" {
			return fmt.Sprintf("%q", key)
		}
		return map[string]string{
			"py": `os.environ["SIGNALBOX_KEY"]`, "ts": "process.env.SIGNALBOX_KEY",
			"go": `os.Getenv("SIGNALBOX_KEY")`,
		}[language]
	}
	return []snippet{
		{"curl", fmt.Sprintf("curl -s %s/amp/signal \\\n  -H \"Authorization: Bearer %s\" -H \"Content-Type: "+
			"application/json\" \\\n  -H \"Prefer: wait=60\" -d '%s'", base, shown, body)},
		{"Python", fmt.Sprintf("import json, os, urllib.request\n\nsignal = json.loads(r'''%s''')\n"+
			"request = urllib.request.Request(\n    %q, json.dumps(signal).encode(),\n"+
			"    {\"Authorization\": \"Bearer \" + %s, \"Content-Type\": \"application/json\", \"Prefer\": \"wait=60\"})\n"+
			"print(json.load(urllib.request.urlopen(request))[\"status\"])  # approved, rejected or pending", body,
			base+"/amp/signal", environment("py"))},
		{"TypeScript", fmt.Sprintf("const signal = %s;\n\nconst answer = await fetch(%q, {\n  method: \"POST\",\n"+
			"  headers: { Authorization: `Bearer ${%s}`, \"Content-Type\": \"application/json\", Prefer: \"wait=60\" },\n"+
			"  body: JSON.stringify(signal),\n});\nconst { status } = await answer.json(); // approved, rejected or pending",
			body, base+"/amp/signal", environment("ts"))},
		{"Go", fmt.Sprintf("c, err := client.New(%q, %s, client.WithAgent(%q))\nif err != nil {\n\treturn err\n}\n"+
			"return c.Run(ctx, client.RunOptions{Summary: \"Write a reply\"}, func(ctx context.Context, run *client.Run) "+
			"error {\n\t// nil with an approval, and in no other case\n"+
			"\tif err := run.Approve(ctx, \"Send it to the customer\"); err != nil {\n"+
			"\t\treturn err\n\t}\n\treturn send(ctx)\n})", base, environment("go"), agent)},
	}
}
