package cli

import (
	"net/url"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/roster"
)

func newKeys(a *command.App) *command.Command {
	return command.Group("keys", "The keys of agents, operators and owners: issue, list, rotate, revoke",
		newKeysIssue(a), newKeysLs(a), newKeysRotate(a), newKeysRevoke(a))
}

func newKeysIssue(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "issue AGENT", Short: "Issue a further key for an agent and print it, this once",
		Args: command.Exactly(1, agentArgument),
	})
	workspace := workspaceFlag(c)
	kind := c.Flags().String("kind", string(roster.SignalKey),
		"the form of the key: "+strings.Join(roster.AgentKeyKinds, ", "))
	limit := c.Flags().Int64("rate-limit", 0,
		"how much may be asked for with it a minute, within what the agent may; 0 is no limit of its own")
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.IssueKey{Agent: args[0], Workspace: *workspace, Kind: *kind, RateLimit: *limit}
		return issue(c, a, api.Post("/ops/keys", in), "")
	}
	return c
}

// issue makes a key with the call and prints it.
func issue(c *command.Command, a *command.App, r api.Request, after string) error {
	return command.Ask(c.Context(), a, r, func(w output.Printer, k roster.IssuedKey) {
		w.Print("%s\nThis is key %s of %s. It is shown this once.%s",
			k.Secret, k.Key.ID, holder(k.Key), after)
	})
}

func holder(k roster.Key) string {
	switch {
	case k.Operator != "":
		return "operator " + k.Operator
	case k.Owner != "":
		return "owner " + k.Workspace + "/" + k.Owner
	}
	return k.Workspace + "/" + k.Agent
}

func newKeysLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "ls [AGENT]", Short: "List keys, without their secrets",
		Args: command.AtMost(1, "the name of one agent, or nothing"),
	})
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		cl, err := a.Client()
		if err != nil {
			return err
		}
		q := url.Values{"limit": {"1000"}, "workspace": {*workspace}}
		if len(args) == 1 {
			q.Set("agent", args[0])
		}
		all := roster.KeyPage{Keys: []roster.Key{}}
		err = api.Pages(c.Context(), cl, "/ops/keys", q, func(page roster.KeyPage) string {
			all.Keys = append(all.Keys, page.Keys...)
			return page.Next
		})
		if err != nil {
			return err
		}
		return a.Show(all, func(w output.Printer) {
			rows := output.Rows(all.Keys, func(k roster.Key) []string {
				return []string{k.ID, holder(k), string(k.Kind), k.Hint, keyState(k), keyLimit(k), output.Since(k.IssuedAt)}
			})
			w.Table("There are no keys.", []string{"ID", "HOLDER", "KIND", "KEY", "STATE", "LIMIT", "ISSUED"}, rows)
		})
	}
	return c
}

func keyLimit(k roster.Key) string {
	if k.RateLimit == 0 {
		return "-"
	}
	return output.Thousands(k.RateLimit) + "/min"
}

func keyState(k roster.Key) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && time.Now().After(*k.ExpiresAt):
		return "expired"
	case k.ExpiresAt != nil:
		return "until " + k.ExpiresAt.Local().Format("Jan 2 15:04")
	}
	return "active"
}

const keyArgument = "the id of a key, from `signalbox keys ls`"

// keyPath is where the operators' API has a key.
func keyPath(id string) string { return "/ops/keys/" + url.PathEscape(id) }

func newKeysRotate(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "rotate KEY_ID", Short: "Replace a key; the old one works for 24 hours more",
		Args: command.Exactly(1, keyArgument),
	})
	c.RunE = func(c *command.Command, args []string) error {
		return issue(c, a, api.Post(keyPath(args[0])+"/rotate", nil), " The old key works for 24 hours more.")
	}
	return c
}

func newKeysRevoke(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "revoke KEY_ID", Short: "Refuse a key from now on", Args: command.Exactly(1, keyArgument),
	})
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Post(keyPath(args[0])+"/revoke", nil), func(w output.Printer, k roster.Key) {
			w.Print("Revoked %s of %s.", k.Hint, holder(k))
		})
	}
	return c
}
