package rules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// newInit writes a policy to begin with, and its tests.
func newInit(a *command.App) *command.Command {
	var packs []string
	long := "Writes policy.yaml and policy_test.yaml into a folder, the one you are in if you name none.\n" +
		"Files that are there are left alone.\n\nPacks:\n"
	for _, p := range policy.Packs {
		packs = append(packs, p.Name)
		long += fmt.Sprintf("  %-9s %s\n", p.Name, p.Summary)
	}
	c := &command.Command{
		Use: "init [FOLDER]", Short: "Write a policy to begin with, and its tests", Long: strings.TrimSpace(long),
		Args: command.AtMost(1, "a folder"), Example: "  signalbox policy init --pack careful",
	}
	name := c.Flags().String("pack", "balanced", "which one: "+strings.Join(packs, ", "))
	c.RunE = func(_ *command.Command, args []string) error {
		if len(args) == 1 && filepath.Ext(args[0]) == ".yaml" {
			return command.Usage("%q is the name of a file. Name a folder; the files in it are policy.yaml and "+
				"policy_test.yaml.", args[0])
		}
		for _, p := range policy.Packs {
			if p.Name == *name {
				return writePack(a, p, append(args, ".")[0])
			}
		}
		return command.Usage("There is no pack %q. %s", *name, fault.DidYouMean(*name, packs))
	}
	return c
}

// writePack writes the two files of a pack, and what to do with them.
func writePack(a *command.App, p policy.Pack, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fault.New(fault.InvalidRequest, "%s cannot be made: %s.", folder, err)
	}
	rules, tests := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "policy_test.yaml")
	for name, text := range map[string][]byte{rules: p.Source(), tests: p.Tests()} {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fault.New(fault.InvalidRequest, "%s was not written: %s.", name, err)
		}
		_, err = f.Write(text)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fault.New(fault.InvalidRequest, "%s was not written: %s.", name, err)
		}
	}
	a.Out.Print("%s is the pack %s: %s\n%s has its examples.", rules, p.Name, p.Summary, tests)
	a.Out.Print("\nTry it, and put it in force:\n  signalbox policy test %s --policy %s\n  signalbox policy replay %s\n"+
		"  signalbox policy apply %s", tests, rules, rules, rules)
	return nil
}

// newExplain shows why a decision came out as it did, or how a command would come out.
func newExplain(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use:   "explain [ENTRY]",
		Short: "Show which rule decides, and what the rules see",
		Args:  command.AtMost(1, "the number of an entry in the ledger"),
		Long: "Explains a decision in the ledger by its number, or how a call of a tool would be decided:\n" +
			"the rules that are tried, and the facts that they see. A decision is explained with all layers of the\n" +
			"policy that were in force, a call with one of them alone: the server's, or the one that the flags name.",
		Example: "  signalbox policy explain 4711\n  signalbox policy explain --command 'sudo sh -c \"rm -rf /\"'\n" +
			"  signalbox policy explain --tool Write --arguments '{\"file_path\": \"/etc/hosts\"}' --cwd /srv/app",
	})
	text := c.Flags().String("command", "", "a shell text that an agent would run")
	tool := c.Flags().String("tool", "", "the tool that it would call; a shell if there is only --command")
	arguments := c.Flags().String("arguments", "", "the tool's arguments, a JSON object")
	cwd := c.Flags().String("cwd", "", "the working directory of the agent")
	file := c.Flags().String("policy", "", "a policy file; the one in force when absent")
	of := addLayerFlags(c)
	c.RunE = func(c *command.Command, args []string) error {
		if len(args) == 1 {
			seq, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || seq < 1 {
				return command.Usage("%q is not the number of an entry. `signalbox ledger tail` lists them.", args[0])
			}
			return command.Ask(c.Context(), a, api.Get(fmt.Sprintf("/ops/policy/explain/%d", seq)), printExplained)
		}
		event, err := eventOf(*text, *tool, *arguments, *cwd)
		if err != nil {
			return err
		}
		p, err := policyUnderTest(c.Context(), a, *file, of)
		if err != nil {
			return err
		}
		x := rulebook.Explained{Point: event.Point, Tool: event.Tool}
		x.Explanation = p.Explain(context.WithoutCancel(c.Context()), policy.Input{Event: &event, Now: time.Now()})
		return a.Show(x, func(w output.Printer) { printExplained(w, x) })
	}
	return c
}

// eventOf is the event that the flags describe.
func eventOf(text, tool, arguments, cwd string) (policy.Event, error) {
	e := policy.Event{Point: policy.OnAction, Tool: tool, CWD: cwd, Arguments: map[string]any{}}
	if arguments != "" {
		if err := policy.DecodeData([]byte(arguments), &e.Arguments); err != nil {
			return e, command.Usage("--arguments should be a JSON object: %s.", err)
		}
	}
	if text != "" {
		e.Arguments["command"] = text
		if tool == "" {
			e.Tool = "bash"
		}
	}
	if e.Tool == "" {
		return e, command.Usage("Name an entry of the ledger, or say what an agent would do with --command or --tool.")
	}
	return e, nil
}

// printExplained shows the outcome, what the rules saw, and the rules that were tried.
func printExplained(w output.Printer, x rulebook.Explained) {
	who := ""
	if x.Seq > 0 {
		who = fmt.Sprintf("Entry %d, version %d of the policy%s: ", x.Seq, x.Policy, layerVersions(x))
	}
	by := fmt.Sprintf("the rule %s", ruleOf(rulebook.Outcome{Rule: x.Rule, Layer: x.Layer}))
	switch {
	case x.Rule == policy.DefaultRule && x.Layer != "":
		by = fmt.Sprintf("the %s's default of %s; no rule matches", x.Layer, x.Point)
	case x.Rule == policy.DefaultRule:
		by = fmt.Sprintf("the default of %s; no rule matches", x.Point)
	}
	w.Print("%s%s by %s.", who, x.Then, by)
	if x.Reason != "" {
		w.Print("%s", x.Reason)
	}
	for _, why := range x.Why {
		w.Print("What runs cannot be known: %s.", why)
	}
	if x.Facts != nil {
		w.Print("")
		for _, fact := range x.Facts.Lines() {
			name := fact.Name
			for _, value := range fact.Values {
				w.Print("  %-8s  %s", name, value)
				name = ""
			}
		}
	}
	var others []string
	w.Print("")
	for _, r := range x.Rules {
		if r.Result == policy.TriedNo {
			others = append(others, r.Name)
			continue
		}
		trial := ""
		if r.Shadow {
			trial = ", on trial"
		}
		name := ruleOf(rulebook.Outcome{Rule: r.Name, Layer: r.Layer})
		w.Print("%s", strings.TrimSpace(fmt.Sprintf("%s (line %d%s) %s. %s", name, r.Line, trial, r.Result, r.Error)))
	}
	if len(others) > 0 {
		w.Print("Not about this: %s.", strings.Join(others, ", "))
	}
}

// layerVersions are the versions of the narrower layers that were in force.
func layerVersions(x rulebook.Explained) (text string) {
	if x.UserPolicy > 0 {
		text += fmt.Sprintf(", %d of the user's layer", x.UserPolicy)
	}
	if x.WorkspacePolicy > 0 {
		text += fmt.Sprintf(", %d of the workspace's layer", x.WorkspacePolicy)
	}
	return text
}
