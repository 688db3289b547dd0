package cli

import (
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/ledger"
	"signalbox/internal/proxy/vault"
	"signalbox/internal/rekey"
	"signalbox/internal/roster"
	"signalbox/internal/server"
)

// keyPath is the path of a key in the API.
func keyPath(id string) string { return api.Path("/ops/keys/{}", id) }

// newKeysIssue adds a key beside those that the agent has. Several processes of one
// agent can each have their own, which can be revoked alone. The agent's own limit
// applies to all its keys together; --rate-limit can only lower it for this key.
func newKeysIssue(a *command.App) *command.Command {
	c := a.About("issue AGENT", "Issue another key for an agent; it is shown only once", agentArgument)
	workspace := workspaceFlag(c)
	kind := c.Flags().String("kind", string(roster.SignalKey),
		"the kind of key: "+strings.Join(roster.AgentKeyKinds, ", "))
	limit := c.Flags().Int64("rate-limit", 0,
		"calls per minute with this key, within the limit of the agent; 0 for no limit of its own")
	c.RunE = func(c *command.Command, args []string) error {
		in := roster.IssueKey{Agent: args[0], Workspace: *workspace, Kind: *kind, RateLimit: *limit}
		return issue(c, a, api.Post("/ops/keys", in), "")
	}
	return c
}

// issue sends a request that issues a key, and prints the secret. The secret has the
// first line for itself, so that a script can take it with `head -1`.
func issue(c *command.Command, a *command.App, r api.Request, after string) error {
	return command.Ask(c.Context(), a, r, func(w output.Printer, k roster.IssuedKey) {
		w.Print("%s\nThis is key %s of %s. It is shown only once.%s",
			k.Secret, k.Key.ID, holder(k.Key), after)
	})
}

// holder names who a key belongs to. Operators belong to no workspace, or to one that is
// not part of their name; agents and owners are named with theirs.
func holder(k roster.Key) string {
	switch {
	case k.Operator != "":
		return "operator " + k.Operator
	case k.Owner != "":
		return "owner " + k.Workspace + "/" + k.Owner
	}
	return k.Workspace + "/" + k.Agent
}

// newKeysLs lists all keys to the end, also revoked and expired ones: an audit asks for
// those.
func newKeysLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "ls [AGENT]", Short: "List keys, without their secrets",
		Args: command.AtMost(1, "the name of one agent, or nothing"),
	})
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		q := api.Query{"limit": 1000, "workspace": *workspace}
		if len(args) == 1 {
			q["agent"] = args[0]
		}
		keys, err := command.Collect(c.Context(), a, "/ops/keys", q,
			func(page roster.KeyPage) ([]roster.Key, string) { return page.Keys, page.Next })
		if err != nil {
			return err
		}
		return a.Show(roster.KeyPage{Keys: keys}, func(w output.Printer) {
			rows := output.Rows(keys, func(k roster.Key) []string {
				return []string{k.ID, holder(k), string(k.Kind), k.Hint, keyState(k), keyLimit(k), output.Since(k.IssuedAt)}
			})
			w.Table("There are no keys.", []string{"ID", "HOLDER", "KIND", "KEY", "STATE", "LIMIT", "ISSUED"}, rows)
		})
	}
	return c
}

// keyLimit is the limit of the key itself, in calls per minute. "-" means that only the
// agent's limit applies.
func keyLimit(k roster.Key) string {
	if k.RateLimit == 0 {
		return "-"
	}
	return output.Thousands(k.RateLimit) + "/min"
}

// keyState compares with this machine's clock. It is only a display: whether a key still
// works is decided by the server with its own clock.
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

// keyArgument says where to find an id. The secret is not accepted in its place: it
// would end up in the history of the shell.
const keyArgument = "the id of a key, from `signalbox keys ls`"

// newKeysRotate issues a successor. The old key works for roster.Grace longer, so that
// agents can be moved to the new one without a gap. Use `revoke` for a key that has
// leaked.
func newKeysRotate(a *command.App) *command.Command {
	c := a.About("rotate KEY_ID", "Replace a key; the old one works for 24 hours more", keyArgument)
	c.RunE = func(c *command.Command, args []string) error {
		return issue(c, a, api.Post(keyPath(args[0])+"/rotate", nil), " The old key works for 24 hours more.")
	}
	return c
}

// newKeysRevoke stops a key at once. That cannot be undone; a new key has to be issued.
func newKeysRevoke(a *command.App) *command.Command {
	c := a.About("revoke KEY_ID", "Refuse a key from now on", keyArgument)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Post(keyPath(args[0])+"/revoke", nil), func(w output.Printer, k roster.Key) {
			w.Print("Revoked %s of %s.", k.Hint, holder(k))
		})
	}
	return c
}

// newKeysRotateLedger has the ledger signed by a new key from now on.
func newKeysRotateLedger(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "rotate-ledger", Short: "Have the ledger signed by a new key; both keys sign that",
		Long: `Have the ledger signed by a new key from now on. An entry says so, and both keys have signed it:
who has the old key verifies an export with it as before, and is shown the new one.

The server has to run, and has to be the node that has ` + ledger.KeyFile + `. Other nodes verify by the
new key at once, and do not sign until ` + ledger.KeyFile + ` was copied to them and they were started again.`,
		Args: command.NoArguments(),
	})
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Post("/ops/ledger/rotate", nil), func(w output.Printer, s rekey.Succession) {
			w.Print("%s\nThis key signs from entry %s on. Give it to who verifies your ledger and to its witnesses, and make a backup "+
				"of %s.", s.New, output.Thousands(s.From), ledger.KeyFile)
		})
	}
	return c
}

// newKeysRotateVault encrypts the providers' keys anew.
func newKeysRotateVault(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "rotate-vault", Short: "Encrypt the providers' keys with a new " + server.VaultKeyFile,
		Long: `Encrypt the providers' keys with a new ` + server.VaultKeyFile + `, all of them in one transaction. Nobody has to set
a key again. The server has to run. Other nodes of the database need a copy of the file and a start.`,
		Args: command.NoArguments(),
	})
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Post("/ops/proxy/rotate", nil), func(w output.Printer, r vault.Rotation) {
			w.Print("Encrypted %s with the new key %s. Make a backup of %s.", output.Count(r.Keys, "key"), r.Fingerprint,
				server.VaultKeyFile)
		})
	}
	return c
}
