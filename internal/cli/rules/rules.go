package rules

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/policy/trial"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// fileArgument is what the commands take that read a policy.
const fileArgument = "a policy file, or - for standard input"

// readPolicy reads a policy and parses it in this process, with the parser that the
// server uses. Mistakes are shown in the file at once, also without a server, and never
// reach it.
func readPolicy(a *command.App, name string) ([]byte, *policy.Policy, error) {
	source, err := a.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(source)
	if err == nil {
		err = p.Check()
	}
	return source, p, pointOut(a, name, source, err)
}

// pointOut prints every problem with file, line and column, in the form that editors and
// CI recognise, and the line itself with a caret. It returns an error that only counts
// them. An err that is not about the policy is returned unchanged, nil included.
func pointOut(a *command.App, name string, source []byte, err error) error {
	problems := policy.Problems(err)
	if len(problems) == 0 {
		return err
	}
	lines := strings.Split(strings.ReplaceAll(string(source), "\r\n", "\n"), "\n")
	for _, p := range problems {
		a.Err.Print("%s:%d:%d: %s", name, p.Line, p.Column, p.Message)
		if p.Line <= len(lines) {
			// A tab counts as one column, so it is printed as one space; the caret then
			// stands right.
			line := strings.ReplaceAll(lines[p.Line-1], "\t", " ")
			a.Err.Print("%6d | %s\n       | %s^ %s",
				p.Line, line, strings.Repeat(" ", max(0, p.Column-1)), p.Hint)
		}
	}
	if len(problems) == 1 {
		return fault.New(fault.InvalidPolicy, "%s has 1 mistake. Nothing was changed.", name)
	}
	return fault.New(fault.InvalidPolicy, "%s has %d mistakes. Nothing was changed.", name, len(problems))
}

// newCheck checks what can be known without a server. Warnings, about approvers
// who do not exist, come from `apply`, hence the empty list.
func newCheck(a *command.App) *command.Command {
	c := a.About("check FILE", "Check a policy offline; every mistake is shown with line and column", fileArgument)
	c.RunE = func(_ *command.Command, args []string) error {
		_, p, err := readPolicy(a, args[0])
		if err != nil {
			return err
		}
		return a.Show(rulebook.Checked{Rules: p.Rules(), Warnings: []string{}}, func(w output.Printer) {
			w.Print("%s is valid: %s.", args[0], countRules(p.Rules()))
		})
	}
	return c
}

// countRules says how many rules there are, and how many of them only record what they
// would have decided. People forget to switch a rule from shadow to live; this line
// reminds them.
func countRules(rules []policy.RuleSummary) string {
	shadows := 0
	for _, r := range rules {
		if r.Mode == "shadow" {
			shadows++
		}
	}
	text := output.Count(len(rules), "rule")
	if shadows > 0 {
		text += fmt.Sprintf(", %d of them on trial", shadows)
	}
	return text
}

// newApply replaces the whole policy in one transaction. There is no moment
// without a policy, and no moment with half of the new one.
func newApply(a *command.App) *command.Command {
	c := a.About("apply FILE", "Put a policy in force; an invalid one changes nothing", fileArgument)
	of := addLayerFlags(c)
	expect := c.Flags().Int64("if-version", 0, "only if this version is in force")
	c.RunE = func(c *command.Command, args []string) error {
		source, p, err := readPolicy(a, args[0])
		if err != nil {
			return err
		}
		request := api.Put(of.at("/ops/policy", nil), api.YAML(source))
		if c.Flags().Changed("if-version") {
			if *expect < 1 {
				return command.Usage(
					"--if-version takes the number of a version, 1 or more. `signalbox policy show --versions` lists them.")
			}
			// Compare and swap: of two people who edit the same version, the second gets
			// a conflict instead of undoing the first one's change.
			request = request.With("If-Match", fmt.Sprint(*expect))
		}
		var done rulebook.Applied
		if err := a.Call(c.Context(), request, &done); err != nil {
			return err
		}
		return a.Show(done, func(w output.Printer) {
			where := of.of()
			if where == "" && done.Workspace != "" { // the token is for one workspace
				where = " for workspace " + done.Workspace
			}
			for _, warning := range done.Warnings {
				a.Err.Print("%s: %s", args[0], warning)
			}
			switch {
			// Rules that count need the past of their window first. Until it is read,
			// the old version decides: a counter that starts at zero would let agents
			// exceed their limits.
			case !done.InForce:
				w.Print("Version %d is applied%s: %s. Its counters are still being read from the "+
					"ledger; the previous version decides until then.", done.Version.Number, where, countRules(p.Rules()))
			case !done.Changed:
				w.Print("Version %d is already in force%s and is the same.", done.Version.Number, where)
			default:
				w.Print("Version %d is in force%s: %s.", done.Version.Number, where, countRules(p.Rules()))
			}
		})
	}
	return c
}

// newShow prints a version as it was applied, byte for byte, so that its output
// can be edited and applied again.
func newShow(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{Use: "show", Short: "Print the policy in force", Args: command.NoArguments()})
	of := addLayerFlags(c)
	number := c.Flags().Int64("version", 0, "print this version")
	versions := c.Flags().Bool("versions", false, "list the versions instead")
	c.RunE = func(c *command.Command, _ []string) error {
		var page rulebook.VersionPage
		if *versions || *number == 0 {
			if err := a.Call(c.Context(), api.Get(of.at("/ops/policy/versions", api.Query{"limit": 1000})), &page); err != nil {
				return err
			}
		}
		if *versions {
			return a.Show(page, func(w output.Printer) { printVersions(w, page) })
		}
		// Ask for the newest version by number: a version that was just applied may
		// still be loading, and is then not the one in force.
		if *number == 0 {
			if where := of.of(); len(page.Versions) == 0 && where != "" {
				return fault.New(fault.NotFound, "Nothing was applied%s yet, so the other layers decide.", where)
			}
			if len(page.Versions) == 0 {
				return fault.New(fault.NotFound,
					"There is no policy in force, so everything is blocked. Apply one with `signalbox policy apply FILE`.")
			}
			*number = page.Versions[0].Number
		}
		return command.Ask(c.Context(), a, api.Get(of.at(fmt.Sprintf("/ops/policy/versions/%d", *number), nil)),
			func(w output.Printer, v rulebook.FullVersion) {
				_, _ = io.WriteString(w.Exactly(), v.Source)
			})
	}
	return c
}

// printVersions lists versions, the newest first. ENTRY is the number of the ledger
// entry that has the text, for `ledger prove`.
func printVersions(w output.Printer, page rulebook.VersionPage) {
	rows := output.Rows(page.Versions, func(v rulebook.Version) []string {
		return []string{
			fmt.Sprint(v.Number), output.Moment(v.AppliedAt), v.AppliedBy, v.SHA256[:12],
			fmt.Sprint(v.Seq),
		}
	})
	w.Table("There is no policy.", []string{"VERSION", "APPLIED", "BY", "SHA256", "ENTRY"}, rows)
}

// TestRun is the result of a file of examples: what `policy test --json` prints.
type TestRun struct {
	Passed int           `json:"passed"`
	Failed int           `json:"failed"`
	Tests  []TestOutcome `json:"tests"`
}

// TestOutcome is the result of one example: the verdict of the policy, and if that is
// not what was expected, Problem with the difference.
type TestOutcome struct {
	Name    string        `json:"name"`
	Line    int           `json:"line"`
	Passed  bool          `json:"passed"`
	Then    policy.Action `json:"then"`
	Rule    string        `json:"rule"`
	Problem string        `json:"problem,omitempty"`
}

// newTest runs examples in this process. They are pure: an example states the
// agent, the event and the counters, so the result does not depend on what any agent
// did.
func newTest(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use:   "test TESTS",
		Short: "Run a file of examples with the verdicts you expect", Args: command.Exactly(1, "a file of tests"),
		Long: `Runs a file of examples against a policy file, or against the policy in force.

  version: 1
  tests:
    - name: a newsletter waits for a person
      point: signal
      event: {declared: true, proposed_action: Send it}
      agent: {name: writer, trust: standard}
      recent: {signals: {10m: 3}}
      expect: {then: gate, rule: confirm-declared-gates}`,
	})
	file := c.Flags().String("policy", "", "the policy to test; the one in force when absent")
	of := addLayerFlags(c)
	c.RunE = func(c *command.Command, args []string) error {
		p, err := policyUnderTest(c.Context(), a, *file, of)
		if err != nil {
			return err
		}
		source, err := a.ReadFile(args[0])
		if err != nil {
			return err
		}
		tests, err := trial.Parse(source)
		if err := pointOut(a, args[0], source, err); err != nil {
			return err
		}
		run := runTests(p, tests)
		if err := a.Show(run, func(w output.Printer) { printTests(w, args[0], run) }); err != nil {
			return err
		}
		if run.Failed > 0 {
			return fault.New(fault.VerificationFailed, "%s failed.", output.Count(run.Failed, "test"))
		}
		return nil
	}
	return c
}

// policyUnderTest is the policy in a file, or the one in force for "". The latter is
// fetched as text and parsed here; a server that is newer than this program may have
// rules that this parser refuses, which is then said with line and column.
func policyUnderTest(ctx context.Context, a *command.App, file string, of layerFlags) (*policy.Policy, error) {
	if file != "" {
		_, p, err := readPolicy(a, file)
		return p, err
	}
	cl, err := a.Client()
	if err != nil {
		return nil, err
	}
	res, err := cl.Do(ctx, api.Get(of.at("/ops/policy", nil)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	source, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, api.BrokeOff(err)
	}
	p, err := policy.Parse(source)
	return p, pointOut(a, "the policy in force", source, err)
}

// runTests runs the examples in the order of the file. None of them changes anything for
// the next.
func runTests(p *policy.Policy, tests trial.Tests) TestRun {
	run := TestRun{Tests: []TestOutcome{}}
	for _, r := range tests.Run(p) {
		if r.Passed {
			run.Passed++
		} else {
			run.Failed++
		}
		run.Tests = append(run.Tests, TestOutcome{r.Name, r.Line, r.Passed, r.Got.Action, r.Got.Rule, r.Problem})
	}
	return run
}

// printTests prints only failures, each with its line in the file.
func printTests(w output.Printer, file string, run TestRun) {
	for _, t := range run.Tests {
		if !t.Passed {
			w.Print("%s:%d: %s\n    %s", file, t.Line, t.Name, t.Problem)
		}
	}
	w.Print("%d passed, %d failed", run.Passed, run.Failed)
}

// newReplay decides past events again with another policy and shows the
// differences. Nothing is changed and no agent notices. It is how a policy should be
// tried before it is applied.
func newReplay(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use:   "replay FILE",
		Short: "Show which past decisions a policy would have changed", Args: command.Exactly(1, fileArgument),
		Example: "  signalbox policy replay --since 168h new-policy.yaml",
	})
	of := addLayerFlags(c)
	since := c.Flags().String("since", "168h", "how far back, such as 168h or 7d, or a time such as 2026-05-01T12:00:00Z")
	c.RunE = func(c *command.Command, args []string) error {
		source, _, err := readPolicy(a, args[0])
		if err != nil {
			return err
		}
		report, err := replay(c.Context(), a, source, of.at("/ops/policy/replay", api.Query{"since": *since}))
		if err != nil {
			return err
		}
		return a.Show(report, func(w output.Printer) { printReplay(w, report) })
	}
	return c
}

// replay runs a replay on the server, where the decisions are, and reads its lines:
// progress, then a report or an error. It uses Do and not Call: a replay of months takes
// longer than the minute that Call allows. A stream that ends without a report is an
// error, never an empty report.
func replay(ctx context.Context, a *command.App, source []byte, at string) (rulebook.Report, error) {
	cl, err := a.Client()
	if err != nil {
		return rulebook.Report{}, err
	}
	res, err := cl.Do(ctx, api.Post(at, api.YAML(source)))
	if err != nil {
		return rulebook.Report{}, err
	}
	defer func() { _ = res.Body.Close() }()
	shown := output.NewProgress(a.Err)
	defer shown.End()
	update := shown.Of("replaying")
	lines := bufio.NewReader(res.Body)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return rulebook.Report{}, api.BrokeOff(err)
		}
		var line rulebook.ReplayLine
		if err := wire.Unmarshal(bytes.TrimSpace(text), &line); err != nil {
			return rulebook.Report{}, err
		}
		switch {
		case line.Progress != nil:
			update(line.Progress.Done, line.Progress.Of)
		case line.Error != nil:
			return rulebook.Report{}, &fault.Error{Code: line.Error.Error, Message: line.Error.Message}
		case line.Report != nil:
			return *line.Report, nil
		}
	}
}

// printReplay prints differences grouped by what was decided and by which rule.
// Decisions that could not be tried are counted apart, so that "0 changed" cannot hide
// them.
func printReplay(w output.Printer, r rulebook.Report) {
	if r.Decisions == 0 {
		w.Print("There are no decisions since %s.", output.Moment(r.Since))
	} else {
		w.Print("%s of %s since %s would have been decided differently.",
			output.Thousands(r.Changed), output.Count(int(r.Decisions), "decision"), output.Moment(r.Since))
	}
	for _, c := range r.Changes {
		w.Print("\n%s × %s: %s (%s) would be %s (%s)",
			output.Thousands(c.Count), c.Point, c.Was.Then, ruleOf(c.Was), c.Would.Then, ruleOf(c.Would))
		var rows [][]string
		// Five examples are enough for a terminal; --json has all that the server sent.
		for _, e := range c.Examples[:min(len(c.Examples), 5)] {
			rows = append(rows,
				[]string{fmt.Sprint(e.Seq), output.Moment(e.At), e.Workspace + "/" + e.Agent, e.What})
		}
		w.Table("", []string{"  ENTRY", "AT", "AGENT", "WHAT"}, indent(rows))
	}
	if r.OtherRule > 0 {
		w.Print("\n%s would have been the same, by another rule.", output.Count(int(r.OtherRule), "decision"))
	}
	if r.Erased > 0 {
		w.Print("\n%s could not be replayed: their events have been erased.", output.Count(int(r.Erased), "decision"))
	}
	if r.Broken > 0 {
		w.Print("\n%s could not be replayed because they cannot be read; the server's log says why.",
			output.Count(int(r.Broken), "decision"))
	}
}

// ruleOf names a rule with its layer.
func ruleOf(o rulebook.Outcome) string {
	if o.Layer == "" {
		return o.Rule
	}
	return o.Rule + " of the " + o.Layer
}

// indent shifts the first column below its heading. It changes the rows in place.
func indent(rows [][]string) [][]string {
	for _, row := range rows {
		row[0] = "  " + row[0]
	}
	return rows
}
