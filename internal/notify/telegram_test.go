package notify_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

const botToken = "4711:a-secret-token"

// telegramAPI is a Telegram, as far as we use it.
type telegramAPI struct {
	calls
	url     string
	limit   atomic.Bool
	forbid  atomic.Value // the chat that the bot may not write to
	message atomic.Int64
	updates chan string
	asking  atomic.Int64 // how many ask for updates at the moment
	crowd   atomic.Int64 // the most that ever did
}

func newTelegramAPI(t *testing.T) *telegramAPI {
	f := &telegramAPI{calls: newCalls(t), updates: make(chan string, 10)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /bot"+botToken+"/{method}", f.serve)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *telegramAPI) serve(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("method") == "getUpdates" {
		f.poll(w, r)
		return
	}
	if f.limit.Swap(false) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprint(w, `{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":1}}`)
		return
	}
	_ = r.ParseMultipartForm(1 << 20)
	values := map[string]string{}
	for name := range r.Form {
		values[name] = r.Form.Get(name)
	}
	if values["chat_id"] == f.forbid.Load() {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w,
			`{"ok":false,"error_code":403,"description":"Forbidden: bot can't initiate conversation with a user"}`)
		return
	}
	f.got <- call{r.PathValue("method"), values}
	if r.PathValue("method") == "answerCallbackQuery" {
		_, _ = fmt.Fprint(w, `{"ok":true,"result":true}`)
		return
	}
	_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"message_id":%d,"date":1,"chat":{"id":-1001,"type":"supergroup"}}}`,
		f.message.Add(1))
}

// poll answers when there is something, as Telegram does.
func (f *telegramAPI) poll(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseMultipartForm(1 << 20) // the server notices that a caller has gone when the body is read
	f.crowd.Store(max(f.crowd.Load(), f.asking.Add(1)))
	defer f.asking.Add(-1)
	select {
	case update := <-f.updates:
		_, _ = fmt.Fprintf(w, `{"ok":true,"result":[%s]}`, update)
	case <-time.After(200 * time.Millisecond):
		_, _ = fmt.Fprint(w, `{"ok":true,"result":[]}`)
	case <-r.Context().Done():
	}
}

var updateID atomic.Int64

// press presses a button in Telegram.
func (f *telegramAPI) press(user int64, data string) {
	text, _ := json.Marshal(map[string]any{"update_id": updateID.Add(1), "callback_query": map[string]any{
		"id": "q-1", "from": map[string]any{"id": user, "first_name": "x"}, "chat_instance": "1", "data": data,
	}})
	f.updates <- string(text)
}

func (f *telegramAPI) bot(n *node) notify.Channel {
	b, err := telegram.NewBot(telegram.Options{
		Token: wire.NewSecret(botToken), Chat: "-1001", API: f.url, HTTP: n.client,
		Log: n.notifierLog(), Hold: n.Ledger.Hold,
	})
	if err != nil {
		n.T.Fatal(err)
	}
	return b
}

// keyboard reads the buttons under a message: text to data.
func keyboard(t *testing.T, c call) map[string]string {
	t.Helper()
	var markup struct {
		Rows [][]struct {
			Text string
			Data string `json:"callback_data"`
		} `json:"inline_keyboard"`
	}
	if text := c.values["reply_markup"]; text != "" {
		if err := json.Unmarshal([]byte(text), &markup); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{}
	for _, row := range markup.Rows {
		for _, b := range row {
			all[b.Text] = b.Data
			if len(b.Data) > 64 {
				t.Errorf("a button carries %d bytes", len(b.Data))
			}
		}
	}
	return all
}

func TestAGateIsDecidedInTelegram(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newTelegramAPI(t)
		n := start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.bot(n)} })
		n.operator("ann", "operator", map[string]string{"telegram": "77"})
		n.operator("eve", "viewer", map[string]string{"telegram": "88"})
		f.limit.Store(true) // what is asked for is waited
		id := n.open()
		sent := f.next("sendMessage")
		buttons := keyboard(t, sent)
		if sent.values["chat_id"] != "-1001" || sent.values["parse_mode"] != "HTML" || len(buttons) != 2 ||
			!strings.Contains(sent.values["text"], "<b>Decision needed: Pay invoice 42</b>") ||
			!strings.Contains(sent.values["text"], base+"/ui/inbox/"+id) {
			t.Errorf("%v", sent.values)
		}
		for user, says := range map[int64]string{99: "not known here as an operator", 88: "eve may not decide"} {
			f.press(user, buttons["Approve"])
			if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], says) ||
				said.values["show_alert"] != "true" {
				t.Errorf("%v", said.values)
			}
		}
		f.press(77, "a:"+id+":forged")
		if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], "not one of this server") {
			t.Errorf("%v", said.values)
		}
		if n.get(id).Status != gate.Pending {
			t.Fatal("it was decided")
		}
		f.press(77, buttons["Reject"])
		var edited call
		for range 2 {
			got := <-f.got
			if got.method == "editMessageText" {
				edited = got
			} else if !strings.Contains(got.values["text"], "You have rejected this") {
				t.Errorf("%v", got)
			}
		}
		if edited.values["message_id"] != "1" || edited.values["chat_id"] != "-1001" || len(keyboard(t, edited)) != 0 ||
			!strings.Contains(edited.values["text"], "Rejected by ann") {
			t.Errorf("the outcome does not take the place of the buttons: %v", edited.values)
		}
		f.press(77, buttons["Approve"])
		if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], "rejected by ann") {
			t.Errorf("%v", said.values)
		}
		if g := n.get(id); g.Status != gate.Rejected || g.Note != "rejected in Telegram" {
			t.Errorf("%+v", g)
		}
		n.Stop()
		n.WantClean()
		n.wantNoSecrets(botToken, "a-secret-token")
	})
}

func TestOneNodeAsksTelegram(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newTelegramAPI(t)
		bot := func(n *node) []notify.Channel { return []notify.Channel{f.bot(n)} }
		first := start(t, address, bot)
		first.until("the first asks", func() bool { return f.asking.Load() == 1 })
		second := start(t, address, bot)
		first.open()
		f.next("sendMessage")
		first.Stop()
		second.until("the second asks", func() bool { return f.asking.Load() == 1 })
		if crowd := f.crowd.Load(); crowd != 1 {
			t.Errorf("%d asked at a time", crowd)
		}
	})
}

func TestAReminderInTelegramAnswersTheFirstMessage(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newTelegramAPI(t)
		n := start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.bot(n)} })
		n.operator("ann", "operator", map[string]string{"telegram": "77"})
		n.open(func(o *gate.Opening) {
			o.Risk = "high"
			o.Rules.Ladder = []gate.Step{{After: time.Minute.Microseconds(), Do: gate.Notify, Whom: []string{"ann"}}}
		})
		if sent := f.next("sendMessage"); len(keyboard(t, sent)) != 0 {
			t.Errorf("a gate of high risk has buttons: %v", sent.values)
		}
		n.Move(2 * time.Minute)
		sent, own := f.next("sendMessage"), f.next("sendMessage") // in any order
		if sent.values["chat_id"] != "-1001" {
			sent, own = own, sent
		}
		if own.values["chat_id"] != "77" || !strings.Contains(own.values["text"], "Still waits") {
			t.Errorf("she was not told herself: %v", own.values)
		}
		if !strings.Contains(sent.values["reply_parameters"], `"message_id":1`) ||
			!strings.Contains(sent.values["text"], `<a href="tg://user?id=77">ann</a>`) ||
			!strings.Contains(sent.values["text"], "Still waits") {
			t.Errorf("%v", sent.values)
		}
	})
}
