// Package demo is `signalbox demo`: five agents of a small shop act against a running
// server, so that every page of the dashboard has something to show. Each file has the
// part of one protocol.
//
// The agents are ordinary clients (client, client/ahp, mail/mailbox, run/record, tasks
// over HTTP). Nothing here reaches into the server, and the policy in force stays as it
// is. So the story has to work under any policy: a refusal is part of it, and not an
// error.
//
// The demo may be run again and again, and beside other agents. It uses only agents with
// the label demo=yes, and what it cannot undo (entries, messages, tasks) is what the
// user asked to see.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	amp "signalbox/client"
	"signalbox/client/ahp"
	"signalbox/internal/address"
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/cli/task"
	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/mail/mailbox"
	"signalbox/internal/roster"
)

// The cast: one agent for each protocol. Three of them also have a part in tasks.
const (
	writer     = "campaign-writer"   // AMP v1.0 signals
	engineer   = "checkout-engineer" // AHP; executes tasks
	reviewer   = "code-reviewer"     // mail; reviews tasks
	lead       = "release-lead"      // tasks; coordinates them
	nightShift = "night-shift"       // runs of agent CLIs
	operator   = "demo-dana"
	// The label that marks agents as the demo's. checkRoom takes nobody else's.
	label = "demo"
)

// cast lists the agents with their trust and their role in tasks. The role, a label, decides
// who receives which messages of a task.
var cast = []struct{ name, trust, protocol, role string }{
	{writer, "standard", "signals", ""},
	{engineer, "standard", "harness", "executor"},
	{reviewer, "trusted", "mail", "reviewer"},
	{lead, "trusted", "tasks", "coordinator"},
	{nightShift, "standard", "runs", ""},
}

// New is the command `demo`.
func New(a *command.App) *command.Command {
	c := &command.Command{
		Use: "demo", Short: "Five agents, one per protocol, act against the running server",
		Long: "Five agents of a small shop act against the running server, each through the protocol it\n" +
			"speaks, so that every page of the dashboard has something to show: a newsletter that waits\n" +
			"for a person, a message in quarantine, a task in review, a run in progress. The policy in\n" +
			"force decides about all of it and is left alone.\n\n" +
			"The agents have the label demo=yes; what they did stays in the ledger. An operator named\n" + operator +
			" decides a few of the gates, and is removed at the end.",
		Example: `  signalbox demo
  signalbox demo --once --workspace playground`, Args: command.NoArguments(),
	}
	once := c.Flags().Bool("once", false, "end after one round")
	workspace := c.Flags().String("workspace", "default", "the workspace of the agents; created if it does not exist")
	c.RunE = func(c *command.Command, _ []string) error {
		d, err := stage(a, *workspace)
		if err != nil {
			return err
		}
		// end runs also when play failed half-way: an operator or a folder may exist by
		// then.
		return errors.Join(d.play(c.Context(), *once), d.end(c.Context()))
	}
	return c
}

// story is one run of the demo. Its five parts run concurrently in the first round and
// share only what is set before they start; the fields at the end belong to the live
// part, which is a single goroutine.
type story struct {
	*command.App
	api       *api.Client // the operator who has started it
	dana      *api.Client // the operator in the story
	workspace string
	dir       string // the mail folders of the agents
	// agents is filled by enter, before the parts start, and only read afterwards.
	agents  map[string]*actor
	hooks   *http.Server // what agents' webhooks reach, nil where the server could not
	hookURL string
	ended   sync.WaitGroup

	// goesOn is set after the first round, if the live part follows. It decides whether end
	// completes the run in progress.
	goesOn bool

	going *storyRun // the run in progress
	live  *session  // the session of the live part
	asked string    // the last gate of the live part
}

// actor is one of the five agents, with a client for each protocol that it speaks. All
// of them have every client, because most agents also send mail or take part in tasks.
type actor struct {
	name    string
	key     string
	signals *amp.Client
	box     *mailbox.Box
	task    *task.Caller
}

// stage prepares everything that needs no call to the server. The temporary folder it
// makes is removed by end.
func stage(a *command.App, workspace string) (*story, error) {
	c, err := a.Client()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "signalbox-demo-")
	return &story{App: a, api: c, workspace: workspace, dir: dir, agents: map[string]*actor{}}, err
}

// play plays the first round, says how many gates wait, and unless once is set goes on
// until ctx ends. The first part that fails ends the round, but only after the others
// are through.
func (d *story) play(ctx context.Context, once bool) error {
	began := time.Now()
	if err := d.enter(ctx); err != nil {
		return err
	}
	// Cancelled when play returns, so that no part goes on after an error of another.
	live, stop := context.WithCancel(ctx)
	defer stop()
	var acts errgroup.Group
	for _, act := range []func(context.Context) error{d.signals, d.harness, d.mail, d.tasks, d.runs} {
		acts.Go(func() error { return act(live) })
	}
	if err := acts.Wait(); err != nil {
		return err
	}
	// All pending gates of the server, also those of other agents: it is the number that
	// the user will see in the dashboard.
	var counted counter.Report
	if err := d.api.Call(ctx, api.Get("/ops/counters?by=day"), &counted); err != nil {
		return err
	}
	d.Out.Print("\n%s for you, after %.1f s. Decide at %s or with `signalbox gates watch`.",
		output.GatesWait(int(counted.Total.Gates.Waiting)), time.Since(began).Seconds(), d.api.Base+address.Dashboard.At())
	if once {
		return nil
	}
	d.goesOn = true
	d.Out.Print("The agents go on. Ctrl-C sends them home.")
	return d.goOn(live)
}

// report prints what an agent did, with its name in a column of its own.
func (d *story) report(who, format string, args ...any) {
	d.Out.Print("%-18s %s", who, fmt.Sprintf(format, args...))
}

// enter makes the agents and the operator, or takes over those that an earlier demo left
// behind. Nothing is made before checkRoom has passed.
func (d *story) enter(ctx context.Context) error {
	if err := d.makeWorkspace(ctx); err != nil {
		return err
	}
	if err := d.checkRoom(ctx); err != nil {
		return err
	}
	for _, c := range cast {
		a, err := d.register(ctx, c.name, c.trust, map[string]string{label: "yes", "protocol": c.protocol, "role": c.role})
		if err != nil {
			return err
		}
		d.agents[c.name] = a
	}
	d.listen(ctx)
	return d.hire(ctx)
}

// makeWorkspace makes the workspace unless it exists. It does not ask first: two demos
// that start at once would both find it missing.
func (d *story) makeWorkspace(ctx context.Context) error {
	err := d.api.Call(ctx, api.Post("/ops/workspaces", roster.NewWorkspace{Name: d.workspace}), nil)
	if fault.Is(err, fault.AlreadyExists) {
		return nil
	}
	return err
}

// checkRoom refuses to play where an agent of somebody else would get into the story:
// one with the name of an actor, whose keys and labels would be changed, or one with a
// role in tasks, which would receive the demo's tasks.
func (d *story) checkRoom(ctx context.Context) error {
	q := api.Query{"limit": 1000, "workspace": d.workspace}
	var page roster.AgentPage
	if err := d.api.Call(ctx, api.Find("/ops/agents", q), &page); err != nil {
		return err
	}
	for _, g := range page.Agents {
		if g.Labels[label] == "yes" {
			continue
		}
		for _, c := range cast {
			if g.Name == c.name || g.Labels["role"] != "" {
				return fault.New(fault.Conflict,
					"The agent %s of workspace %s is not the demo's and would get into its story. "+
						"Play it elsewhere with --workspace playground.", g.Name, d.workspace)
			}
		}
	}
	return nil
}

// register gives an agent an address with a key pair, as a mail client makes it, and one
// more key for all other protocols. An agent that exists keeps its history and its older
// keys.
func (d *story) register(ctx context.Context, name, trust string, labels map[string]string) (*actor, error) {
	if labels["role"] == "" {
		delete(labels, "role")
	}
	// The folder is new for each demo, so the key pair is too; the address stays the
	// same.
	box, err := mailbox.Init(mailbox.Where{Dir: filepath.Join(d.dir, name)}, name, d.workspace)
	if err != nil {
		return nil, err
	}
	if _, err := box.Register(ctx,
		mailbox.Joining{Server: d.api.Base, Tenant: d.workspace, UserKey: d.api.Token}); err != nil {
		return nil, err
	}
	goesOn := false // an agent that forwards injections is suspended after a few demos
	change := roster.AgentChange{Trust: &trust, Labels: &labels, Suspended: &goesOn}
	if err := d.api.Call(ctx, api.Patch(api.AgentPath(name, d.workspace), change), nil); err != nil {
		return nil, err
	}
	// Registration is part of the mail protocol and yields a mail key only.
	var issued roster.IssuedKey
	if err := d.api.Call(ctx,
		api.Post("/ops/keys", roster.IssueKey{Agent: name, Workspace: d.workspace, Kind: string(roster.SignalKey)}),
		&issued); err != nil {
		return nil, err
	}
	signals, err := amp.New(d.api.Base, issued.Secret, amp.WithAgent(name), amp.WithPatience(5*time.Second))
	return &actor{
		name: name, key: issued.Secret, signals: signals, box: box,
		task: &task.Caller{App: d.App, Key: issued.Secret},
	}, err
}

// hire adds the operator of the story, who is confined to the workspace. An operator of
// that name was left by a demo that was killed; its token is lost, so it is removed and
// added again.
func (d *story) hire(ctx context.Context) error {
	var added roster.AddedOperator
	err := d.api.Call(ctx,
		api.Post("/ops/operators", roster.NewOperator{Name: operator, Role: string(roster.Operator), Workspace: d.workspace}),
		&added)
	if fault.Is(err, fault.AlreadyExists) {
		if err = d.api.Call(ctx, api.Delete("/ops/operators/"+operator), nil); err == nil {
			return d.hire(ctx)
		}
	}
	d.dana = d.api.As(added.Token)
	return err
}

// listen starts a receiver for webhooks, so that the page of deliveries shows one that
// succeeded, one that was given up, and one that is retried. It needs a server on this
// machine: any other could not reach it. Without it the story has no webhooks, and is
// otherwise the same.
func (d *story) listen(ctx context.Context) {
	u, err := url.Parse(d.api.Base)
	if err != nil || !api.IsLoopback(u.Hostname()) {
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	mux := http.NewServeMux()
	for path, status := range map[string]int{
		"/taken": http.StatusNoContent, "/gone": http.StatusGone,
		"/overloaded": http.StatusServiceUnavailable,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	d.hooks, d.hookURL = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, "http://"+
		listener.Addr().String()
	d.ended.Go(func() { _ = d.hooks.Serve(listener) })
}

// hook is the address for a webhook, or "" if nothing listens; an empty address means no
// webhook.
func (d *story) hook(path string) string {
	if d.hooks == nil {
		return ""
	}
	return d.hookURL + path
}

// decide votes as the operator of the story. The policy may ask for somebody else, or a
// person may have been faster at the dashboard. Both are fine: the gate is then theirs.
func (d *story) decide(ctx context.Context, gateID string, approve bool, note string) error {
	verb := map[bool]string{true: api.Approve, false: api.Reject}[approve]
	var shown gate.Gate
	if err := d.dana.Call(ctx, api.Get(api.GatePath(gateID)), &shown); err != nil {
		return err
	}
	err := d.dana.Call(ctx, api.Decide(gateID, verb, gate.Decision{Note: note, Digest: shown.Digest}), nil)
	if fault.Is(err, fault.Forbidden) || fault.Is(err, fault.AlreadyResolved) {
		return nil
	}
	return err
}

// end closes everything in the reverse order of its making, within ten seconds, also
// after Ctrl-C: hence a context that is not cancelled. The agents stay, since their
// entries refer to them.
func (d *story) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if d.hooks != nil {
		_ = d.hooks.Close()
	}
	// Without --once the run is finished. With it the run should be seen in progress.
	if d.going != nil {
		d.going.leave(d.goesOn)
	}
	if d.live != nil {
		// The context that the session began with may be cancelled, and the end has to
		// be sent.
		d.live.ctx = ctx
		d.live.notify(ahp.SessionEnd, map[string]any{"reason": "the demo is over"})
		_ = d.live.close()
	}
	d.ended.Wait()
	var err error
	if d.dana != nil {
		err = d.api.Call(ctx, api.Delete("/ops/operators/"+operator), nil)
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
