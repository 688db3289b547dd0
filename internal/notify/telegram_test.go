package notify_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/notify/telegram/telegramtest"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// telegramAPI is a Telegram whose calls a test takes in order.
type telegramAPI struct {
	calls
	*telegramtest.API
}

func newTelegramAPI(t *testing.T) *telegramAPI {
	f := &telegramAPI{calls: newCalls(t)}
	f.API = telegramtest.New(t, func(c telegramtest.Call) { f.got <- call{c.Method, c.Values} })
	return f
}

func (f *telegramAPI) bot(n *node) notify.Channel {
	b, err := telegram.NewBot(telegram.Options{
		Token: wire.NewSecret(telegramtest.Token), Chat: "-1001", API: f.URL, HTTP: n.client,
		Log: n.notifierLog(), Hold: n.Ledger.Hold,
	})
	if err != nil {
		n.T.Fatal(err)
	}
	return b
}

// startTelegram runs a node whose only channel is a bot of Telegram.
func startTelegram(t *testing.T, address string) (*telegramAPI, *node) {
	t.Helper()
	f := newTelegramAPI(t)
	return f, start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.bot(n)} })
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
		f, n := startTelegram(t, address)
		n.operator("ann", "operator", map[string]string{"telegram": "77"})
		n.operator("eve", "viewer", map[string]string{"telegram": "88"})
		f.Limit.Store(true) // what is asked for is waited
		id := n.open()
		sent := f.next("sendMessage")
		buttons := keyboard(t, sent)
		if sent.values["chat_id"] != "-1001" || sent.values["parse_mode"] != "HTML" || len(buttons) != 2 ||
			!strings.Contains(sent.values["text"], "<b>Decision needed: Pay invoice 42</b>") ||
			!strings.Contains(sent.values["text"], base+"/ui/inbox/"+id) {
			t.Errorf("%v", sent.values)
		}
		for user, says := range map[int64]string{99: "not known here as an operator", 88: "eve may not decide"} {
			f.Press(user, buttons["Approve"])
			if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], says) ||
				said.values["show_alert"] != "true" {
				t.Errorf("%v", said.values)
			}
		}
		f.Press(77, "a:"+id+":forged")
		if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], "not one of this server") {
			t.Errorf("%v", said.values)
		}
		if n.get(id).Status != gate.Pending {
			t.Fatal("it was decided")
		}
		f.Press(88, buttons["Reject"])
		if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], "eve may not decide") {
			t.Errorf("%v", said.values)
		}
		f.Press(77, buttons["Reject"])
		question := f.next("sendMessage")
		if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], "with the reason") ||
			!strings.Contains(question.values["reply_markup"], "force_reply") || n.get(id).Status != gate.Pending {
			t.Errorf("%v %v", said.values, question.values)
		}
		asked := question.values["text"]
		f.Write(-1001, 88, "Me too.", 2, asked)
		if said := f.next("sendMessage"); !strings.Contains(said.values["text"], "eve may not decide") {
			t.Errorf("%v", said.values)
		}
		f.Write(-1001, 77, "What do you think?", 2, "r:gate_x:another message of the bot") // no reason
		if said := f.next("sendMessage"); !strings.Contains(said.values["text"], "not one of this server") {
			t.Errorf("%v", said.values)
		}
		f.Write(-1001, 77, "Too expensive.", 2, asked)
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
		f.Press(77, buttons["Approve"])
		if said := f.next("answerCallbackQuery"); !strings.Contains(said.values["text"], "rejected by ann") {
			t.Errorf("%v", said.values)
		}
		if g := n.get(id); g.Status != gate.Rejected || g.Note != "Too expensive." {
			t.Errorf("%+v", g)
		}
		n.Stop()
		n.WantClean()
		n.wantNoSecrets(telegramtest.Token, "a-secret-token")
	})
}

// A press that cannot be recorded is told again, until it can.
func TestAVoteThatFailsIsNotLost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f, n := startTelegram(t, address)
		n.operator("ann", "operator", map[string]string{"telegram": "77"})
		id := n.open()
		approve := keyboard(t, f.next("sendMessage"))["Approve"]
		change := func(statement string) {
			n.Must(n.DB.Bookkeep(t.Context(), "ledger_tree", func(tx *store.Tx) error { tx.Exec(statement); return nil }))
		}
		change("ALTER TABLE gate_vote RENAME TO away")
		f.Press(77, approve)
		asked := f.Asked.Load()
		n.until("the press to be told again", func() bool { return f.Asked.Load() > asked+2 })
		if f.Unacknowledged() != 1 || n.get(id).Status != gate.Pending {
			t.Errorf("%d are not acknowledged", f.Unacknowledged())
		}
		change("ALTER TABLE away RENAME TO gate_vote")
		n.until("the gate to be approved", func() bool { return n.get(id).Status == gate.Approved })
		n.until("the press to be acknowledged", func() bool { return f.Unacknowledged() == 0 })
	})
}

func TestOneNodeAsksTelegram(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newTelegramAPI(t)
		bot := func(n *node) []notify.Channel { return []notify.Channel{f.bot(n)} }
		first := start(t, address, bot)
		first.until("the first asks", func() bool { return f.Asking.Load() == 1 })
		second := start(t, address, bot)
		first.open()
		f.next("sendMessage")
		if crowd := f.Crowd.Load(); crowd != 1 {
			t.Errorf("%d asked at a time", crowd)
		}
		before := f.Asked.Load()
		first.Stop() // Telegram may hear of it after the second has begun
		second.until("the second asks", func() bool { return f.Asked.Load() > before })
	})
}

func TestAReminderInTelegramAnswersTheFirstMessage(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f, n := startTelegram(t, address)
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
