package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/wire"
)

func newGates(a *app) *cobra.Command {
	return group("gates", "The decisions that people owe: list, show, approve, reject, watch",
		newGatesLs(a), newGatesShow(a), newGatesDecide(a, true), newGatesDecide(a, false), newGatesWatch(a))
}

func newGatesLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List the gates that wait, the highest risk first", Args: exactly(0, "no arguments")})
	status := c.Flags().String("status", string(gate.Pending), "pending, approved, rejected, or all")
	project := c.Flags().String("project", "", "only gates of this project")
	limit := c.Flags().Int("limit", 100, "how many at the most")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := url.Values{"limit": {fmt.Sprint(*limit)}, "project": {*project}, "status": {strings.TrimPrefix(*status, "all")}}
		var page gate.GatePage
		if err := a.call(c.Context(), "GET", "/ops/gates?"+q.Encode(), nil, &page); err != nil {
			return err
		}
		return a.show(page, func(w io.Writer) {
			var rows [][]string
			for _, g := range page.Gates {
				rows = append(rows, []string{g.ID, g.Risk, g.Agent, string(g.Status), since(g.OpenedAt), g.Title})
			}
			table(w, "Nothing waits for a decision.", []string{"ID", "RISK", "AGENT", "STATUS", "OPENED", "TITLE"}, rows)
			if page.Next != "" {
				_, _ = fmt.Fprintf(w, "There are more; --limit shows up to %d.\n", wire.MaxPage)
			}
		})
	}
	return c
}

func newGatesShow(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "show GATE_ID", Short: "Show a gate with everything there is to decide on", Args: exactly(1, "the id of a gate, from `signalbox gates ls`")})
	c.RunE = func(c *cobra.Command, args []string) error {
		var g gate.Gate
		if err := a.call(c.Context(), "GET", "/ops/gates/"+url.PathEscape(args[0]), nil, &g); err != nil {
			return err
		}
		return a.show(g, func(w io.Writer) { printGate(w, g) })
	}
	return c
}

func printGate(w io.Writer, g gate.Gate) {
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%-10s %s\n", name, strings.ReplaceAll(value, "\n", "\n           "))
		}
	}
	line("gate", g.ID)
	line("status", string(g.Status))
	line("title", g.Title)
	line("agent", g.Workspace+"/"+g.Agent)
	line("project", g.Project)
	line("risk", g.Risk)
	line("summary", g.Summary)
	line("proposes", g.ProposedAction)
	for _, f := range g.Facts {
		line(f.Name, f.Value)
	}
	line("rule", g.Rule)
	line("reason", g.Reason)
	for _, artifact := range g.Artifacts {
		line("artifact", string(artifact))
	}
	line("opened", g.OpenedAt.Local().Format(time.DateTime)+" ("+since(g.OpenedAt)+")")
	if g.ExpiresAt != nil && g.Status == gate.Pending {
		line("expires", g.ExpiresAt.Local().Format(time.DateTime)+", then "+string(g.OnExpiry))
	}
	line("asks for", fmt.Sprintf("%d of %s", g.Quorum, strings.Join(g.Approvers, ", ")))
	for _, v := range g.Votes {
		say := "rejected"
		if v.Approve {
			say = "approved"
		}
		by := v.Operator
		if v.CastBy != v.Operator {
			by += " (by " + v.CastBy + ")"
		}
		line("vote", strings.TrimSpace(by+" "+say+" "+v.Note))
	}
	if g.ResolvedAt != nil {
		line("resolved", g.ResolvedAt.Local().Format(time.DateTime)+" by "+g.ResolvedBy)
		line("note", g.Note)
	}
	for _, r := range g.Receipts {
		became := "failed"
		if r.Succeeded {
			became = "succeeded"
		}
		line("receipt", strings.TrimSpace(became+" "+r.Summary))
	}
	line("digest", g.ActionDigest)
}

func newGatesDecide(a *app, approve bool) *cobra.Command {
	verb, short := "approve", "Approve gates"
	if !approve {
		verb, short = "reject", "Reject gates; the note reaches the agent"
	}
	c := a.withJSON(&cobra.Command{
		Use: verb + " GATE_ID...", Short: short, Args: atLeast(1, "the ids of gates, from `signalbox gates ls`"),
		Example: "  signalbox gates " + verb + " gate_01… gate_02… --note 'The same for both'",
	})
	note := c.Flags().String("note", "", "why; the agent reads it (also --reason)")
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "reason", "note"))
	})
	modified := c.Flags().String("modified", "", "JSON of what to do instead, where the protocol allows it")
	behalf := c.Flags().String("for", "", "the operator who has delegated to you and whose vote this is")
	c.RunE = func(c *cobra.Command, args []string) error {
		d := gate.Decision{Note: *note, For: *behalf}
		if *modified != "" {
			if !json.Valid([]byte(*modified)) {
				return usage("--modified should be JSON, such as '{\"amount\": 10}'.")
			}
			d.Modified = wire.Raw(*modified)
		}
		return a.decide(c.Context(), args, verb, d)
	}
	return c
}

// decide votes at each of the gates. One that cannot be decided does not keep the others
// from it.
func (a *app) decide(ctx context.Context, ids []string, verb string, d gate.Decision) (failed error) {
	for _, id := range ids {
		var g gate.Gate
		err := a.call(ctx, "POST", "/ops/gates/"+url.PathEscape(id)+"/"+verb, d, &g)
		if err == nil {
			err = a.show(g, func(w io.Writer) {
				if g.Status == gate.Pending {
					_, _ = fmt.Fprintf(w, "Your vote at %s counts; %d of %d approvals so far.\n", g.ID, len(g.Votes), g.Quorum)
					return
				}
				_, _ = fmt.Fprintf(w, "%s is %s.\n", g.ID, g.Status)
			})
		}
		if err != nil && failed != nil { // the last is said as any other error
			_, _ = fmt.Fprintln(a.err, fault.From(failed).Message)
		}
		if err != nil {
			failed = err
		}
	}
	return failed
}
