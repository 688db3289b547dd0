// Package demo is `signalbox demo`: five agents of a small shop, one file for the part of each protocol,
// who act against a running server so that every page has something to show. Each is a client as any
// agent is (client, client/ahp, mail/mailbox, run/record, tasks over HTTP); nothing here reaches into
// the server, and the policy in force is left alone.
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
	label      = "demo"
)

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
		Example: "  signalbox demo\n  signalbox demo --once --workspace playground", Args: command.NoArguments(),
	}
	once := c.Flags().Bool("once", false, "end after one round")
	workspace := c.Flags().String("workspace", "default", "the workspace of the agents; made if it is not there")
	c.RunE = func(c *command.Command, _ []string) error {
		d, err := stage(a, *workspace)
		if err != nil {
			return err
		}
		return errors.Join(d.play(c.Context(), *once), d.end(c.Context()))
	}
	return c
}

// story is the demo as it is being played.
type story struct {
	*command.App
	api       *api.Client // the operator who has started it
	dana      *api.Client // the operator in the story
	workspace string
	dir       string // the mail folders of the agents
	agents    map[string]*actor
	hooks     *http.Server // what agents' webhooks reach, nil where the server could not
	hookURL   string
	ended     sync.WaitGroup

	goesOn bool // after the first round

	going *storyRun // the run in progress
	live  *session  // the session of the live part
	asked string    // the last gate of the live part
}

// actor is one of the five, with everything it speaks through.
type actor struct {
	name    string
	key     string
	signals *amp.Client
	box     *mailbox.Box
	task    *task.Caller
}

// stage gets everything ready that needs no server.
func stage(a *command.App, workspace string) (*story, error) {
	c, err := a.Client()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "signalbox-demo-")
	return &story{App: a, api: c, workspace: workspace, dir: dir, agents: map[string]*actor{}}, err
}

// play plays one round, and then goes on until ctx ends.
func (d *story) play(ctx context.Context, once bool) error {
	began := time.Now()
	if err := d.enter(ctx); err != nil {
		return err
	}
	live, stop := context.WithCancel(ctx)
	defer stop()
	var acts errgroup.Group
	for _, act := range []func(context.Context) error{d.signals, d.harness, d.mail, d.tasks, d.runs} {
		acts.Go(func() error { return act(live) })
	}
	if err := acts.Wait(); err != nil {
		return err
	}
	var page gate.GatePage
	if err := d.api.Call(ctx, api.Get("/ops/gates?status=pending&limit=100"), &page); err != nil {
		return err
	}
	d.Out.Print("\n%s for you, after %.1f s. Decide at %s or with `signalbox gates watch`.",
		output.GatesWait(len(page.Gates)), time.Since(began).Seconds(), d.api.Base+address.Dashboard.At())
	if once {
		return nil
	}
	d.goesOn = true
	d.Out.Print("The agents go on. Ctrl-C sends them home.")
	return d.goOn(live)
}

// say tells what an agent did.
func (d *story) say(who, format string, args ...any) {
	d.Out.Print("%-18s %s", who, fmt.Sprintf(format, args...))
}

// enter makes the agents and the operator, or finds them as the last demo left them.
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

func (d *story) makeWorkspace(ctx context.Context) error {
	err := d.api.Call(ctx, api.Post("/ops/workspaces", roster.NewWorkspace{Name: d.workspace}), nil)
	if fault.Is(err, fault.AlreadyExists) {
		return nil
	}
	return err
}

// checkRoom makes sure that no agent of somebody else's would get into the story: one of
// the same name, or one that plays a role in the same workspace's tasks.
func (d *story) checkRoom(ctx context.Context) error {
	q := url.Values{"limit": {"1000"}, "workspace": {d.workspace}}
	var page roster.AgentPage
	if err := d.api.Call(ctx, api.Get("/ops/agents?"+q.Encode()), &page); err != nil {
		return err
	}
	for _, g := range page.Agents {
		if g.Labels[label] == "yes" {
			continue
		}
		for _, c := range cast {
			if g.Name == c.name || g.Labels["role"] != "" {
				return fault.New(fault.Conflict,
					"The agent %s of workspace %s is not the demo's, and would get into its story. "+
						"Play it elsewhere with --workspace playground.", g.Name, d.workspace)
			}
		}
	}
	return nil
}

// register gets an agent its address, with a pair of keys as a mail client makes it, and
// a key for everything else.
func (d *story) register(ctx context.Context, name, trust string, labels map[string]string) (*actor, error) {
	if labels["role"] == "" {
		delete(labels, "role")
	}
	box, err := mailbox.Init(mailbox.Where{Dir: filepath.Join(d.dir, name)}, name, d.workspace)
	if err != nil {
		return nil, err
	}
	if _, err := box.Register(ctx,
		mailbox.Joining{Server: d.api.Base, Tenant: d.workspace, UserKey: d.api.Token}); err != nil {
		return nil, err
	}
	goesOn := false // who forwards injections is suspended after a few demos
	change := roster.AgentChange{Trust: &trust, Labels: &labels, Suspended: &goesOn}
	if err := d.api.Call(ctx, api.Patch(api.AgentPath(name, d.workspace), change), nil); err != nil {
		return nil, err
	}
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

// hire adds the operator of the story, who sees this workspace and no other.
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

// listen receives the agents' webhooks, if the server is on this machine: one address
// that takes them, one that is gone, and one that is overloaded.
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

// hook is an address for a webhook, "" where there can be none.
func (d *story) hook(path string) string {
	if d.hooks == nil {
		return ""
	}
	return d.hookURL + path
}

// decide decides a gate as the operator of the story. Where the policy wants somebody
// else, the gate waits for them.
func (d *story) decide(ctx context.Context, gateID string, approve bool, note string) error {
	verb := map[bool]string{true: api.Approve, false: api.Reject}[approve]
	err := d.dana.Call(ctx, api.Decide(gateID, verb, gate.Decision{Note: note}), nil)
	if fault.Is(err, fault.Forbidden) || fault.Is(err, fault.AlreadyResolved) {
		return nil
	}
	return err
}

// end sends everybody home, also after Ctrl-C.
func (d *story) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if d.hooks != nil {
		_ = d.hooks.Close()
	}
	if d.going != nil {
		d.going.leave(d.goesOn)
	}
	if d.live != nil {
		d.live.ctx = ctx
		d.live.tell(ahp.SessionEnd, map[string]any{"reason": "the demo is over"})
		_ = d.live.close()
	}
	d.ended.Wait()
	var err error
	if d.dana != nil {
		err = d.api.Call(ctx, api.Delete("/ops/operators/"+operator), nil)
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
