package notify_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/notify"
	"signalbox/internal/notify/slack"
	"signalbox/internal/roster"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

var key = bytes.Repeat([]byte("k"), 32)

const base = "https://signalbox.example"

// parts are what notices stand on.
func parts() []ledgertest.Part {
	return append(gatetest.Parts(),
		ledgertest.Part{Migrations: deliver.Migrations, Projection: deliver.Projection()},
		ledgertest.Part{Migrations: notify.Migrations, Projection: notify.Projection()})
}

// node is a server with gates and channels.
type node struct {
	*ledgertest.Node
	roster   *roster.Roster
	gates    *gate.Gates
	outbox   *deliver.Outbox
	notifier *notify.Notifier
	client   *http.Client
	logged   testbed.Buffer
}

// notifierLog is the log that channels write to.
func (n *node) notifierLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(&n.logged, nil))
}

// start runs a node with the channels it is given.
func start(t *testing.T, address string, channels func(n *node) []notify.Channel) *node {
	t.Helper()
	n := open(t, address, channels)
	n.run()
	return n
}

// open makes a node that does not run yet, apart from its ledger.
func open(t *testing.T, address string, channels func(n *node) []notify.Channel) *node {
	t.Helper()
	n := &node{client: notify.NewClient()}
	log := slog.New(slog.NewTextHandler(&n.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n.Node = ledgertest.Open(t, address, nil, parts(), func(o *ledger.Options) { o.Log = log })
	n.roster = roster.New(roster.Options{DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: log, Provider: "signalbox.local"})
	n.gates = gate.New(n.DB, n.Ledger, n.roster, log)
	n.gates.PromptOf(func(_ context.Context, _, run string) string { return "Ship it, as " + run + " was told" })
	var err error
	n.outbox, err = deliver.New(deliver.Options{
		DB: n.DB, Ledger: n.Ledger, Key: key, Allow: []string{"127.0.0.0/8"}, Now: n.Now, Log: log,
		Poll: 10 * time.Millisecond, Pauses: []time.Duration{50 * time.Millisecond}, Grace: time.Second,
	})
	n.Must(err)
	n.notifier = notify.New(notify.Options{
		DB: n.DB, Ledger: n.Ledger, Roster: n.roster, Gates: n.gates, Outbox: n.outbox, Key: key, Base: base,
		Channels: channels(n), Log: log,
	})
	t.Cleanup(n.client.CloseIdleConnections)
	n.Node.Run()
	n.Must(n.roster.Bootstrap(t.Context()))
	return n
}

// run runs what follows the ledger.
func (n *node) run() {
	timers := clock.New(n.DB, n.Ledger, n.Now, slog.New(slog.DiscardHandler), n.gates.Handlers())
	n.Node.Run(timers.Run, n.outbox.Run, n.notifier.Run)
	n.enrolled()
}

// enrolled waits until the channels are there, so that what happens next is told.
func (n *node) enrolled() {
	n.T.Helper()
	n.until("the channels are enrolled", func() bool {
		return n.Count("SELECT count(*) FROM notice_channel") == len(n.notifier.Channels)
	})
}

// until waits for what comes by itself.
func (n *node) until(what string, done func() bool) {
	n.T.Helper()
	testbed.Until(n.T, "it to come to it that "+what, done, &n.logged)
}

// operator adds an operator with contacts.
func (n *node) operator(name, role string, contacts map[string]string) {
	n.T.Helper()
	n.operatorIn(name, role, "", contacts)
}

// operatorIn adds one who is confined to a workspace.
func (n *node) operatorIn(name, role, workspace string, contacts map[string]string) {
	n.T.Helper()
	admin := roster.Identity{Role: roster.Admin}
	if _, _, err := n.roster.AddOperator(n.T.Context(), admin, name, role, workspace); err != nil {
		n.T.Fatal(err)
	}
	if _, err := n.roster.ChangeOperator(n.T.Context(), admin, name,
		roster.OperatorChange{Contacts: contacts}); err != nil {
		n.T.Fatal(err)
	}
}

// opening is a gate that an agent asks for.
func opening(change ...func(*gate.Opening)) gate.Opening {
	o := gate.Opening{
		Project: "billing", Agent: "agent_x", AgentName: "payer", Requester: "agent:payer",
		Origin: gate.Origin{Protocol: "test", Reference: "run-1"},
		Shown: gate.Shown{
			Title: "Pay invoice 42", Summary: "Read the invoice", ProposedAction: "Pay 100 EUR to ACME",
			Rule: "pay-needs-a-person", Reason: "Money leaves the house.",
		},
	}
	for _, fn := range change {
		fn(&o)
	}
	return o
}

func (n *node) open(change ...func(*gate.Opening)) string {
	n.T.Helper()
	return gatetest.Open(n.Node, "default", opening(change...))
}

func (n *node) get(id string) gate.Gate { n.T.Helper(); return gatetest.Get(n.Node, n.gates, id) }

// decide decides as somebody who used the API.
func (n *node) decide(id, name string, approve bool, note string) {
	n.T.Helper()
	who := roster.Identity{ID: "operator_" + name, Kind: roster.HolderOperator, Name: name, Role: roster.Operator}
	if _, err := n.gates.Vote(context.Background(), who, id, gate.Ballot{Approve: approve, Note: note}); err != nil {
		n.T.Fatal(err)
	}
}

// wantNoSecrets checks that none of the texts is in the ledger or in the log.
func (n *node) wantNoSecrets(secrets ...string) {
	n.T.Helper()
	entries, err := n.Ledger.Entries(context.Background(), ledger.Query{Limit: 1000})
	if err != nil {
		n.T.Fatal(err)
	}
	all := n.logged.String()
	for _, e := range entries {
		all += string(e.Record) + string(e.Body)
	}
	for _, secret := range secrets {
		if strings.Contains(all, secret) {
			n.T.Errorf("%q has got into the ledger or the log", secret)
		}
	}
}

// call is what a service was called with.
type call struct {
	method string
	values map[string]string
}

// calls are those that a service has got, in order.
type calls struct {
	t   *testing.T
	got chan call
}

func newCalls(t *testing.T) calls { return calls{t, make(chan call, 100)} }

// next is the next call, which must be of the method.
func (c calls) next(method string) call {
	c.t.Helper()
	got := testbed.Receive(c.t, "a call of "+method, c.got)
	if got.method != method {
		c.t.Fatalf("%s was called, and %s should be: %v", got.method, method, got.values)
	}
	return got
}

// none checks that nothing more was called.
func (c calls) none() {
	c.t.Helper()
	select {
	case got := <-c.got:
		c.t.Errorf("%s was called, and nothing should be: %v", got.method, got.values)
	default:
	}
}

// startWithChannels starts a node that tells an app of Slack, an incoming webhook of Slack, Telegram and ntfy.
func startWithChannels(t *testing.T, address string) (
	n *node, app, hook *slackAPI, tg *telegramAPI, nt *receiver,
) {
	t.Helper()
	app, hook, tg, nt = newSlackAPI(t), newSlackAPI(t), newTelegramAPI(t), newReceiver(t)
	n = start(t, address, func(n *node) []notify.Channel {
		return []notify.Channel{
			app.app(n), slack.NewHook(wire.NewSecret(hook.url+"/hook/T1/B1/a-secret-path"), n.client),
			tg.bot(n), nt.topic(n),
		}
	})
	return n, app, hook, tg, nt
}
