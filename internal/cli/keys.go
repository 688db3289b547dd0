package cli

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/roster"
)

func newKeys(a *app) *cobra.Command {
	return group("keys", "The keys of agents, operators and owners: issue, list, rotate, revoke",
		newKeysIssue(a), newKeysLs(a), newKeysRotate(a), newKeysRevoke(a))
}

func newKeysIssue(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "issue AGENT", Short: "Issue a further key for an agent and print it, this once", Args: exactly(1, "the name of the agent")})
	workspace := workspaceFlag(c)
	kind := c.Flags().String("kind", string(roster.SignalKey), "the form of the key: "+strings.Join(roster.AgentKeyKinds, ", "))
	limit := c.Flags().Int64("rate-limit", 0, "how much may be asked for with it a minute, within what the agent may; 0 is no limit of its own")
	c.RunE = func(c *cobra.Command, args []string) error {
		in := roster.IssueKey{Agent: args[0], Workspace: *workspace, Kind: *kind, RateLimit: *limit}
		return a.printIssued(c, "/ops/keys", in, "")
	}
	return c
}

func (a *app) printIssued(c *cobra.Command, path string, in any, after string) error {
	var k roster.IssuedKey
	if err := a.call(c.Context(), "POST", path, in, &k); err != nil {
		return err
	}
	return a.show(k, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "%s\nThis is key %s of %s. It is shown this once.%s\n", k.Secret, k.Key.ID, holder(k.Key), after)
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

func newKeysLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls [AGENT]", Short: "List keys, without their secrets", Args: atMost(1, "the name of one agent, or nothing")})
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := a.client()
		if err != nil {
			return err
		}
		q := url.Values{"limit": {"1000"}, "workspace": {*workspace}}
		if len(args) == 1 {
			q.Set("agent", args[0])
		}
		all := roster.KeyPage{Keys: []roster.Key{}}
		for {
			var page roster.KeyPage
			if err := cl.call(c.Context(), "GET", "/ops/keys?"+q.Encode(), nil, &page); err != nil {
				return err
			}
			all.Keys = append(all.Keys, page.Keys...)
			if page.Next == "" {
				break
			}
			q.Set("cursor", page.Next)
		}
		return a.show(all, func(w io.Writer) {
			var rows [][]string
			for _, k := range all.Keys {
				rows = append(rows, []string{k.ID, holder(k), string(k.Kind), k.Hint, keyState(k), keyLimit(k), since(k.IssuedAt)})
			}
			table(w, "There are no keys.", []string{"ID", "HOLDER", "KIND", "KEY", "STATE", "LIMIT", "ISSUED"}, rows)
		})
	}
	return c
}

func keyLimit(k roster.Key) string {
	if k.RateLimit == 0 {
		return "-"
	}
	return thousands(k.RateLimit) + "/min"
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

func newKeysRotate(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "rotate KEY_ID", Short: "Replace a key; the old one works for 24 hours more", Args: exactly(1, "the id of a key, from `signalbox keys ls`")})
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.printIssued(c, "/ops/keys/"+url.PathEscape(args[0])+"/rotate", nil, " The old key works for 24 hours more.")
	}
	return c
}

func newKeysRevoke(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "revoke KEY_ID", Short: "Refuse a key from now on", Args: exactly(1, "the id of a key, from `signalbox keys ls`")})
	c.RunE = func(c *cobra.Command, args []string) error {
		var k roster.Key
		if err := a.call(c.Context(), "POST", "/ops/keys/"+url.PathEscape(args[0])+"/revoke", nil, &k); err != nil {
			return err
		}
		return a.show(k, func(w io.Writer) { _, _ = fmt.Fprintf(w, "Revoked %s of %s.\n", k.Hint, holder(k)) })
	}
	return c
}
