package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/conform"
	"signalbox/internal/fault"
	"signalbox/internal/task"
)

func newConform(a *app) *cobra.Command {
	return group("conform", "The conformance kit: does a server, or an engine, keep to a protocol?", newConformSignal(a), newConformHarness(a), newConformMail(a), newConformTask(a), newConformRun(a))
}

func newConformSignal(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "signal URL", Short: "Run the cases of AMP v1.0 signals against a server",
		Long: "Runs the cases of AMP v1.0 signals against the server at the address, and prints one\nline for every case that failed.\n\n" +
			"With an admin's token all cases are run: rules for the kit's own agent are put in\nfront of the policy and taken away afterwards, and gates are decided. Against the\nserver that the other commands talk to, its token is used and an agent is made.\n\n" +
			"Signals are recorded for good, in the deck conform and in those that the cases about\nproject_id name. Gates that are open at the end are rejected; without an operator's\ntoken they stay, and the report lists them.",
		Example: "  signalbox conform signal http://127.0.0.1:7446\n  signalbox conform signal https://amp.example.com --agent probe --key rs-amp-…",
		Args:    exactly(1, "the address of a server, such as http://127.0.0.1:7446"),
	})
	var agent agentFlags
	c.Flags().StringVar(&agent.key, "key", "", "a key of the agent that signals")
	c.Flags().StringVar(&agent.name, "agent", "", "the name of that agent")
	token := c.Flags().String("token", "", "an operator's token, for the cases with rules and decisions")
	c.RunE = func(c *cobra.Command, args []string) error {
		target, err := targetOf(args[0])
		if err != nil {
			return err
		}
		report, err := a.conform(c.Context(), target, agent, *token)
		if err != nil {
			return err
		}
		return a.showConform(report)
	}
	return c
}

// showConform prints a report, which is an error when a case failed.
func (a *app) showConform(report conform.Report) error {
	if err := a.show(report, func(w io.Writer) { printConform(w, report) }); err != nil {
		return err
	}
	if report.Failed > 0 {
		return fault.New(fault.VerificationFailed, "%s did not come out as the protocol asks for.", number(report.Failed, "case"))
	}
	return nil
}

func newConformHarness(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "harness TARGET [FILE]", Short: "Run the cases of AHP 2.4 against a harness",
		Long: "Runs the cases of AHP 2.4, or those of a file in the same form, against a harness, and\nprints one line for every case that failed. The target is an address (http, https, ws,\nwss), a Unix socket, or a command to start.\n\n" +
			"The harness has to decide as the cases expect: `signalbox policy apply` takes the\npolicy that --fixture prints. Against the server that the other commands talk to, an\nagent is made.",
		Example: "  signalbox conform harness --fixture >fixture.yaml && signalbox policy apply fixture.yaml\n  signalbox conform harness http://127.0.0.1:7446/ahp\n  signalbox conform harness ./signalbox-data/ahp.sock\n  signalbox conform harness \"signalbox harness stdio\" cases.json",
		Args:    atMost(2, "a harness to look at, and perhaps a file of cases"),
	})
	var agent agentFlags
	c.Flags().StringVar(&agent.key, "key", "", "a key of an agent, for an address")
	c.Flags().StringVar(&agent.name, "agent", "", "the name of that agent")
	token := c.Flags().String("token", "", "an operator's token, with which an agent is made")
	fixture := c.Flags().Bool("fixture", false, "print the policy under which the cases hold, and run nothing")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *fixture {
			_, err := a.out.Write(conform.HarnessPolicy())
			return err
		}
		if len(args) == 0 {
			return usage("Say which harness: an address such as http://127.0.0.1:7446/ahp, a Unix socket, or a command to start.")
		}
		report, err := a.conformHarness(c.Context(), args, agent, *token)
		if err != nil {
			return err
		}
		return a.showConform(report)
	}
	return c
}

// conformHarness runs the cases of AHP, with an agent that is made for it if the target
// is an address and none was given.
func (a *app) conformHarness(ctx context.Context, args []string, flags agentFlags, token string) (report conform.Report, err error) {
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
	kit := conform.HarnessKit{Target: args[0], Key: flags.key}
	target, err := url.Parse(args[0])
	if err == nil && target.Host != "" && flags.key == "" {
		base := &url.URL{Scheme: strings.Replace(target.Scheme, "ws", "http", 1), Host: target.Host}
		operator := a.operatorOf(base, token)
		if operator == nil {
			return report, usage("Give a key of an agent with --key, or an operator's token with --token, and an agent is made.")
		}
		lent, err := operator.lend(ctx, "conform-")
		if err != nil {
			return report, err
		}
		defer func() { err = errors.Join(err, lent.giveBack(ctx)) }()
		kit.Key = lent.key
	}
	return kit.Run(ctx, suite)
}

func newConformMail(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "mail URL", Short: "Run the cases of AMP v0.1.2 messaging against a provider",
		Long: "Runs the cases of AMP v0.1.2 messaging against the provider at the address, and prints one\nline for every case that failed.\n\n" +
			"Agents are registered for it, in a tenant of their own. With an operator's token the\ncases about owners, quarantine and suspension are run too; against the server that the\nother commands talk to, its token is used.",
		Example: "  signalbox conform mail http://127.0.0.1:7446\n  signalbox conform mail https://mail.example.com --token sbx_op_…",
		Args:    exactly(1, "the address of a provider, such as http://127.0.0.1:7446"),
	})
	token := c.Flags().String("token", "", "an operator's token, for the cases with owners, quarantine and suspension")
	c.RunE = func(c *cobra.Command, args []string) error {
		target, err := targetOf(args[0])
		if err != nil {
			return err
		}
		suite, err := conform.MailCases()
		if err != nil {
			return err
		}
		kit := conform.MailKit{URL: target.String(), Loopback: isLoopback(target.Hostname())}
		if operator := a.operatorOf(target, *token); operator != nil {
			kit.Token = operator.token
		}
		report, err := kit.Run(c.Context(), suite)
		if err != nil {
			return err
		}
		return a.showConform(report)
	}
	return c
}

// targetOf reads the address of a server.
func targetOf(text string) (*url.URL, error) {
	target, err := url.Parse(strings.TrimSuffix(text, "/"))
	if err != nil || target.Host == "" {
		return nil, usage("%q is not the address of a server, such as http://127.0.0.1:7446.", text)
	}
	return target, nil
}

// conform runs the cases, with an agent that is made for it if none was given.
func (a *app) conform(ctx context.Context, target *url.URL, flags agentFlags, token string) (report conform.Report, err error) {
	suite, err := conform.SignalSuite()
	if err != nil {
		return report, err
	}
	operator := a.operatorOf(target, token)
	agent, err := flags.agent(ctx, "conform-", func() (*client, error) {
		if operator == nil {
			return nil, usage("Say which agent signals, with --agent and --key, or give an operator's token with --token, and one is made.")
		}
		return operator, nil
	})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, agent.giveBack(ctx)) }()
	kit := conform.Kit{URL: target.String(), Agent: agent.name, Key: agent.key, Public: !isLoopback(target.Hostname())}
	if operator != nil {
		kit.Token = operator.token
	}
	return kit.Run(ctx, suite)
}

// operatorOf calls the target as an operator: with the token that was given, or with
// that of the server which the other commands talk to, if the target is that server. A
// token is not shown to any other. It is nil without one.
func (a *app) operatorOf(target *url.URL, token string) *client {
	if token != "" {
		return &client{base: target.String(), token: token}
	}
	if own, err := a.client(); err == nil && own.base == target.String() {
		return own
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func printConform(w io.Writer, r conform.Report) {
	skipped := map[string]int{}
	var reasons []string
	for _, c := range r.Cases {
		switch c.Outcome {
		case "failed":
			_, _ = fmt.Fprintf(w, "FAILED %s: %s\n", c.Name, printable(strings.Join(strings.Fields(c.Problem), " ")))
		case "skipped":
			if skipped[c.Problem] == 0 {
				reasons = append(reasons, c.Problem)
			}
			skipped[c.Problem]++
		}
	}
	for _, why := range reasons {
		_, _ = fmt.Fprintf(w, "skipped %s: %s\n", number(skipped[why], "case"), why)
	}
	if len(r.Open) > 0 {
		_, _ = fmt.Fprintf(w, "%s left to wait, for an operator to reject: %s\n", number(len(r.Open), "gate"), printable(strings.Join(r.Open, " ")))
	}
	_, _ = fmt.Fprintf(w, "%d passed, %d failed\n", r.Passed, r.Failed)
}

func newConformTask(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "task FOLDER|URL", Short: "Run vectors of AMP/1.0 tasks through the engine, or against a server",
		Long: "Runs the documents and scenarios in a folder (valid, invalid, scenarios) through the\nrules alone, with simulated time, or against a server, and prints one line for every\ncase that failed.\n\n" +
			"A server takes an admin's token. Scenarios in which time passes are run where the\nserver's clock can be set (clock.movable), and skipped elsewhere.",
		Example: "  signalbox conform task ./vectors\n  signalbox conform task http://127.0.0.1:7446",
		Args:    exactly(1, "a folder with vectors, or the address of a server"),
	})
	vectors := c.Flags().String("vectors", "", "a folder with vectors, for a server; our own when absent")
	token := c.Flags().String("token", "", "an admin's token, for a server")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !strings.Contains(args[0], "://") {
			report, err := conform.RunTasks(c.Context(), os.DirFS(args[0]), &conform.TaskEngine{})
			if err != nil {
				return fault.Wrap(err, fault.InvalidRequest, "The vectors in %s cannot be run.", args[0])
			}
			return a.showConform(report)
		}
		target, err := url.Parse(strings.TrimSuffix(args[0], "/"))
		if err != nil || target.Host == "" {
			return usage("%q is not the address of a server, such as http://127.0.0.1:7446.", args[0])
		}
		from := task.Vectors()
		if *vectors != "" {
			from = os.DirFS(*vectors)
		}
		operator := a.operatorOf(target, *token)
		if operator == nil {
			return usage("Give an admin's token of that server with --token.")
		}
		report, err := conformTasks(c.Context(), &conform.TaskServer{URL: target.String(), Token: operator.token}, from)
		if err != nil {
			return fault.Wrap(err, fault.InvalidRequest, "The vectors cannot be run against %s.", target)
		}
		return a.showConform(report)
	}
	return c
}

// conformTasks runs vectors against a server, and takes away what was made for it.
func conformTasks(ctx context.Context, host *conform.TaskServer, vectors fs.FS) (report conform.Report, err error) {
	defer func() { err = errors.Join(err, host.Close(context.WithoutCancel(ctx))) }()
	if err := host.Open(ctx); err != nil {
		return report, err
	}
	return conform.RunTasks(ctx, vectors, host)
}
