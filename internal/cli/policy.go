package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

func newPolicy(a *app) *cobra.Command {
	return group("policy", "The rules: check, test, replay, apply, show",
		newPolicyCheck(a), newPolicyApply(a), newPolicyShow(a), newPolicyTest(a), newPolicyReplay(a))
}

const fileArgument = "a policy file, or - for standard input"

// readInput reads a file, or standard input for "-".
func (a *app) readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.in)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "Cannot read %s. Check that it is there and that this user may read it.", name)
	}
	return data, nil
}

// readPolicy reads a policy and checks it here, so that what is wrong is shown in
// the file, whether or not there is a server.
func (a *app) readPolicy(name string) ([]byte, *policy.Policy, error) {
	source, err := a.readInput(name)
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(source)
	return source, p, a.pointOut(name, source, err)
}

// pointOut prints every problem with its line, as a compiler does. The error that is
// left says how many there are.
func (a *app) pointOut(name string, source []byte, err error) error {
	problems := policy.Problems(err)
	if len(problems) == 0 {
		return err
	}
	lines := strings.Split(strings.ReplaceAll(string(source), "\r\n", "\n"), "\n")
	for _, p := range problems {
		_, _ = fmt.Fprintf(a.err, "%s:%d:%d: %s\n", name, p.Line, p.Column, p.Message)
		if p.Line <= len(lines) {
			line := printable(strings.ReplaceAll(lines[p.Line-1], "\t", " "))
			_, _ = fmt.Fprintf(a.err, "%6d | %s\n       | %s^ %s\n", p.Line, line, strings.Repeat(" ", max(0, p.Column-1)), p.Hint)
		}
	}
	if len(problems) == 1 {
		return fault.New(fault.InvalidPolicy, "%s has a mistake. Nothing was changed.", name)
	}
	return fault.New(fault.InvalidPolicy, "%s has %d mistakes. Nothing was changed.", name, len(problems))
}

func newPolicyCheck(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "check FILE", Short: "Check a policy, without a server; every mistake with line and column", Args: exactly(1, fileArgument)})
	c.RunE = func(_ *cobra.Command, args []string) error {
		_, p, err := a.readPolicy(args[0])
		if err != nil {
			return err
		}
		return a.show(rulebook.Checked{Rules: p.Rules(), Warnings: []string{}}, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s is right: %s.\n", args[0], countRules(p.Rules()))
		})
	}
	return c
}

func countRules(rules []policy.RuleSummary) string {
	shadows := 0
	for _, r := range rules {
		if r.Mode == "shadow" {
			shadows++
		}
	}
	text := number(len(rules), "rule")
	if shadows > 0 {
		text += fmt.Sprintf(", %d of them on trial", shadows)
	}
	return text
}

func number(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", thousands(int64(n)), thing)
}

func newPolicyApply(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "apply FILE", Short: "Put a policy in force, as a whole and at once; a wrong one changes nothing", Args: exactly(1, fileArgument)})
	expect := c.Flags().Int64("if-version", 0, "only if this version is in force")
	c.RunE = func(c *cobra.Command, args []string) error {
		source, p, err := a.readPolicy(args[0])
		if err != nil {
			return err
		}
		var header []string
		if c.Flags().Changed("if-version") {
			if *expect < 1 {
				return usage("--if-version takes the number of a version, 1 or more. `signalbox policy show --versions` lists them.")
			}
			header = []string{"If-Match", fmt.Sprint(*expect)}
		}
		var done rulebook.Applied
		if err := a.call(c.Context(), "PUT", "/ops/policy", yamlFile(source), &done, header...); err != nil {
			return err
		}
		return a.show(done, func(w io.Writer) {
			for _, warning := range done.Warnings {
				_, _ = fmt.Fprintf(a.err, "%s: %s\n", args[0], warning)
			}
			switch {
			case !done.InForce:
				_, _ = fmt.Fprintf(w, "Version %d is applied: %s. What its rules count is still being read from the ledger; the version before it decides until then.\n", done.Version.Number, countRules(p.Rules()))
			case !done.Changed:
				_, _ = fmt.Fprintf(w, "Version %d is in force already, and is the same.\n", done.Version.Number)
			default:
				_, _ = fmt.Fprintf(w, "Version %d is in force: %s.\n", done.Version.Number, countRules(p.Rules()))
			}
		})
	}
	return c
}

func newPolicyShow(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "show", Short: "Print the policy in force", Args: exactly(0, "no arguments")})
	number := c.Flags().Int64("version", 0, "print this version")
	versions := c.Flags().Bool("versions", false, "list the versions instead")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var page rulebook.VersionPage
		if *versions || *number == 0 {
			if err := a.call(c.Context(), "GET", "/ops/policy/versions?limit=1000", nil, &page); err != nil {
				return err
			}
		}
		if *versions {
			return a.show(page, func(w io.Writer) { printVersions(w, page) })
		}
		if *number == 0 {
			if len(page.Versions) == 0 {
				return fault.New(fault.NotFound, "There is no policy in force, so everything is blocked. Apply one with `signalbox policy apply FILE`.")
			}
			*number = page.Versions[0].Number
		}
		var v rulebook.FullVersion
		if err := a.call(c.Context(), "GET", fmt.Sprintf("/ops/policy/versions/%d", *number), nil, &v); err != nil {
			return err
		}
		return a.show(v, func(w io.Writer) { _, _ = io.WriteString(w, v.Source) })
	}
	return c
}

func printVersions(w io.Writer, page rulebook.VersionPage) {
	var rows [][]string
	for _, v := range page.Versions {
		rows = append(rows, []string{fmt.Sprint(v.Number), v.AppliedAt.Local().Format(time.DateTime), v.AppliedBy, v.SHA256[:12], fmt.Sprint(v.Seq)})
	}
	table(w, "There is no policy.", []string{"VERSION", "APPLIED", "BY", "SHA256", "ENTRY"}, rows)
}

// TestRun is how the examples of a test file came out.
type TestRun struct {
	Passed int           `json:"passed"`
	Failed int           `json:"failed"`
	Tests  []TestOutcome `json:"tests"`
}

// TestOutcome is how one example came out.
type TestOutcome struct {
	Name    string        `json:"name"`
	Line    int           `json:"line"`
	Passed  bool          `json:"passed"`
	Then    policy.Action `json:"then"`
	Rule    string        `json:"rule"`
	Problem string        `json:"problem,omitempty"`
}

func newPolicyTest(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "test TESTS", Short: "Run a file of examples with the verdicts you expect", Args: exactly(1, "a file of tests"),
		Long: "Runs a file of examples against a policy file, or against the policy in force.\n\n" +
			"  version: 1\n  tests:\n    - name: a newsletter waits for a person\n      point: signal\n      event: {declared: true, proposed_action: Send it}\n" +
			"      agent: {name: writer, trust: standard}\n      recent: {signals: {10m: 3}}\n      expect: {then: gate, rule: confirm-declared-gates}",
	})
	file := c.Flags().String("policy", "", "the policy to test; the one in force when absent")
	c.RunE = func(c *cobra.Command, args []string) error {
		p, err := a.policyUnderTest(c.Context(), *file)
		if err != nil {
			return err
		}
		source, err := a.readInput(args[0])
		if err != nil {
			return err
		}
		tests, err := policy.ParseTests(source)
		if err := a.pointOut(args[0], source, err); err != nil {
			return err
		}
		run := runTests(p, tests)
		if err := a.show(run, func(w io.Writer) { printTests(w, args[0], run) }); err != nil {
			return err
		}
		if run.Failed > 0 {
			return fault.New(fault.VerificationFailed, "%s did not come out as expected.", number(run.Failed, "test"))
		}
		return nil
	}
	return c
}

func (a *app) policyUnderTest(ctx context.Context, file string) (*policy.Policy, error) {
	if file != "" {
		_, p, err := a.readPolicy(file)
		return p, err
	}
	cl, err := a.client()
	if err != nil {
		return nil, err
	}
	res, err := cl.do(ctx, "GET", "/ops/policy", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	source, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, brokeOff(err)
	}
	p, err := policy.Parse(source)
	return p, a.pointOut("the policy in force", source, err)
}

func runTests(p *policy.Policy, tests policy.Tests) TestRun {
	run := TestRun{Tests: []TestOutcome{}}
	for _, r := range p.RunTests(tests) {
		if r.Passed {
			run.Passed++
		} else {
			run.Failed++
		}
		run.Tests = append(run.Tests, TestOutcome{r.Name, r.Line, r.Passed, r.Got.Action, r.Got.Rule, r.Problem})
	}
	return run
}

func printTests(w io.Writer, file string, run TestRun) {
	for _, t := range run.Tests {
		if !t.Passed {
			_, _ = fmt.Fprintf(w, "%s:%d: %s\n    %s\n", file, t.Line, t.Name, t.Problem)
		}
	}
	_, _ = fmt.Fprintf(w, "%d passed, %d failed\n", run.Passed, run.Failed)
}

func newPolicyReplay(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "replay FILE", Short: "Show what a policy would have decided otherwise in the past", Args: exactly(1, fileArgument),
		Example: "  signalbox policy replay --since 168h new-policy.yaml",
	})
	since := c.Flags().String("since", "168h", "how far back, such as 168h or 7d, or a time such as 2026-05-01T12:00:00Z")
	c.RunE = func(c *cobra.Command, args []string) error {
		source, _, err := a.readPolicy(args[0])
		if err != nil {
			return err
		}
		report, err := a.replay(c.Context(), source, *since)
		if err != nil {
			return err
		}
		return a.show(report, func(w io.Writer) { printReplay(w, report) })
	}
	return c
}

func (a *app) replay(ctx context.Context, source []byte, since string) (rulebook.Report, error) {
	cl, err := a.client()
	if err != nil {
		return rulebook.Report{}, err
	}
	res, err := cl.do(ctx, "POST", "/ops/policy/replay?"+url.Values{"since": {since}}.Encode(), yamlFile(source))
	if err != nil {
		return rulebook.Report{}, err
	}
	defer func() { _ = res.Body.Close() }()
	update, end := progress(a.err, "replaying")
	defer end()
	lines := bufio.NewReader(res.Body)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return rulebook.Report{}, brokeOff(err)
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

func printReplay(w io.Writer, r rulebook.Report) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	if r.Decisions == 0 {
		p("There are no decisions since %s.\n", r.Since.Local().Format(time.DateTime))
	} else {
		p("%s of %s since %s would have come out otherwise.\n", thousands(r.Changed), number(int(r.Decisions), "decision"), r.Since.Local().Format(time.DateTime))
	}
	for _, c := range r.Changes {
		p("\n%s × %s: %s (%s) would be %s (%s)\n", thousands(c.Count), c.Point, c.Was.Then, c.Was.Rule, c.Would.Then, c.Would.Rule)
		var rows [][]string
		for _, e := range c.Examples[:min(len(c.Examples), 5)] {
			rows = append(rows, []string{fmt.Sprint(e.Seq), e.At.Local().Format(time.DateTime), e.Workspace + "/" + e.Agent, e.What})
		}
		table(w, "", []string{"  ENTRY", "AT", "AGENT", "WHAT"}, indent(rows))
	}
	if r.OtherRule > 0 {
		p("\n%s would have come out the same, by another rule.\n", number(int(r.OtherRule), "decision"))
	}
	if r.Erased > 0 {
		p("\n%s could not be tried: what they were about has been erased.\n", number(int(r.Erased), "decision"))
	}
	if r.Broken > 0 {
		p("\n%s could not be tried, since they cannot be read; the server's log says why.\n", number(int(r.Broken), "decision"))
	}
}

func indent(rows [][]string) [][]string {
	for _, row := range rows {
		row[0] = "  " + row[0]
	}
	return rows
}
