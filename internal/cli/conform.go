package cli

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/conform"
	"signalbox/internal/fault"
	"signalbox/internal/run/vector"
	"signalbox/internal/task/amp"
)

// conformCommands are the commands of the conformance kit. They share how a target is
// called and how a report is shown. Package conform has the cases; it knows no flag and
// no token file.
type conformCommands struct {
	*command.App
	agent command.AgentFlags
	token string // an operator's
}

// newConform is the group `conform`. Apart from `run`, each command takes any server
// that claims to speak the protocol, not only Signalbox.
func newConform(a *command.App) *command.Command {
	k := &conformCommands{App: a}
	return command.Group("conform", "The conformance kit: test whether a server or an engine follows a protocol",
		k.newSignal(), k.newHarness(), k.newMail(), k.newTask(), k.newRun())
}

// tokenFlag adds --token. SIGNALBOX_TOKEN is no default for it: that token belongs to
// the operator's own server, and the target may be somebody else's. See operator.
func (k *conformCommands) tokenFlag(c *command.Command, meaning string) {
	c.Flags().StringVar(&k.token, "token", "", meaning)
}

// newSignal leaves marks on the target: signals are recorded for good. The help says so,
// and everything that can be undone (rules, the agent, open gates) is undone, also after
// Ctrl-C.
func (k *conformCommands) newSignal() *command.Command {
	c := k.WithJSON(&command.Command{
		Use: "signal URL", Short: "Run the cases of AMP v1.0 signals against a server",
		Long: `Runs the cases of AMP v1.0 signals against the server at the address, and prints one
line for every case that failed.

With an admin's token all cases are run: rules for the kit's own agent are put in
front of the policy and taken away afterwards, and gates are decided. Against the
server that the other commands talk to, its token is used and an agent is made.

Signals are recorded for good, in the deck conform and in those that the cases about
project_id name. Gates that are open at the end are rejected; without an operator's
token they stay, and the report lists them.`,
		Example: `  signalbox conform signal http://127.0.0.1:7446
  signalbox conform signal https://amp.example.com --agent probe --key rs-amp-…`,
		Args: command.Exactly(1, "the address of a server, such as http://127.0.0.1:7446"),
	})
	k.agent.Add(c, "a key of the agent that signals")
	k.tokenFlag(c, "an operator's token, for the cases with rules and decisions")
	c.RunE = func(c *command.Command, args []string) error { return k.show(k.signal(c.Context(), args[0])) }
	return c
}

// signal runs the cases of signals. Without --agent it makes an agent with the
// operator's token and removes it at the end. Without any operator it still runs the
// cases that need neither rules nor decisions.
func (k *conformCommands) signal(ctx context.Context, address string) (report conform.Report, err error) {
	target, err := targetOf(address)
	if err != nil {
		return report, err
	}
	suite, err := conform.SignalSuite()
	if err != nil {
		return report, err
	}
	operator := k.operator(target)
	agent, err := k.agent.Agent(ctx, "conform-", func() (*api.Client, error) {
		if operator == nil {
			return nil, command.Usage(
				"Name the agent that signals with --agent and --key, or give an operator's token with --token to make one.")
		}
		return operator, nil
	})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, agent.GiveBack(ctx)) }()
	// Some cases hold only for a server that listens on more than loopback.
	kit := conform.Kit{URL: target.String(), Agent: agent.Name, Key: agent.Key, Public: !api.IsLoopback(target.Hostname())}
	if operator != nil {
		kit.Token = operator.Token
	}
	return kit.Run(ctx, suite)
}

// newHarness tests any transport of AHP: an address, a Unix socket, or a command whose
// standard input and output are the connection.
func (k *conformCommands) newHarness() *command.Command {
	c := k.WithJSON(&command.Command{
		Use: "harness TARGET [FILE]", Short: "Run the cases of AHP 2.4 against a harness",
		Long: "Runs the cases of AHP 2.4, or those of a file in the same form, against a harness, and\n" +
			"prints one line for every case that failed. The target is an address (http, https, ws,\n" +
			"wss), a Unix socket, or a command to start.\n\n" +
			"The harness has to decide as the cases expect: `signalbox policy apply` takes the\n" +
			"policy that --fixture prints. Against the server that the other commands talk to, an\nagent is made.",
		Example: `  signalbox conform harness --fixture >fixture.yaml && signalbox policy apply fixture.yaml
  signalbox conform harness http://127.0.0.1:7446/ahp
  signalbox conform harness ./signalbox-data/ahp.sock
  signalbox conform harness "signalbox harness stdio" cases.json`,
		Args: command.AtMost(2, "a harness to look at, and perhaps a file of cases"),
	})
	k.agent.Add(c, "a key of an agent, for an address")
	k.tokenFlag(c, "an operator's token, with which an agent is made")
	fixture := c.Flags().Bool("fixture", false, "print the policy under which the cases hold, and run nothing")
	c.RunE = func(c *command.Command, args []string) error {
		if *fixture {
			_, err := k.Out.Exactly().Write(conform.HarnessPolicy())
			return err
		}
		if len(args) == 0 {
			return command.Usage(
				"Name a harness: an address such as http://127.0.0.1:7446/ahp, a Unix socket, or a command to start.")
		}
		return k.show(k.harness(c.Context(), args))
	}
	return c
}

// harness runs the cases of AHP, from a file if one is named. Only a target with a host
// needs a key: a Unix socket and a child process identify the agent by other means. If
// the key is missing, an agent is made for the run and removed at the end.
func (k *conformCommands) harness(ctx context.Context, args []string) (report conform.Report, err error) {
	var file []byte
	if len(args) == 2 {
		if file, err = os.ReadFile(args[1]); err != nil {
			return report, fault.Wrap(err, fault.InvalidRequest, "Cannot read the cases in %s.", args[1])
		}
	}
	suite, err := conform.HarnessCases(file)
	if err != nil {
		return report, err
	}
	kit := conform.HarnessKit{Target: args[0], Key: k.agent.Key}
	target, err := url.Parse(args[0])
	if err == nil && target.Host != "" && kit.Key == "" {
		// The operators' API is HTTP also where the harness is reached through a
		// WebSocket.
		operator := k.operator(&url.URL{Scheme: strings.Replace(target.Scheme, "ws", "http", 1), Host: target.Host})
		if operator == nil {
			return report, command.Usage(
				"Give an agent's key with --key, or an operator's token with --token to make an agent.")
		}
		lent, problem := operator.Lend(ctx, "conform-")
		if problem != nil {
			return report, problem
		}
		defer func() { err = errors.Join(err, lent.GiveBack(ctx)) }()
		kit.Key = lent.Key
	}
	return kit.Run(ctx, suite)
}

// newMail tests a provider. Registered agents stay in a tenant whose name is new for
// each run, so two runs against the same provider do not disturb each other.
func (k *conformCommands) newMail() *command.Command {
	c := k.WithJSON(&command.Command{
		Use: "mail URL", Short: "Run the cases of AMP v0.1.2 messaging against a provider",
		Long: `Runs the cases of AMP v0.1.2 messaging against the provider at the address, and prints one
line for every case that failed.

Agents are registered for it, in a tenant of their own. With an operator's token the
cases about owners, quarantine and suspension are run too; against the server that the
other commands talk to, its token is used.`,
		Example: `  signalbox conform mail http://127.0.0.1:7446
  signalbox conform mail https://mail.example.com --token sbx_op_…`,
		Args: command.Exactly(1, "the address of a provider, such as http://127.0.0.1:7446"),
	})
	k.tokenFlag(c, "an operator's token, for the cases with owners, quarantine and suspension")
	c.RunE = func(c *command.Command, args []string) error {
		target, err := targetOf(args[0])
		if err != nil {
			return err
		}
		suite, err := conform.MailCases()
		if err != nil {
			return err
		}
		kit := conform.MailKit{URL: target.String(), Loopback: api.IsLoopback(target.Hostname())}
		if operator := k.operator(target); operator != nil {
			kit.Token = operator.Token
		}
		return k.show(kit.Run(c.Context(), suite))
	}
	return c
}

// newTask runs the same vectors in two ways: through the rules alone, in this process
// and with a simulated clock, or against a server. A difference between the two is a bug
// of the server.
func (k *conformCommands) newTask() *command.Command {
	c := k.WithJSON(&command.Command{
		Use: "task FOLDER|URL", Short: "Run vectors of AMP/1.0 tasks through the engine, or against a server",
		Long: `Runs the documents and scenarios in a folder (valid, invalid, scenarios) through the
rules alone, with simulated time, or against a server, and prints one line for every
case that failed.

A server takes an admin's token. Scenarios in which time passes are run where the
server's clock can be set (clock.movable), and skipped elsewhere.`,
		Example: `  signalbox conform task ./vectors
  signalbox conform task http://127.0.0.1:7446`,
		Args: command.Exactly(1, "a folder with vectors, or the address of a server"),
	})
	folder := c.Flags().String("vectors", "", "a folder with vectors, for a server; our own when absent")
	k.tokenFlag(c, "an admin's token, for a server")
	c.RunE = func(c *command.Command, args []string) error {
		// A path never contains "://", so the two meanings of the argument cannot be
		// confused.
		if !strings.Contains(args[0], "://") {
			report, err := conform.RunTasks(c.Context(), os.DirFS(args[0]), &conform.TaskEngine{})
			if err != nil {
				return fault.Wrap(err, fault.InvalidRequest, "The vectors in %s cannot be run.", args[0])
			}
			return k.show(report, nil)
		}
		vectors := amp.Vectors()
		if *folder != "" {
			vectors = os.DirFS(*folder)
		}
		return k.show(k.tasks(c.Context(), args[0], vectors))
	}
	return c
}

// tasks runs vectors against a server. It closes the host also when opening failed
// half-way, and with a context that Ctrl-C does not end, because agents and rules may
// exist by then.
func (k *conformCommands) tasks(ctx context.Context, address string, vectors fs.FS) (report conform.Report, err error) {
	target, err := targetOf(address)
	if err != nil {
		return report, err
	}
	operator := k.operator(target)
	if operator == nil {
		return report, command.Usage("Give an admin's token of that server with --token.")
	}
	host := &conform.TaskServer{URL: target.String(), Token: operator.Token}
	if err = host.Open(ctx); err == nil {
		report, err = conform.RunTasks(ctx, vectors, host)
	}
	if err = errors.Join(err, host.Close(context.WithoutCancel(ctx))); err != nil {
		err = fault.Wrap(err, fault.InvalidRequest, "The vectors cannot be run against %s.", target)
	}
	return report, err
}

// newRun needs no server and starts no CLI. It translates recorded output, so it can
// tell whether a new release of an agent CLI is still understood.
func (k *conformCommands) newRun() *command.Command {
	c := k.WithJSON(&command.Command{
		Use: "run DIR", Short: "Check the engines against recorded runs in a folder",
		Long: `Translates every recorded stream in the folder (NAME.jsonl) and compares the events with
those that are expected (NAME.expected.json), and checks argv.cases.json,
resume.cases.json and titles.cases.json if they are there.`,
		Args: command.Exactly(1, "a folder with recorded runs"),
	})
	c.RunE = func(_ *command.Command, args []string) error {
		outcomes, err := vector.Check(args[0])
		report := conform.Report{Cases: []conform.Outcome{}}
		for _, o := range outcomes {
			report.Add(o.Name, o.Problem)
		}
		return k.show(report, err)
	}
	return c
}

// targetOf reads the address of a server and drops a slash at the end, so that the
// address can be compared with the one in the data folder and joined with paths.
func targetOf(text string) (*url.URL, error) {
	target, err := url.Parse(strings.TrimSuffix(text, "/"))
	if err != nil || target.Host == "" {
		return nil, command.Usage("%q is not the address of a server, such as http://127.0.0.1:7446.", text)
	}
	return target, nil
}

// operator returns a client that calls the target as an operator, or nil without a
// token. The token is the one from --token, or else that of the server which the other
// commands talk to, provided that the target is that very server. A token is never sent
// to another server.
func (k *conformCommands) operator(target *url.URL) *api.Client {
	if k.token != "" {
		return &api.Client{Base: target.String(), Token: k.token}
	}
	// The server is known by the number, and people are shown its name.
	number := strings.Replace(target.String(), "//localhost:", "//127.0.0.1:", 1)
	if own, err := k.Client(); err == nil && (own.Base == target.String() || own.Base == number) {
		return own
	}
	return nil
}

// show prints a report. Failed cases become an error only after the whole report is
// printed, so that --json always yields the full result and the exit code is still 1.
func (k *conformCommands) show(report conform.Report, err error) error {
	if err == nil {
		err = k.Show(report, func(w output.Printer) { printConform(w, report) })
	}
	if err == nil && report.Failed > 0 {
		err = fault.New(fault.VerificationFailed, "%s failed.", output.Count(report.Failed, "case"))
	}
	return err
}

// printConform prints failures one by one, and skipped cases by reason: dozens of cases
// may be skipped for the same reason, such as a missing token. Texts come from the
// target and may be hostile.
func printConform(w output.Printer, r conform.Report) {
	skipped := map[string]int{}
	var reasons []string
	for _, c := range r.Cases {
		switch c.Outcome {
		case "failed":
			w.Print("FAILED %s: %s", c.Name, output.OneLine(c.Problem))
		case "skipped":
			if skipped[c.Problem] == 0 {
				reasons = append(reasons, c.Problem)
			}
			skipped[c.Problem]++
		}
	}
	for _, why := range reasons {
		w.Print("skipped %s: %s", output.Count(skipped[why], "case"), why)
	}
	if len(r.Open) > 0 {
		w.Print("%s left open, for an operator to reject: %s",
			output.Count(len(r.Open), "gate"), strings.Join(r.Open, " "))
	}
	w.Print("%d passed, %d failed", r.Passed, r.Failed)
}
