package notify_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/notify"
	"signalbox/internal/notify/ntfy"
	"signalbox/internal/notify/slack"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// receiver is a server that takes JSON: an ntfy, or what a webhook calls.
type receiver struct {
	calls
	url  string
	down atomic.Bool
}

func newReceiver(t *testing.T) *receiver {
	f := &receiver{calls: newCalls(t)}
	f.url = testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body)
		values := map[string]string{"body": string(body), "path": r.URL.Path}
		for name := range r.Header {
			values[name] = r.Header.Get(name)
		}
		f.got <- call{"POST", values}
	}))
	return f
}

func (f *receiver) topic(n *node) notify.Channel {
	topic, err := ntfy.NewTopic(wire.NewSecret(f.url+"/a-secret-topic"), wire.NewSecret("tk_a-secret"), n.client)
	if err != nil {
		n.T.Fatal(err)
	}
	return topic
}

func TestNtfyRingsByRisk(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newReceiver(t)
		n := start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.topic(n)} })
		for risk, priority := range map[string]float64{"low": 2, "medium": 3, "high": 5} {
			id := n.open(func(o *gate.Opening) { o.Risk = risk })
			got := f.next("POST")
			var m map[string]any
			if err := json.Unmarshal([]byte(got.values["body"]), &m); err != nil {
				t.Fatal(err)
			}
			if m["priority"] != priority || m["topic"] != "a-secret-topic" || m["click"] != base+"/ui/inbox/"+id ||
				m["title"] != "Decision needed: Pay invoice 42" || got.values["Authorization"] != "Bearer tk_a-secret" ||
				got.values["path"] != "/" {
				t.Errorf("%s: %v", risk, got.values)
			}
		}
		n.wantNoSecrets("a-secret")
	})
}

func TestAProgramIsToldOfEverythingAndCanCheckIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newReceiver(t)
		n := start(t, address, func(n *node) []notify.Channel {
			return []notify.Channel{notify.NewWebhook(n.outbox, wire.NewSecret(f.url+"/hooks/a-secret-path"), "hooks.example")}
		})
		f.down.Store(true)
		id := n.open(func(o *gate.Opening) {
			o.Rules.Ladder = []gate.Step{{After: 1, Do: gate.Notify, Whom: []string{"ann"}}}
		})
		n.until("it was told that it waits", func() bool { return n.Count("SELECT count(*) FROM notice") == 2 })
		n.decide(id, "ann", true, "fine")
		f.down.Store(false)
		secret := n.outbox.SecretFor("", "notify", 0).Reveal()
		seen := map[string]bool{}
		for _, event := range []string{"gate.opened", "gate.escalated", "gate.resolved"} {
			got := f.next("POST")
			var told struct {
				Event string
				Gate  map[string]any
			}
			if err := json.Unmarshal([]byte(got.values["body"]), &told); err != nil {
				t.Fatal(err)
			}
			want := "pending" // what it was then, although it is decided by now
			if event == "gate.resolved" {
				want = "approved"
			}
			if told.Event != event || told.Gate["id"] != id || told.Gate["status"] != want ||
				told.Gate["proposed_action"] != "Pay 100 EUR to ACME" || got.values["path"] != "/hooks/a-secret-path" {
				t.Errorf("%v", got.values)
			}
			delivertest.Verify(t, secret, got.values["body"], func(name string) string { return got.values[name] })
			seen[got.values["Webhook-Id"]] = true
		}
		if len(seen) != 3 {
			t.Errorf("%d ids", len(seen))
		}
		n.WantClean()
		n.wantNoSecrets("a-secret-path", secret)
	})
}

func TestADecisionElsewhereReachesEveryChannel(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, app, hook, tg, nt := startWithChannels(t, address)
		id := n.open()
		_, buttons := read(t, hook.next("hook").values["blocks"])
		if len(buttons) != 1 || buttons["signalbox_open"].URL != base+"/ui/inbox/"+id {
			t.Errorf("an incoming webhook can only link: %v", buttons)
		}
		app.next("chat.postMessage")
		tg.next("sendMessage")
		nt.next("POST")
		n.decide(id, "ann", false, "too <much>")
		for name, text := range map[string]string{
			"slack": app.next("chat.update").values["blocks"], "hook": hook.next("hook").values["text"],
			"telegram": tg.next("editMessageText").values["text"], "ntfy": nt.next("POST").values["body"],
		} {
			if !strings.Contains(text, "Rejected by ann") {
				t.Errorf("%s does not show the outcome: %s", name, text)
			}
		}
		n.WantClean()
		n.wantNoSecrets("a-secret-path", "a-secret-topic", slackToken)
	})
}

func TestAChannelThatIsDownHearsItLaterOnceAndInOrder(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		f.down.Store(true)
		var ids []string
		for range 3 {
			ids = append(ids, n.open())
		}
		n.until("it was tried and failed", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE attempts > 1") > 0
		})
		f.limit.Store(true)
		f.down.Store(false)
		var got []string
		for range ids {
			_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
			got = append(got, strings.TrimPrefix(buttons["signalbox_open"].URL, base+"/ui/inbox/"))
		}
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Error(diff)
		}
		n.until("all is delivered", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE status <> 'delivered'") == 0
		})
		f.none()
	})
}

func TestAFollowerThatBeginsAgainQueuesNothingTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newSlackAPI(t)
		app := func(n *node) []notify.Channel { return []notify.Channel{f.app(n)} }
		n := start(t, address, app)
		id := n.open()
		n.decide(id, "ann", true, "")
		f.next("chat.postMessage")
		f.next("chat.update")
		n.until("all is delivered", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE status <> 'delivered'") == 0
		})
		n.Stop()

		// As after a kill: what was done is done, and the cursor has not moved.
		again := open(t, address, app)
		again.Append(ledger.Event{Kind: "test.marked", Actor: "system", Subject: "x", Body: struct{}{}})
		again.readAgain()
		if got := again.Count("SELECT count(*) FROM delivery"); got != 2 {
			t.Errorf("there are %d deliveries", got)
		}
		f.none()
		again.WantClean()
	})
}

// rewind puts the follower's cursor back to the beginning.
func (n *node) rewind() {
	n.T.Helper()
	tx, err := n.DB.Begin(context.Background(), "ledger_tree")
	if err != nil {
		n.T.Fatal(err)
	}
	tx.Exec("UPDATE ledger_cursor SET seq = 0, held_until = 0 WHERE name = 'notify'")
	if _, err := tx.Commit(false); err != nil {
		n.T.Fatal(err)
	}
}

// readAgain runs the node from the beginning of the ledger to its end.
func (n *node) readAgain() {
	n.T.Helper()
	n.rewind()
	n.run()
	n.until("it has read everything again", func() bool {
		at, err := n.Ledger.Cursor(n.T.Context(), "notify")
		return err == nil && at == n.Head()
	})
}

func TestWhatHappenedBeforeAChannelWasThereIsNotTold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f, g := newSlackAPI(t), newSlackAPI(t)
		without := start(t, address, func(*node) []notify.Channel { return nil })
		without.open()
		without.Stop()
		first := start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.app(n)} })
		first.open()
		f.next("chat.postMessage")
		first.Stop()
		both := start(t, address, func(n *node) []notify.Channel {
			return []notify.Channel{f.app(n), g.app(n, func(o *slack.Options) { o.Channel = "C999" })}
		})
		both.rewind() // not even then
		id := both.open()
		for _, api := range []*slackAPI{f, g} {
			_, buttons := read(t, api.next("chat.postMessage").values["blocks"])
			if !strings.HasSuffix(buttons["signalbox_open"].URL, id) {
				t.Errorf("an old gate was told: %v", buttons)
			}
		}
		both.Stop()
		// A channel that was taken away and comes back begins anew.
		gone := open(t, address, func(*node) []notify.Channel { return nil })
		gone.run()
		gone.open()
		gone.Stop()
		back := start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.app(n)} })
		last := back.open()
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		if !strings.HasSuffix(buttons["signalbox_open"].URL, last) {
			t.Errorf("what happened in between was told: %v", buttons)
		}
		back.WantClean()
	})
}

func TestATestSaysWhatHappened(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		admin := roster.Identity{Role: roster.Admin}
		got, err := n.notifier.Test(t.Context(), admin, "slack")
		if err != nil || len(got) != 1 || !got[0].Delivered || got[0].Target != "slack:C123" {
			t.Errorf("%+v %v", got, err)
		}
		if text := f.next("chat.postMessage").values["text"]; text != "Signalbox reaches this channel" {
			t.Error(text)
		}
		f.down.Store(true)
		got, err = n.notifier.Test(t.Context(), admin, "slack")
		if err != nil || got[0].Delivered || !strings.Contains(got[0].Text, "502") {
			t.Errorf("%+v %v", got, err)
		}
		if _, err := n.notifier.Test(t.Context(), admin, "pigeon"); !fault.Is(err, fault.NotFound) ||
			!strings.Contains(err.Error(), "slack") {
			t.Error(err)
		}
		if got := len(n.Entries("channel.tested")); got != 2 {
			t.Errorf("%d tests are on record", got)
		}
	})
}

func TestADeliveryForAnotherChannelWaitsForANodeThatHasIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newSlackAPI(t)
		f.down.Store(true)
		n := start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.app(n)} })
		n.open()
		n.until("it is queued", func() bool { return n.Count("SELECT count(*) FROM notice") == 1 })
		n.Stop()
		moved := start(t, address, func(n *node) []notify.Channel {
			return []notify.Channel{f.app(n, func(o *slack.Options) { o.Channel = "C999" })}
		})
		moved.until("it was tried", func() bool {
			return moved.Count("SELECT count(*) FROM delivery WHERE last_error LIKE '%not configured here%'") == 1
		})
		moved.Stop()
		f.down.Store(false)
		start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.app(n), f.app(n)} })
		if got := f.next("chat.postMessage"); got.values["channel"] != "C123" {
			t.Errorf("%v", got.values)
		}
	})
}
