package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/wire"
)

// newGatesLs prints one page, in the order of the inbox. Pending gates nearly always fit on it,
// and the output says if they do not. Decided ones do not fit; use --status with a filter.
func newGatesLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "ls", Short: "List the pending gates, the highest risk first", Args: command.NoArguments(),
	})
	status := c.Flags().String("status", string(gate.Pending), "pending, approved, rejected, or all")
	project := c.Flags().String("project", "", "only gates of this project")
	agent := c.Flags().String("agent", "", "only gates of this agent: its name or its id")
	limit := c.Flags().Int("limit", 100, "how many at most")
	c.RunE = func(c *command.Command, _ []string) error {
		q := url.Values{
			"limit": {fmt.Sprint(*limit)}, "project": {*project}, "agent": {*agent},
			// The API has no word for "all": without a status it lists every gate.
			"status": {strings.TrimPrefix(*status, "all")},
		}
		return command.Ask(c.Context(), a, api.Get("/ops/gates?"+q.Encode()), func(w output.Printer, page gate.GatePage) {
			rows := output.Rows(page.Gates, func(g gate.Gate) []string {
				return []string{g.ID, g.Risk, g.Agent, string(g.Status), output.Since(g.OpenedAt), g.Title}
			})
			w.Table("Nothing waits for a decision.", []string{"ID", "RISK", "AGENT", "STATUS", "OPENED", "TITLE"}, rows)
			if page.Next != "" {
				w.Print("There are more gates; --limit shows up to %d.", wire.MaxPage)
			}
		})
	}
	return c
}

// newGatesShow prints everything that the decision will be based on. It prints no part
// of it shortened: an approval is given to the digest of all of it.
func newGatesShow(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "show GATE_ID", Short: "Show a gate with everything that the decision is about",
		Args: command.Exactly(1, "the id of a gate, from `signalbox gates ls`"),
	})
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Get(api.GatePath(args[0])), printGate)
	}
	return c
}

// printGate prints a gate. Title, summary, facts and artifacts are an agent's words;
// Field replaces control characters in them.
func printGate(w output.Printer, g gate.Gate) {
	line := func(name, value string) { w.Field(name, value) }
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
	if run := g.Origin.Run; run != "" {
		line("run", run+" (signalbox runs show "+run+")")
	}
	// Not part of what is approved; Field keeps lines in their column, where no other name stands.
	for _, part := range g.Context {
		line("led to it", part.Name+": "+part.Value)
	}
	line("opened", g.OpenedAt.Local().Format(time.DateTime)+" ("+output.Since(g.OpenedAt)+")")
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
		// A vote that was cast by a delegate counts as the vote of the operator who
		// delegated.
		if v.CastBy != v.Operator {
			by += " (by " + v.CastBy + ")"
		}
		line("vote", strings.TrimSpace(by+" "+say+" "+v.Note))
		line("with", string(v.Modified))
	}
	if g.ResolvedAt != nil {
		line(g.Word(), g.ResolvedAt.Local().Format(time.DateTime)+" by "+g.ResolvedBy)
		line("note", g.Note)
	}
	for _, r := range g.Receipts {
		became := "failed"
		if r.Succeeded {
			became = "succeeded"
		}
		line("receipt", strings.TrimSpace(became+" "+r.Summary))
	}
	// The action digest names exactly what the agent may do; it is the same in the ledger and in the
	// receipt. The digest names all of the above, and a vote carries it.
	line("action digest", g.ActionDigest)
	line("digest", g.Digest)
}

// printShort prints what a gate is about, for who decides without having looked.
func printShort(w output.Printer, g gate.Gate) {
	w.Field("title", g.Title)
	w.Field("agent", g.Workspace+"/"+g.Agent)
	w.Field("risk", g.Risk)
	w.Field("proposes", g.ProposedAction)
	for _, v := range g.Votes {
		w.Field("with", string(v.Modified))
	}
}

// newGatesDecide is `approve` or `reject`. Both take several gates, because one cause
// often opens many. They are decided one by one, each in a transaction of its own.
func newGatesDecide(a *command.App, approve bool) *command.Command {
	verb, short := api.Approve, "Approve gates"
	if !approve {
		verb, short = api.Reject, "Reject gates; the note reaches the agent"
	}
	c := a.WithJSON(&command.Command{
		Use: verb + " GATE_ID...", Short: short, Args: command.AtLeast(1, "the ids of gates, from `signalbox gates ls`"),
		Example: "  signalbox gates " + verb + " gate_01… gate_02… --note 'The same for both'",
	})
	note := c.Flags().String("note", "", "why; the agent reads it (also --reason)")
	// --reason is accepted because the protocols call the note a reason.
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "reason", "note"))
	})
	modified := c.Flags().String("modified", "", "JSON of what to do instead, where the protocol allows it")
	behalf := c.Flags().String("for", "", "the operator who delegated to you, and whose vote this is")
	digest := c.Flags().String("digest", "", "what you saw: the digest that `gates show` printed; of one gate")
	c.RunE = func(c *command.Command, args []string) error {
		d := gate.Decision{Note: *note, For: *behalf, Digest: *digest}
		if !approve && strings.TrimSpace(d.Note) == "" {
			return command.Usage("Say why with --note: the agent reads the reason, and does better next time.")
		}
		if d.Digest != "" && len(args) > 1 {
			return command.Usage("--digest is that of one gate, and these are %d.", len(args))
		}
		if *modified != "" {
			// The server checks whether the protocol allows changes. Here it is only
			// checked that the shell's quoting left JSON behind.
			if d.Modified = wire.Raw(*modified); !d.Modified.IsValid() {
				return command.Usage("--modified should be JSON, such as '{\"amount\": 10}'.")
			}
		}
		return decide(c.Context(), a, args, verb, d)
	}
	return c
}

// decide votes at each of the gates. A gate that cannot be decided (it expired, or
// somebody else was faster) does not stop the others. Every error is printed; the last
// one is returned, so that Main prints it and the exit code tells of it.
func decide(ctx context.Context, a *command.App, ids []string, verb string, d gate.Decision) (failed error) {
	for _, id := range ids {
		g, err := vote(ctx, a, id, verb, d)
		if err == nil {
			err = a.Show(g, func(w output.Printer) {
				if g.Status == gate.Pending {
					w.Print("Your vote at %s counts; %d of %d approvals so far.", g.ID, gate.People(g.Votes, true), g.Quorum)
					return
				}
				w.Print("%s is %s.", g.ID, g.Status)
			})
		}
		if err != nil && failed != nil { // the last is said as any other error
			a.Err.Print("%s", fault.From(failed).Message)
		}
		if err != nil {
			failed = err
		}
	}
	return failed
}

// vote reads a gate, prints it in short, and votes on what it printed. With --json the answer has all
// of the gate.
func vote(ctx context.Context, a *command.App, id, verb string, d gate.Decision) (g gate.Gate, err error) {
	if err := a.Call(ctx, api.Get(api.GatePath(id)), &g); err != nil {
		return g, err
	}
	d.Digest = cmp.Or(d.Digest, g.Digest)
	if !a.JSON && g.Status == gate.Pending {
		printShort(a.Out, g)
	}
	return g, a.Call(ctx, api.Decide(id, verb, d), &g)
}
