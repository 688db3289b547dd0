package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
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
	c := a.Listing("List the pending gates, the highest risk first")
	status := c.Flags().String("status", string(gate.Pending), "pending, approved, rejected, or all")
	project := c.Flags().String("project", "", "only gates of this project")
	agent := c.Flags().String("agent", "", "only gates of this agent: its name or its id")
	user := c.Flags().String("user", "", "only gates on behalf of this user: a name, an id or an e-mail")
	limit := c.Flags().Int("limit", 100, "how many at most")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{
			"limit": *limit, "project": *project, "agent": *agent, "user": *user,
			// The API has no word for "all": without a status it lists every gate.
			"status": strings.TrimPrefix(*status, "all"),
		}
		return command.Ask(c.Context(), a, api.Find("/ops/gates", q), func(w output.Printer, page gate.GatePage) {
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
// of it shortened: an approval is given to the digest of all of it. What the gate itself does not show
// is named, and can be had with --artifact.
func newGatesShow(a *command.App) *command.Command {
	c := a.About("show GATE_ID", "Show a gate with everything that the decision is about",
		"the id of a gate, from `signalbox gates ls`")
	artifact := c.Flags().Int("artifact", 0, "only the artifact of this number, all of its bytes")
	out := c.Flags().String("out", "", "the file that gets the artifact")
	c.RunE = func(c *command.Command, args []string) error {
		if *artifact > 0 {
			return showArtifact(c.Context(), a, fmt.Sprintf("%s/artifacts/%d", api.GatePath(args[0]), *artifact), *out)
		}
		var g gate.Gate
		if err := a.Call(c.Context(), api.Get(api.GatePath(args[0])), &g); err != nil {
			return err
		}
		return a.Pages(c.Context(), g, func(w output.Printer) { printGate(w, g) })
	}
	return c
}

// showArtifact shows one artifact, of which the gate may show only the beginning. A file and a pipe get
// its bytes, a terminal gets them as text that is made visible.
func showArtifact(ctx context.Context, a *command.App, path, file string) error {
	if file != "" || !output.IsTerminal(a.Out) {
		return a.Download(ctx, api.Get(path), file, "sha256sum")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	res, err := client.Do(ctx, api.Get(path))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		return api.BrokeOff(err)
	}
	a.Out.Pages(ctx, func(w output.Printer) { w.Print("%s", output.Lines(string(content))) })
	return nil
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
	for i, raw := range g.Artifacts {
		a := gate.ReadArtifact(raw)
		line("artifact", strings.TrimSpace(fmt.Sprintf("%d (%s) %s", i+1, a.Type, a.Title)))
		line(" ", a.Lines())
	}
	for _, u := range g.Unshown {
		line("not shown", fmt.Sprintf("%s; with --artifact %d all of it is", u, u.Artifact))
	}
	if run := g.Origin.Run; run != "" {
		line("run", run+" (signalbox runs show "+run+")")
		if g.Prompt != "" {
			line("prompt", g.Prompt)
		}
	}
	// Not part of what is approved; Field keeps lines in their column, where no other name stands.
	for _, part := range g.Context {
		line("led to it", part.Name+": "+part.Value)
	}
	line("opened", output.Moment(g.OpenedAt)+" ("+output.Since(g.OpenedAt)+")")
	if g.ExpiresAt != nil && g.Status == gate.Pending {
		line("expires", output.Moment(*g.ExpiresAt)+", then "+string(g.OnExpiry))
	}
	line("asks for", fmt.Sprintf("%d of %s", g.Quorum, strings.Join(g.Approvers, ", ")))
	if g.Presence != "" && g.Status == gate.Pending {
		line("presence", "votes are signed with a "+g.Presence+", in a browser")
	}
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
		if v.Passkey != "" {
			say += ", signed with a passkey"
		}
		line("vote", strings.TrimSpace(by+" "+say+" "+v.Note))
		line("with", string(v.Modified))
	}
	if g.ResolvedAt != nil {
		line(g.Word(), output.Moment(*g.ResolvedAt)+" by "+g.ResolvedBy)
		line("note", g.Note)
		line("taken", g.UnusedNote())
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

// printShort prints what a gate is about, for a script that decides, or who has looked before.
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
	verb, short := api.Approve, "Approve gates; at a terminal each is shown first"
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
	var unseen int64
	yes := !approve
	if approve {
		c.Flags().Int64Var(&unseen, "unseen", 0, "approve although the gate does not show so many bytes; of one gate")
		c.Flags().BoolVar(&yes, "yes", false, "do not show it and do not ask")
	}
	c.RunE = func(c *command.Command, args []string) error {
		d := gate.Decision{Note: *note, For: *behalf, Digest: *digest, Unseen: unseen}
		if !approve && strings.TrimSpace(d.Note) == "" {
			return command.Usage("Say why with --note: the agent reads the reason, and does better next time.")
		}
		if (d.Digest != "" || d.Unseen != 0) && len(args) > 1 {
			return command.Usage("--digest and --unseen are those of one gate, and these are %d.", len(args))
		}
		if *modified != "" {
			// The server checks whether the protocol allows changes. Here it is only
			// checked that the shell's quoting left JSON behind.
			if d.Modified = wire.Raw(*modified); !d.Modified.IsValid() {
				return command.Usage("--modified should be JSON, such as '{\"amount\": 10}'.")
			}
		}
		v := voter{a, verb, nil}
		if !yes && d.Digest == "" && !a.JSON && output.IsTerminal(a.In) && output.IsTerminal(a.Out) {
			v.answers = bufio.NewReader(a.In)
		}
		return v.decide(c.Context(), args, d)
	}
	return c
}

// voter casts votes of one kind. A person at a terminal is shown each gate and asked.
type voter struct {
	*command.App
	verb    string
	answers *bufio.Reader // nil if nobody is asked
}

// decide votes at each of the gates. A gate that cannot be decided (it expired, or
// somebody else was faster) does not stop the others. Every error is printed; the last
// one is returned, so that Main prints it and the exit code tells of it.
func (v voter) decide(ctx context.Context, ids []string, d gate.Decision) (failed error) {
	for _, id := range ids {
		g, err := v.vote(ctx, id, d)
		if err == nil {
			err = v.Show(g, func(w output.Printer) {
				if g.Status == gate.Pending {
					w.Print("Your vote at %s counts; %d of %d approvals so far.", g.ID, gate.People(g.Votes, true), g.Quorum)
					return
				}
				w.Print("%s is %s.", g.ID, g.Status)
				if note := v.awaitUse(ctx, g); note != "" {
					w.Print("%s", note)
				}
			})
		}
		if err != nil && failed != nil { // the last is said as any other error
			v.Err.Print("%s", fault.From(failed).Message)
		}
		if err != nil {
			failed = err
		}
	}
	return failed
}

// awaitUse waits a moment for the agent to take what was approved, and says so if it does not.
func (v voter) awaitUse(ctx context.Context, g gate.Gate) string {
	waiting, cancel := context.WithTimeout(ctx, gate.TakingTime)
	defer cancel()
	for g.Status == gate.Approved && waiting.Err() == nil {
		var now gate.Gate
		if err := v.Call(ctx, api.Get(api.GatePath(g.ID)), &now); err != nil || now.Unused == nil {
			return "" // that the vote counts was said
		}
		g = now
		select {
		case <-time.After(gate.TakingTime / 10):
		case <-waiting.Done():
		}
	}
	return g.UnusedNote()
}

// vote reads a gate, prints it, and votes on what it printed. With --json the answer has all of the
// gate.
func (v voter) vote(ctx context.Context, id string, d gate.Decision) (g gate.Gate, err error) {
	if err := v.Call(ctx, api.Get(api.GatePath(id)), &g); err != nil {
		return g, err
	}
	d.Digest = cmp.Or(d.Digest, g.Digest)
	switch {
	case g.Status != gate.Pending || v.JSON:
	case v.answers != nil:
		if err := v.ask(ctx, &g, &d); err != nil {
			return g, err
		}
	default:
		printShort(v.Out, g)
	}
	return g, v.Call(ctx, api.Decide(id, v.verb, d), &g)
}

// ask shows all of a gate and asks whether to approve it. Approving what the gate does not show takes
// its number of bytes.
func (v voter) ask(ctx context.Context, g *gate.Gate, d *gate.Decision) error {
	v.Out.Pages(ctx, func(w output.Printer) { printGate(w, *g) })
	want, unseen := "yes", g.Unseen()
	if unseen > 0 {
		want = fmt.Sprint(unseen)
		for _, u := range g.Unshown {
			v.Out.Print("Not shown: %s", u.String())
		}
	}
	v.Out.Print("Approve %s? Type %s and Enter; anything else leaves it as it is.", g.ID, want)
	answer, err := v.answers.ReadString('\n')
	if err != nil || ctx.Err() != nil || strings.TrimSpace(answer) != want {
		return fault.New(fault.Cancelled, "%s was not approved. Nothing was changed.", g.ID)
	}
	d.Unseen = unseen
	return nil
}
