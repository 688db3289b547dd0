package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/notify"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/notify/telegram/telegramtest"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/bridge"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/runtest"
	"signalbox/internal/store"
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

// next waits for a call whose text contains the words.
func (a *api) next(method, words string) telegramtest.Call {
	a.t.Helper()
	for {
		c := testbed.Receive(a.t, fmt.Sprintf("%s with %q", method, words), a.calls)
		if c.Method == method && strings.Contains(c.Values["text"]+c.Values["caption"], words) {
			return c
		}
	}
}

// node is a server with a bridge.
type node struct {
	*ledgertest.Node
	address string
	runs    *run.Runs
	started chan string
	bridge  *bridge.Bridge
}

func start(t *testing.T, address string, a *api, folder string, change ...func(*bridge.Options, *run.Options)) *node {
	t.Helper()
	base, core := runtest.Open(t, address, ledgertest.Part{Migrations: deliver.Migrations, Projection: deliver.Projection()},
		ledgertest.Part{Migrations: bridge.Migrations, Projection: bridge.Projection()})
	l, log := base.Ledger, core.Log
	people := roster.New(roster.Options{DB: base.DB, Ledger: l, Now: time.Now, Log: log, Provider: "signalbox.local"})
	outbox, err := deliver.New(deliver.Options{
		DB: base.DB, Ledger: l, Key: make([]byte, 32), Poll: time.Millisecond, Pauses: []time.Duration{time.Millisecond},
	})
	base.Must(err)
	n := &node{Node: base, address: address, started: make(chan string, 100)}
	runs := run.Options{
		Budget: run.Budget{Tokens: 1e6}, Folders: []string{folder},
		Supervise: func(id string) error { n.started <- id; return nil },
	}
	bot, err := telegram.NewBot(telegram.Options{
		Token: wire.NewSecret(telegramtest.Token), Chat: fmt.Sprint(group), API: a.URL,
		HTTP: notify.NewClient(), Files: notify.NewFileClient(telegram.MaxFile + 1), Log: log, Hold: l.Hold,
	})
	base.Must(err)
	o := bridge.Options{
		Bot: bot, Folders: []string{folder}, Every: time.Millisecond, Engine: func() string { return "claude" },
	}
	core.Roster, core.Outbox, core.BaseURL = people, outbox, "https://box.example"
	for _, fn := range change {
		fn(&o, &runs)
	}
	n.runs = run.New(core, runs)
	n.bridge = bridge.New(core, n.runs, o)
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
	base.Run(n.bridge.Run, outbox.Run,
		func(ctx context.Context) error {
			return bot.Listen(ctx, notify.New(notify.Options{Roster: people, Outbox: outbox}))
		})
	return n
}

// report reports events of a run as its supervisor does.
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

// next is the next run that was started.
func (n *node) next() run.Run {
	n.T.Helper()
	r, err := n.runs.Get(n.T.Context(), testbed.Receive(n.T, "a run", n.started))
	n.Must(err)
	return r
}

const (
	started = `{"type":"started","engine":"claude","resume":{"engine":"claude","value":"c1"},"title":"x","meta":{}}`
	acted   = `{"type":"action","engine":"claude","action":{"id":"a","kind":"command","title":"go test <all>",` +
		`"detail":{}},"phase":"started","ok":null,"message":null,"level":null}`
)

// completed is the end of a run with an answer.
func completed(answer string) string {
	text, _ := wire.Marshal(answer)
	return `{"type":"completed","engine":"claude","ok":true,"answer":` + string(text) + `,"resume":{"engine":"claude",` +
		`"value":"c1"},"error":null,"usage":null}`
}

func TestARunFromAMessageToItsAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a, folder := newAPI(t), t.TempDir()
		n := start(t, address, a, folder)
		base := filepath.Base(folder)

		a.Write(group, 99, "/claude delete everything", 0, "")
		a.next("sendMessage", "You are not known here as an operator")
		a.Write(group, 88, "/claude delete everything", 0, "")
		a.next("sendMessage", "runs need the role operator")
		a.Write(group, 77, "good morning all", 0, "") // not for the bot
		a.Write(group, 77, "/claude", 0, "")
		a.next("sendMessage", "Say what the agent is to do")
		if got := len(n.Entries(bridge.Heard)); got != 1 {
			t.Errorf("%d messages were recorded: strangers and talk leave no trace", got)
		}

		asked := a.Write(group, 77, "/claude@our_bot /"+base+" fix the tests", 0, "")
		a.next("sendMessage", "It is stopped at 1000000 tokens")
		message := a.next("sendMessage", "starting · claude").Message
		r := n.next()
		if r.Engine != "claude" || r.Prompt != "fix the tests" || r.Dir == "" || r.OpenedBy != "operator:ann" {
			t.Fatalf("%+v", r)
		}
		n.report(r.ID, 1, started, acted)
		shown := a.next("editMessageText", "▸ go test <all>")
		if shown.Values["message_id"] != fmt.Sprint(message) || !strings.Contains(shown.Values["reply_markup"], "run:"+r.ID) ||
			!strings.Contains(shown.Values["text"], "of 1000000 tokens") {
			t.Errorf("%v", shown.Values)
		}
		n.report(r.ID, 3, completed("All green."))
		over := a.next("editMessageText", "completed · claude")
		if strings.Contains(over.Values["reply_markup"], "run:") {
			t.Errorf("%v", over.Values)
		}
		final := a.next("sendMessage", "All green.") // which notifies
		if !strings.Contains(final.Values["text"], "↩️ `claude --resume c1`") ||
			!strings.Contains(final.Values["reply_parameters"], fmt.Sprint(asked)) {
			t.Errorf("%v", final.Values)
		}

		a.Write(group, 77, "and now the docs", final.Message, "cut by Telegram")
		message = a.next("sendMessage", "starting · claude").Message
		next := n.next()
		if next.Resume != "c1" || next.Prompt != "and now the docs" || next.Dir != r.Dir {
			t.Errorf("%+v", next)
		}
		a.Press(88, "run:"+next.ID)
		a.next("answerCallbackQuery", "runs need the role operator")
		a.Press(77, "run:"+next.ID)
		a.next("answerCallbackQuery", "told to stop")
		if r, err := n.runs.Get(t.Context(), next.ID); err != nil || r.Stop != "cancelled in Telegram by ann" {
			t.Errorf("%v %+v", err, r)
		}
		a.Press(77, "other:gate_1:x")
		a.next("answerCallbackQuery", "not one of this server") // a gate's, as far as runs know
		a.Write(group, 77, "/stop", message, "")
		a.next("sendMessage", "told to stop")
		a.Write(group, 77, "/runs", 0, "")
		if list := a.next("sendMessage", next.ID).Values["text"]; !strings.Contains(list, r.ID) ||
			!strings.Contains(list, "fix the tests") {
			t.Errorf("%s", list)
		}

		// A run that ends while nobody tells of it is told of afterwards.
		n.Stop()
		n = start(t, address, a, folder)
		n.report(next.ID, 1, completed("Nothing to do."))
		a.next("sendMessage", "Nothing to do.")
		a.Write(group, 77, "/stop", 0, "")
		a.next("sendMessage", "No run of this chat is running")
		n.Stop()
		n.WantClean("chat_heard", "chat_run", "chat_session", "chat_told", "chat_post")
	})
}

// A person's own chat with the bot.
const private = 77

func TestAChatGoesOnWithItsSession(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a, folder := newAPI(t), t.TempDir()
		n := start(t, address, a, folder)
		a.Write(private, 77, "fix it", 0, "")
		first := n.next()
		a.Write(private, 77, "and the docs", 0, "") // before the CLI has told its session
		n.report(first.ID, 1, started)
		second := n.next()
		if first.Resume != "" || second.Resume != "c1" || second.Engine != "claude" || second.Prompt != "and the docs" {
			t.Fatalf("%+v %+v", first, second)
		}
		n.report(first.ID, 2, completed("Fixed."))
		n.report(second.ID, 1, completed("Written."))
		n.Stop()
		n = start(t, address, a, folder) // which remembers it
		a.Write(private, 77, "once more", 0, "")
		third := n.next()
		a.Write(private, 77, "/pi and what do you think?", 0, "") // another engine knows nothing of the session
		other := n.next()
		if third.Resume != "c1" || other.Engine != "pi" || other.Resume != "" || other.Dir != first.Dir {
			t.Errorf("%+v %+v", third, other)
		}
		a.Write(private, 77, "/new", 0, "")
		a.next("sendMessage", "begins a new session")
		a.Write(private, 77, "hello", 0, "")
		fresh := n.next()
		if fresh.Engine != "pi" || fresh.Resume != "" || fresh.Dir != first.Dir {
			t.Errorf("%+v", fresh)
		}
		a.Write(private, 77, "/new /claude hello", 0, "")
		if r := n.next(); r.Engine != "claude" || r.Resume != "" {
			t.Errorf("%+v", r)
		}
		a.Write(private, 77, "/new /read explain /full", 0, "")
		if r := n.next(); r.Mode != engine.Read || r.Resume != "" || r.Prompt != "explain /full" {
			t.Errorf("%+v", r)
		}
		a.Write(private, 77, "go on\n`claude --resume c9`", 0, "")
		if r := n.next(); r.Resume != "c9" {
			t.Errorf("%+v", r)
		}
		n.Stop()
		n.WantClean()
	})
}

func TestNothingThatWasWrittenIsLostWhenTheServerIsKilled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a, folder := newAPI(t), t.TempDir()
		n := start(t, address, a, folder)
		a.Write(private, 77, "one", 0, "")
		n.next()
		n.Stop()
		for i := range 5 { // while no server runs
			a.Write(private, 77, fmt.Sprintf("/new prompt %d", i), 0, "")
		}
		n = start(t, address, a, folder)
		for i := range 5 {
			if r := n.next(); r.Prompt != fmt.Sprintf("prompt %d", i) {
				t.Errorf("%+v", r)
			}
		}
		testbed.Until(t, "all messages to be acknowledged", func() bool { return a.Unacknowledged() == 0 })
		n.Stop()
		if got := n.Entries(bridge.Heard); len(got) != 6 {
			t.Errorf("%d messages were recorded", len(got))
		}
		n.WantClean()
	})
}

func TestAMessageThatCannotBeRecordedIsNotAcknowledged(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder)
	testbed.Until(t, "the bot to ask", func() bool { return a.Asked.Load() > 0 })
	n.Stop()
	asked := a.Asked.Load()
	a.Write(private, 77, "fix it", 0, "")
	// The bot asks, and hears of it, over a ledger that has stopped.
	bot, err := telegram.NewBot(telegram.Options{
		Token: wire.NewSecret(telegramtest.Token), Chat: fmt.Sprint(group), API: a.URL, HTTP: notify.NewClient(),
		Log: slog.New(slog.DiscardHandler), Hold: func(ctx context.Context, _ string, fn func(context.Context) error) error { return fn(ctx) },
	})
	n.Must(err)
	heard := make(chan string, 100)
	bot.Converse(telegram.Talk{Prefix: "run:", Hear: func(_ context.Context, m telegram.Said) error {
		heard <- m.Text
		return errors.New("the ledger takes no writes")
	}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- bot.Listen(ctx, nil) }()
	testbed.Receive(t, "the message", heard)
	stop()
	if err := <-done; err != nil || a.Unacknowledged() != 1 || a.Asked.Load() == asked {
		t.Errorf("%v, %d are unacknowledged", err, a.Unacknowledged())
	}
	n = start(t, storetest.SQLite(t), a, folder)
	if r := n.next(); r.Prompt != "fix it" {
		t.Errorf("%+v", r)
	}
}

func TestAPressThatFailsIsNotLost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a, folder := newAPI(t), t.TempDir()
		n := start(t, address, a, folder)
		a.Write(private, 77, "fix it", 0, "")
		r := n.next()
		change := func(statement string) {
			n.Must(n.DB.Bookkeep(t.Context(), "ledger_tree", func(tx *store.Tx) error { tx.Exec(statement); return nil }))
		}
		testbed.Until(t, "the message to be acknowledged", func() bool { return a.Unacknowledged() == 0 })
		change("ALTER TABLE run RENAME TO away")
		a.Press(77, "run:"+r.ID)
		asked := a.Asked.Load()
		testbed.Until(t, "the press to be told again", func() bool { return a.Asked.Load() > asked+2 })
		if a.Unacknowledged() != 1 {
			t.Error("it is acknowledged")
		}
		change("ALTER TABLE away RENAME TO run")
		a.next("answerCallbackQuery", "told to stop")
		testbed.Until(t, "the press to be acknowledged", func() bool { return a.Unacknowledged() == 0 })
		if r, err := n.runs.Get(t.Context(), r.ID); err != nil || r.Stop != "cancelled in Telegram by ann" {
			t.Errorf("%v %+v", err, r)
		}
	})
}

func TestAMessageThatIsToldTwiceStartsOneRun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a, folder := newAPI(t), t.TempDir()
		n := start(t, address, a, folder)
		a.Again.Store(true)
		a.Write(private, 77, "fix it", 0, "")
		r := n.next()
		testbed.Until(t, "both to be acknowledged", func() bool { return a.Unacknowledged() == 0 })
		a.Write(private, 77, "/runs", 0, "")
		if list := a.next("sendMessage", r.ID); strings.Count(list.Values["text"], "run_") != 1 {
			t.Errorf("%v", list.Values)
		}
	})
}

func TestALongAnswerIsSplitAtParagraphs(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder)
	a.Write(private, 77, "explain", 0, "")
	r := n.next()
	var paragraphs []string
	for i := range 3 {
		paragraphs = append(paragraphs, fmt.Sprintf("%d%s", i, strings.Repeat(" wörd", 500)))
	}
	n.report(r.ID, 1, started, completed(strings.Join(paragraphs, "\n\n")))
	for i, paragraph := range paragraphs {
		got := a.next("sendMessage", fmt.Sprintf("(%d/3)", i+1)).Values["text"]
		if !strings.Contains(got, paragraph) {
			t.Errorf("part %d does not have its paragraph: %.80s", i, got)
		}
	}

	a.Write(private, 77, "/new explain all of it", 0, "")
	long := strings.Repeat("A sentence of an answer.\n\n", 2000) + "the end"
	n.report(n.next().ID, 1, started, completed(long))
	a.next("sendMessage", "goes on in the file")
	if file := a.next("sendDocument", ""); file.Values["document"] != long || file.Values["document_name"] != "answer.md" {
		t.Errorf("%d bytes of %d", len(file.Values["document"]), len(long))
	}
}

func TestFilesGoBothWays(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder)
	number := a.Send(private, 77, "summarise this", "../../etc/pass wd.txt", []byte("content"))
	r := n.next()
	path := fmt.Sprintf("incoming/%d-pass_wd.txt", number)
	if !strings.HasPrefix(r.Prompt, "summarise this") || !strings.HasSuffix(r.Prompt, ": "+path) {
		t.Errorf("%q", r.Prompt)
	}
	if got := testbed.Read(t, filepath.Join(folder, path)); string(got) != "content" {
		t.Errorf("%q", got)
	}
	n.report(r.ID, 1, started, completed("Done."))
	number = a.Send(private, 77, "", "data.csv", []byte("1,2"))
	a.next("sendMessage", fmt.Sprintf("Saved as incoming/%d-data.csv", number))
	a.Send(private, 77, "and this", "large.bin", make([]byte, telegram.MaxFile+1))
	a.next("sendMessage", "bots may take")
	n.Stop()
	a.Send(private, 77, "and this", "gone.txt", []byte("x"))
	a.Forget()
	n = start(t, n.address, a, folder)
	a.next("sendMessage", "Telegram does not hand out the file")

	// What the agent has put in the way is not followed.
	outside := t.TempDir()
	n.Must(os.RemoveAll(filepath.Join(folder, "incoming")))
	n.Must(os.Symlink(outside, filepath.Join(folder, "incoming")))
	a.Send(private, 77, "", "escape.txt", []byte("x"))
	a.next("sendMessage", "cannot be stored")
	if found, err := os.ReadDir(outside); err != nil || len(found) != 0 {
		t.Errorf("%v %v", err, found)
	}

	testbed.Write(t, filepath.Join(folder, "report.txt"), "all is well")
	testbed.Write(t, filepath.Join(outside, "secret.txt"), "secret")
	n.Must(os.Symlink(filepath.Join(outside, "secret.txt"), filepath.Join(folder, "link.txt")))
	n.Must(syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600))
	a.Write(private, 77, "/file report.txt", 0, "")
	if got := a.next("sendDocument", ""); got.Values["document"] != "all is well" || got.Values["document_name"] != "report.txt" {
		t.Errorf("%v", got.Values)
	}
	for _, path := range []string{"link.txt", "../" + filepath.Base(outside) + "/secret.txt", outside + "/secret.txt", "pipe", "nothing"} {
		a.Write(private, 77, "/file "+path, 0, "")
		got := testbed.Receive(t, "an answer about "+path, a.calls)
		if got.Method != "sendMessage" || !strings.Contains(got.Values["text"], "is not a file") &&
			!strings.Contains(got.Values["text"], "There is no file") {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestTheTokenAndTheChatAreEnough(t *testing.T) {
	a, home := newAPI(t), filepath.Join(t.TempDir(), "runs")
	n := start(t, storetest.SQLite(t), a, "", func(o *bridge.Options, r *run.Options) {
		o.Folders, o.Home, r.Folders, r.Budget = nil, home, nil, run.Budget{}
		r.Limits = func(engine string) run.Limits {
			return map[string]run.Limits{"gemini": {Total: 24 * 3600}, "codex": {Total: 600}}[engine]
		}
	})
	a.Write(private, 77, "fix it", 0, "")
	a.next("sendMessage", "It is stopped at $2.00. `signalbox config set runs.budget_usd 5` sets another budget.")
	if r := n.next(); r.Budget.USD != 2 || r.Dir != home || r.Limits.Total != 0 {
		t.Errorf("%+v", r)
	}
	a.Write(private, 77, "/gemini fix it", 0, "")
	a.next("sendMessage", "gemini cannot be held to a budget here, so it is stopped after 30 min.")
	r := n.next()
	if r.Budget != (run.Budget{}) || r.Limits.Total != 1800 {
		t.Errorf("%+v", r)
	}
	a.Write(private, 77, "/codex fix it", 0, "") // of which the operator has set less
	a.next("sendMessage", "so it is stopped after 10 min.")
	if r := n.next(); r.Limits.Total != 600 {
		t.Errorf("%+v", r)
	}
	// The folder is for messages: POST /runs starts none there.
	if _, err := n.runs.Open(t.Context(), roster.Identity{Role: roster.Admin}, run.Request{
		Engine: "claude", Prompt: "x", Dir: home, Budget: run.Budget{USD: 1},
	}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("%v", err)
	}
}

func TestAChatIsToldWhereAPersonIsAwaited(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder)
	a.Write(private, 77, "deploy it", 0, "")
	r := n.next()
	opening := gate.Opening{
		Agent: "agent_1", AgentName: "coder", Requester: "agent:agent_1", Shown: gate.Shown{Title: "make deploy"},
		Origin: gate.Origin{Protocol: "harness", Reference: "s", Run: r.ID},
	}
	gatetest.Open(n.Node, "other", opening) // whose agent only says so
	id := gatetest.Open(n.Node, "default", opening)
	got := a.next("sendMessage", "Waits for a person").Values["text"]
	if !strings.Contains(got, "make deploy (coder asks)\nhttps://box.example/ui/inbox/"+id) {
		t.Errorf("%s", got)
	}
}

func TestWithoutASettingOnlyAdminsOfAllWorkspacesStartRuns(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder, func(o *bridge.Options, _ *run.Options) { o.Admins = true })
	a.Write(private, 77, "fix it", 0, "")
	a.next("sendMessage", "config set runs.telegram true")
	if got := n.Entries(bridge.Heard); len(got) != 0 {
		t.Errorf("%d messages were recorded", len(got))
	}
}

func TestAMessageMayNameAnyFolderThatIsAllowedAndNoOther(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder)
	a.Write(group, 77, "/amp "+folder+"/../.. read it all", 0, "")
	a.next("sendMessage", "Runs may not work in")
	select {
	case id := <-n.started:
		t.Errorf("%s was started", id)
	default:
	}
}
