package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/notify"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/bridge"
	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

const botToken = "4711:a-secret-token"

// call is one call of the Bot API.
type call struct {
	method string
	values map[string]string
}

// api is a Telegram, as far as we use it.
type api struct {
	t       *testing.T
	url     string
	calls   chan call
	updates chan string
	message atomic.Int64
	update  atomic.Int64
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, calls: make(chan call, 100), updates: make(chan string, 10)}
	a.message.Store(100)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /bot"+botToken+"/{method}", a.serve)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	a.url = s.URL
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseMultipartForm(1 << 20)
	if r.PathValue("method") == "getUpdates" {
		select {
		case update := <-a.updates:
			_, _ = fmt.Fprintf(w, `{"ok":true,"result":[%s]}`, update)
		case <-time.After(100 * time.Millisecond):
			_, _ = fmt.Fprint(w, `{"ok":true,"result":[]}`)
		case <-r.Context().Done():
		}
		return
	}
	values := map[string]string{}
	for name := range r.Form {
		values[name] = r.Form.Get(name)
	}
	if r.PathValue("method") == "answerCallbackQuery" {
		_, _ = fmt.Fprint(w, `{"ok":true,"result":true}`)
	} else {
		id := a.message.Load()
		if r.PathValue("method") == "sendMessage" {
			id = a.message.Add(1)
		}
		_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"message_id":%d,"date":1,"chat":{"id":-5,"type":"group"}}}`, id)
	}
	a.calls <- call{r.PathValue("method"), values}
}

// write is a message of a user to the group; reply is the text of the bot's message that
// it answers.
func (a *api) write(user int64, text string, replyTo int64, reply string) {
	m := map[string]any{
		"message_id": 1, "date": 1, "chat": map[string]any{"id": -5, "type": "group"},
		"from": map[string]any{"id": user, "first_name": "x"}, "text": text,
	}
	if replyTo != 0 {
		m["reply_to_message"] = map[string]any{
			"message_id": replyTo, "date": 1,
			"chat": map[string]any{"id": -5, "type": "group"},
			"from": map[string]any{"id": 1, "is_bot": true, "first_name": "bot"}, "text": reply,
		}
	}
	a.send(map[string]any{"message": m})
}

func (a *api) press(user int64, data string) {
	a.send(map[string]any{"callback_query": map[string]any{
		"id":   "q",
		"from": map[string]any{"id": user, "first_name": "x"}, "chat_instance": "1", "data": data,
	}})
}

func (a *api) send(update map[string]any) {
	update["update_id"] = a.update.Add(1)
	text, err := json.Marshal(update)
	if err != nil {
		a.t.Fatal(err)
	}
	a.updates <- string(text)
}

// next waits for a call whose text contains the words.
func (a *api) next(method, words string) call {
	a.t.Helper()
	for {
		c := testbed.Receive(a.t, fmt.Sprintf("%s with %q", method, words), a.calls)
		if c.method == method && strings.Contains(c.values["text"], words) {
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
		Token: wire.NewSecret(botToken), Chat: "-5", API: a.url,
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
		a.next("sendMessage", "starting · claude")
		id, message := <-n.started, a.message.Load()
		r, err := n.runs.Get(t.Context(), id)
		if err != nil || r.Engine != "claude" || r.Prompt != "fix the tests" || r.Dir == "" || r.OpenedBy != "operator:ann" {
			t.Fatalf("%v %+v", err, r)
		}
		n.report(id, 1, started, acted)
		shown := a.next("editMessageText", "▸ go test <all>")
		if shown.values["message_id"] != fmt.Sprint(message) || !strings.Contains(shown.values["reply_markup"], "run:"+id) {
			t.Errorf("%v", shown.values)
		}
		n.report(id, 3, completed)
		final := a.next("editMessageText", "All green.")
		if !strings.Contains(final.values["text"], "↩️ `claude --resume c1`") ||
			strings.Contains(final.values["reply_markup"], "run:") {
			t.Errorf("%v", final.values)
		}

		a.write(77, "and now the docs", message, final.values["text"])
		a.next("sendMessage", "starting · claude")
		next, message := <-n.started, a.message.Load()
		if r, err = n.runs.Get(t.Context(), next); err != nil || r.Resume != "c1" || r.Prompt != "and now the docs" {
			t.Errorf("%v %+v", err, r)
		}
		a.press(88, "run:"+next)
		a.next("answerCallbackQuery", "runs need the role operator")
		a.press(77, "run:"+next)
		a.next("answerCallbackQuery", "told to stop")
		if r, err = n.runs.Get(t.Context(), next); err != nil || r.Stop != "cancelled in Telegram by ann" {
			t.Errorf("%v %+v", err, r)
		}
		a.press(77, "other:gate_1:x")
		a.next("answerCallbackQuery", "not one of this server") // a gate's, as far as runs know
		a.write(77, "/cancel", message, "")
		a.write(77, "/cancel", 4242, "")
		a.next("sendMessage", "Reply to the message of a running run")

		// A run that ends while nobody tells of it is told of afterwards.
		n.Stop()
		n = start(t, address, a, folder)
		n.report(next, 1, completed)
		a.next("editMessageText", "done · claude")
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
