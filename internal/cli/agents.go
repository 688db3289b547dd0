package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/harness"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// agentArgument completes the usage error "`signalbox agents show` takes …".
const agentArgument = "the name of the agent"

// newAgentsLs lists all agents, however many there are. It asks for the largest page
// that the server allows and reads on to the end, because the output is often piped into
// a program that would take a first page for the whole list.
func newAgentsLs(a *command.App) *command.Command {
	c := a.Listing("List the agents")
	workspace := onlyWorkspaceFlag(c)
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"limit": 1000, "workspace": *workspace}
		agents, err := command.Collect(c.Context(), a, "/ops/agents", q,
			func(page roster.AgentPage) ([]roster.Agent, string) { return page.Agents, page.Next })
		if err != nil {
			return err
		}
		return a.Show(roster.AgentPage{Agents: agents}, func(w output.Printer) {
			rows := output.Rows(agents, func(g roster.Agent) []string {
				return []string{
					g.Name, g.Workspace, g.Trust, agentState(g), output.Seen(g.Online, g.LastSeenAt),
					output.Since(g.AddedAt), labels(g.Labels),
				}
			})
			// An empty list has two meanings. A newcomer needs the command that adds an
			// agent; somebody who has narrowed the list to a workspace needs to see that
			// the workspace is empty.
			none := "There are no agents yet. Add one with `signalbox agents add NAME`."
			if *workspace != "" {
				none = "There are no agents in workspace " + *workspace + "."
			}
			w.Table(none, []string{"NAME", "WORKSPACE", "TRUST", "STATE", "SEEN", "ADDED", "LABELS"}, rows)
		})
	}
	return c
}

// agentState is the word for the state of an agent. An agent that was removed is not
// listed at all, so there are only two.
func agentState(g roster.Agent) string {
	if g.Suspended {
		return "suspended"
	}
	return "active"
}

// labels prints labels sorted by name. Maps have no order, and two calls with the same
// answer must print the same text.
func labels(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// newAgentsShow shows one agent. An agent is named by its name and its workspace: the
// same name may exist in every workspace.
func newAgentsShow(a *command.App) *command.Command {
	c := a.About("show NAME", "Show one agent", agentArgument)
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Get(api.AgentPath(args[0], *workspace)), printAgent)
	}
	return c
}

// ownerOf is the owner of an agent, for the list of those for whom it acts.
func ownerOf(g roster.Agent) []string {
	if g.Owner == "" {
		return nil
	}
	return []string{g.Owner}
}

// agentScopes is what an agent may do at the most.
func agentScopes(g roster.Agent) string {
	if g.Scopes == nil {
		return "*"
	}
	return scopesText(g.Scopes)
}

// printAgent prints an agent in two columns. Values that agents or their owners chose go
// through output.Printable, so that a name cannot move the cursor.
func printAgent(w output.Printer, g roster.Agent) {
	// Three cases: no limit of its own (the server's default applies), 0 (unlimited), a
	// number.
	limit := "default"
	if g.RateLimit != nil {
		limit = fmt.Sprintf("%d a minute", *g.RateLimit)
		if *g.RateLimit == 0 {
			limit = "none"
		}
	}
	for _, row := range [][2]string{
		{"name", g.Name},
		{"id", g.ID},
		{"workspace", g.Workspace},
		{"address", g.Address},
		{"owner", g.Owner},
		{"acts for", strings.Join(append(ownerOf(g), g.ActsFor...), ", ")},
		{"scopes", agentScopes(g)},
		{"client", g.OIDCClient},
		{"trust", g.Trust},
		{"state", agentState(g)},
		{"seen", output.Seen(g.Online, g.LastSeenAt)},
		{"limit", limit},
		{"added", g.AddedAt.Format("2006-01-02 15:04:05 MST") + " (" + output.Since(g.AddedAt) + ")"},
		{"labels", labels(g.Labels)},
	} {
		w.Print("%-10s %s", row[0], cmp.Or(row[1], "none"))
	}
	// Retired keys stay listed: others still verify with them what the agent signed
	// earlier.
	for _, k := range g.PublicKeys {
		until := ""
		if k.RetiredAt != nil {
			until = " (retired " + output.Since(*k.RetiredAt) + ")"
		}
		w.Print("%-10s %s%s", "public key", k.Fingerprint, until)
	}
}

// newAgentsSuspend is `suspend` or, with suspend false, `resume`. A suspended agent
// keeps its keys and may still call the server, but the policy is not asked: every call
// that needs a decision is blocked. Decisions that were taken before stay valid in the
// ledger.
func newAgentsSuspend(a *command.App, suspend bool) *command.Command {
	use, short, done := "suspend NAME", "Block an agent until it is resumed", "%s is suspended: its actions are blocked."
	if !suspend {
		use, short, done = "resume NAME", "Resume a suspended agent", "%s is resumed."
	}
	c := a.About(use, short, agentArgument)
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		r := api.Patch(api.AgentPath(args[0], *workspace), roster.AgentChange{Suspended: &suspend})
		return command.Ask(c.Context(), a, r, func(w output.Printer, g roster.Agent) { w.Print(done, g.Name) })
	}
	return c
}

// newAgentsRm removes an agent. Its keys stop working at once. Its entries stay: the
// ledger is append-only, and removing is itself an entry.
func newAgentsRm(a *command.App) *command.Command {
	c := &command.Command{
		Use: "rm NAME", Short: "Remove an agent and its keys; its entries stay in the ledger",
		Args: command.Exactly(1, agentArgument),
	}
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return remove(c, a, api.AgentPath(args[0], *workspace), "Removed "+args[0]+" and its keys.")
	}
	return c
}

// protocols maps the values of --protocol to the kind of key that the protocol takes.
// Every agent has one key of each kind from the start; the flag only selects which one
// is printed, for scripts that need exactly one.
var protocols = map[string]roster.KeyKind{
	"signal": roster.SignalKey, "proxy": roster.SignalKey, "task": roster.SignalKey,
	"harness": roster.SignalKey, "run": roster.SignalKey, "mail": roster.MailKey,
}

// newAgentsAdd adds an agent. The answer holds the only copy of its keys: the server
// stores hashes. If the output is lost, `keys issue` makes another key.
func newAgentsAdd(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "add NAME", Short: "Add an agent and print its keys, which are shown only once",
		Example: "  signalbox agents add billing-agent --label team=finance", Args: command.Exactly(1, agentArgument),
	})
	workspace := workspaceFlag(c)
	owner := c.Flags().String("owner", "", "the user whose it is, of the same workspace")
	actsFor := actsForFlag(c)
	scopes := agentScopesFlag(c)
	trust := c.Flags().String("trust", "",
		"how far it is trusted: "+strings.Join(roster.TrustLevels, ", ")+" (default standard)")
	label := c.Flags().StringArray("label", nil, "a label, as name=value; may be given more than once")
	publicKey := publicKeyFlag(c)
	protocol := c.Flags().String("protocol", "",
		"print only the key for this protocol: signal, proxy, task, harness, run, mail")
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.NewAgent{Name: args[0], Workspace: *workspace, Owner: *owner, Trust: *trust, ActsFor: *actsFor}
		if c.Flags().Changed("scopes") {
			in.Scopes = scopes
		}
		var err error
		if in.Labels, err = readLabels(*label); err != nil {
			return err
		}
		if in.PublicKey, err = readPublicKey(*publicKey); err != nil {
			return err
		}
		// A wrong protocol has to be found before the call. Afterwards the agent would
		// exist, and its keys would never have been printed.
		kind, known := protocols[*protocol]
		if *protocol != "" && !known {
			return command.Usage(
				"%q is not a protocol. %s", *protocol, fault.DidYouMean(*protocol, slices.Sorted(maps.Keys(protocols))))
		}
		var added roster.AddedAgent
		if err := a.Call(c.Context(), api.Post("/ops/agents", in), &added); err != nil {
			return err
		}
		if known {
			added.Keys = map[roster.KeyKind]string{kind: added.Keys[kind]}
		}
		return a.Show(added, func(w output.Printer) {
			w.Print("Added %s to workspace %s. Its keys are shown only once:",
				added.Agent.Name, added.Agent.Workspace)
			for _, k := range slices.Sorted(maps.Keys(added.Keys)) {
				w.Print("  %-7s %s", k, added.Keys[k])
			}
		})
	}
	return c
}

// newAgentsSet changes an agent. A flag that is not given must not reach the server, not
// even as an empty value: "" is a value for some fields. So every field depends on
// Changed, not on what the flag holds.
func newAgentsSet(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "set NAME", Short: "Change an agent; settings without a flag stay as they are",
		Example: "  signalbox agents set billing-agent --trust trusted --rate-limit 120",
		Args:    command.Exactly(1, agentArgument),
	})
	workspace := workspaceFlag(c)
	trust := c.Flags().String("trust", "", "how far it is trusted: "+strings.Join(roster.TrustLevels, ", "))
	label := c.Flags().StringArray("label", nil, "a label, as name=value; the labels given replace all existing ones")
	limit := c.Flags().String("rate-limit", "",
		"calls per minute; 0 for no limit, default for the limit of the server")
	actsFor := actsForFlag(c)
	scopes := agentScopesFlag(c)
	publicKey := publicKeyFlag(c)
	client := c.Flags().String("oidc-client", "", "its client id at an issuer of users.oidc, by which tokens name it")
	c.RunE = func(c *command.Command, args []string) error {
		var in roster.AgentChange
		if c.Flags().Changed("trust") {
			in.Trust = trust
		}
		if c.Flags().Changed("label") {
			read, err := readLabels(*label)
			if err != nil {
				return err
			}
			in.Labels = &read
		}
		if c.Flags().Changed("rate-limit") {
			var err error
			if in.RateLimit, err = readRateLimit(*limit); err != nil {
				return err
			}
		}
		if c.Flags().Changed("public-key") {
			text, err := readPublicKey(*publicKey)
			if err != nil {
				return err
			}
			in.PublicKey = &text
		}
		if c.Flags().Changed("acts-for") {
			in.ActsFor = actsFor
		}
		if c.Flags().Changed("scopes") {
			in.Scopes = scopes
		}
		if c.Flags().Changed("oidc-client") {
			in.OIDCClient = client
		}
		// A call without any flag changes nothing, and is nearly always a mistyped
		// command.
		if in.ActsFor == nil && in.Scopes == nil && in.Trust == nil && in.Labels == nil && in.RateLimit == nil &&
			in.PublicKey == nil && in.OIDCClient == nil {
			return command.Usage(
				"Name something to change, for example `signalbox agents set %s --trust trusted`. "+
					"`signalbox agents set --help` lists what can be changed.", args[0])
		}
		return command.Ask(c.Context(), a, api.Patch(api.AgentPath(args[0], *workspace), in), printAgent)
	}
	return c
}

// readRateLimit turns the flag into the JSON of the field, which is a number, or the
// word "default" to drop the agent's own limit. The unit is calls per minute.
func readRateLimit(given string) (wire.Raw, error) {
	if given == "default" {
		return wire.Raw(`"default"`), nil
	}
	n, err := strconv.ParseUint(given, 10, 32)
	if err != nil {
		return nil, command.Usage(
			"--rate-limit should be a whole number such as 120, 0 for no limit, or default, and is %q.", given)
	}
	return wire.Raw(strconv.FormatUint(n, 10)), nil
}

// readLabels splits name=value at the first equals sign, so that a value may contain
// one. The server checks names and lengths. It never returns nil: an empty map clears
// all labels.
func readLabels(given []string) (map[string]string, error) {
	out := map[string]string{}
	for _, l := range given {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return nil, command.Usage("--label should be name=value, such as --label team=finance, and is %q.", l)
		}
		out[k] = v
	}
	return out, nil
}

// actsForFlag says for whom an agent may act beside its owner.
func actsForFlag(c *command.Command) *[]string {
	return c.Flags().StringSlice("acts-for", nil,
		"further users for whom it may act, with commas between; anybody for all of the workspace, oidc for "+
			"whoever has a token, owner for none")
}

// agentScopesFlag says what an agent may do at the most.
func agentScopesFlag(c *command.Command) *[]string {
	return c.Flags().StringSlice("scopes", nil, "what it may do at the most, such as email.send,tools.*; * is everything")
}

// publicKeyFlag takes a file, not the key itself: arguments of a process are visible to
// every user of the machine, and people paste the private key by mistake.
func publicKeyFlag(c *command.Command) *string {
	return c.Flags().String("public-key", "", "a file with its Ed25519 public key, which verifies its signatures")
}

// readPublicKey reads and checks the key in a file; the path "" means no key. The check
// is done here, before anything is sent, because a file may hold the private key by
// mistake. A private key must not leave the machine, not even to be refused.
func readPublicKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidRequest,
			"Cannot read the public key in %s. Check that the file exists and that you may read it.", path)
	}
	_, err = roster.ParsePublicKey(string(text))
	return string(text), err
}

// newSessionsLs lists one page of sessions, by when they began.
func newSessionsLs(a *command.App) *command.Command {
	c := a.Listing("List sessions, the newest first")
	workspace := onlyWorkspaceFlag(c)
	limit := c.Flags().Int("limit", 50, "how many at most")
	user := c.Flags().String("user", "",
		"only sessions in which something was done on behalf of this user: a name, an id or an e-mail")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"limit": *limit, "workspace": *workspace, "user": *user}
		return command.Ask(c.Context(), a, api.Find("/ops/sessions", q),
			func(w output.Printer, page harness.SessionPage) {
				rows := output.Rows(page.Sessions, func(s harness.Session) []string {
					return []string{
						s.ID, s.Agent, sessionState(s), output.Since(s.OpenedAt), output.Since(s.LastAt), fmt.Sprint(s.Errors),
					}
				})
				none := "There are no sessions. `signalbox hook install claude-code` supervises Claude Code."
				if *user != "" {
					none = "In no session was anything done on behalf of " + *user + "."
				}
				w.Table(none,
					[]string{"ID", "AGENT", "STATE", "BEGAN", "LAST STEP", "ERRORS"}, rows)
			})
	}
	return c
}

// sessionState tells three states apart: a session that ended, one that is open, and an open one
// whose heartbeats stopped.
func sessionState(s harness.Session) string {
	switch {
	case s.EndedAt != nil:
		return "ended"
	case s.Heartbeat != nil && s.Heartbeat.Missed:
		return "silent"
	}
	return "open"
}

// newSessionsShow shows the steps of one session. A session's id is chosen by its agent
// and may exist in several workspaces, hence the flag.
func newSessionsShow(a *command.App) *command.Command {
	c := a.About("show SESSION_ID", "Show a session with its steps, the newest first",
		"the id of a session, from `signalbox sessions ls`")
	workspace := onlyWorkspaceFlag(c)
	limit := c.Flags().Int("limit", 50, "how many steps at most")
	c.RunE = func(c *command.Command, args []string) error {
		q := api.Query{"limit": *limit, "workspace": *workspace}
		return command.Ask(c.Context(), a, api.Find(api.Path("/ops/sessions/{}", args[0]), q), printSession)
	}
	return c
}

// printSession prints the timeline. A step is a line: number of its entry, time, type,
// decision, and the reason or else the rule that decided.
func printSession(w output.Printer, s harness.Session) {
	w.Field("session", s.ID)
	w.Field("agent", s.Workspace+"/"+s.Agent)
	w.Field("state", sessionState(s))
	w.Field("began", output.Moment(s.OpenedAt))
	w.Field("errors", fmt.Sprint(s.Errors))
	for _, m := range s.Timeline {
		var answer struct {
			Decision string `json:"decision"`
			Reason   string `json:"reason"`
		}
		_ = wire.UnmarshalPart(m.Answer, &answer) // a moment without an answer has no decision to show
		w.Line(fmt.Sprintf("%8d  %s  %-18s %-9s %s", m.Seq, output.Moment(m.At),
			cmp.Or(string(m.Type), m.Kind), answer.Decision, cmp.Or(answer.Reason, m.Rule)))
	}
	if s.Next != "" {
		w.Print("There are more steps; --limit shows up to 1,000.")
	}
}
