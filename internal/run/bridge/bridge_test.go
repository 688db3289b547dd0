package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/notify"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/notify/telegram/telegramtest"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/bridge"
	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// group is the chat that the bot is in.
const group = -5

// api is a Telegram whose calls a test looks for.
type api struct {
	*telegramtest.API
	t     *testing.T
	calls chan telegramtest.Call
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, calls: make(chan telegramtest.Call, 100)}
	a.API = telegramtest.New(t, func(c telegramtest.Call) { a.calls <- c })
	return a
}

// write has a user write to the group; reply is the text of the bot's message that it answers.
func (a *api) write(user int64, text string, replyTo int64, reply string) {
	a.Write(group, user, text, replyTo, reply)
}

// next waits for a call whose text contains the words.
func (a *api) next(method, words string) telegramtest.Call {
	a.t.Helper()
	for {
		c := testbed.Receive(a.t, fmt.Sprintf("%s with %q", method, words), a.calls)
		if c.Method == method && strings.Contains(c.Values["text"], words) {
			return c
		}
	}
}

type node struct {
	*ledgertest.Node
	runs    *run.Runs
	started chan string
}

func start(t *testing.T, address string, a *api, folder string) *node {
	t.Helper()
	base, core := runtest.Open(t, address)
	l, log := base.Ledger, core.Log
	people := roster.New(roster.Options{DB: base.DB, Ledger: l, Now: time.Now, Log: log, Provider: "signalbox.local"})
	n := &node{Node: base, started: make(chan string, 10)}
	n.runs = run.New(core, run.Options{
		Budget: run.Budget{Tokens: 1e6}, Folders: []string{folder},
		Supervise: func(id string) error { n.started <- id; return nil },
	})
	bot, err := telegram.NewBot(telegram.Options{
		Token: wire.NewSecret(telegramtest.Token), Chat: fmt.Sprint(group), API: a.URL,
		HTTP: notify.NewClient(), Log: log, Hold: l.Hold,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := bridge.New(l,
		bridge.Options{Runs: n.runs, Roster: people, Bot: bot, Folders: []string{folder}, Log: log, Every: time.Millisecond})
	base.Run()
	base.Must(people.Bootstrap(t.Context()))
	admin := roster.Identity{Role: roster.Admin}
	for name, contact := range map[string]string{"ann": "77", "eve": "88"} {
		role := roster.Operator
		if name == "eve" {
			role = roster.Viewer
		}
		_, _, _ = people.AddOperator(t.Context(), admin, name, string(role), "") // there on a second start
		if _, err := people.ChangeOperator(t.Context(), admin, name,
			roster.OperatorChange{Contacts: map[string]string{"telegram": contact}}); err != nil {
			t.Fatal(err)
		}
	}
	base.Run(b.Run, func(ctx context.Context) error { return bot.Listen(ctx, notify.New(notify.Options{Roster: people})) })
	return n
}

func (n *node) report(id string, from int64, events ...string) {
	n.T.Helper()
	var all []run.Entry
	for _, e := range events {
		all = append(all, run.Entry{Event: wire.Raw(e)})
	}
	if _, err := n.runs.Report(n.T.Context(), roster.Identity{}, id, run.Report{From: from, Events: all}); err != nil {
		n.T.Fatal(err)
	}
}

const (
	started = `{"type":"started","engine":"claude","resume":{"engine":"claude","value":"c1"},"title":"x","meta":{}}`
	acted   = `{"type":"action","engine":"claude","action":{"id":"a","kind":"command","title":"go test <all>",` +
		`"detail":{}},"phase":"started","ok":null,"message":null,"level":null}`
	completed = `{"type":"completed","engine":"claude","ok":true,"answer":"All green.","resume":{"engine":"claude",` +
		`"value":"c1"},"error":null,"usage":null}`
)

func TestARunFromAMessageToItsAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a, folder := newAPI(t), t.TempDir()
		n := start(t, address, a, folder)

		a.write(99, "/claude delete everything", 0, "")
		a.next("sendMessage", "You are not known here as an operator")
		a.write(88, "/claude delete everything", 0, "")
		a.next("sendMessage", "runs need the role operator")
		a.write(77, "good morning all", 0, "") // not for the bot
		a.write(77, "/claude", 0, "")
		a.next("sendMessage", "Say what the agent is to do")

		a.write(77, "/claude@our_bot /"+folder[strings.LastIndexByte(folder, '/')+1:]+" fix the tests", 0, "")
		message := a.next("sendMessage", "starting · claude").Message
		id := <-n.started
		r, err := n.runs.Get(t.Context(), id)
		if err != nil || r.Engine != "claude" || r.Prompt != "fix the tests" || r.Dir == "" || r.OpenedBy != "operator:ann" {
			t.Fatalf("%v %+v", err, r)
		}
		n.report(id, 1, started, acted)
		shown := a.next("editMessageText", "▸ go test <all>")
		if shown.Values["message_id"] != fmt.Sprint(message) || !strings.Contains(shown.Values["reply_markup"], "run:"+id) {
			t.Errorf("%v", shown.Values)
		}
		n.report(id, 3, completed)
		final := a.next("editMessageText", "All green.")
		if !strings.Contains(final.Values["text"], "↩️ `claude --resume c1`") ||
			strings.Contains(final.Values["reply_markup"], "run:") {
			t.Errorf("%v", final.Values)
		}

		a.write(77, "and now the docs", message, final.Values["text"])
		message = a.next("sendMessage", "starting · claude").Message
		next := <-n.started
		if r, err = n.runs.Get(t.Context(), next); err != nil || r.Resume != "c1" || r.Prompt != "and now the docs" {
			t.Errorf("%v %+v", err, r)
		}
		a.Press(88, "run:"+next)
		a.next("answerCallbackQuery", "runs need the role operator")
		a.Press(77, "run:"+next)
		a.next("answerCallbackQuery", "told to stop")
		if r, err = n.runs.Get(t.Context(), next); err != nil || r.Stop != "cancelled in Telegram by ann" {
			t.Errorf("%v %+v", err, r)
		}
		a.Press(77, "other:gate_1:x")
		a.next("answerCallbackQuery", "not one of this server") // a gate's, as far as runs know
		a.write(77, "/cancel", message, "")
		a.write(77, "/cancel", 4242, "")
		a.next("sendMessage", "Reply to the message of a running run")

		// A run that ends while nobody tells of it is told of afterwards.
		n.Stop()
		n = start(t, address, a, folder)
		n.report(next, 1, completed)
		a.next("editMessageText", "completed · claude")
	})
}

func TestAMessageMayNameAnyFolderThatIsAllowedAndNoOther(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder)
	a.write(77, "/amp "+folder+"/../.. read it all", 0, "")
	a.next("sendMessage", "starting")
	a.next("sendMessage", "Runs may not work in")
	select {
	case id := <-n.started:
		t.Errorf("%s was started", id)
	default:
	}
}
