package notify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/notify/slack"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// eachSlack runs fn with a node whose only channel is a Slack app, on every database.
func eachSlack(t *testing.T, fn func(t *testing.T, n *node, f *slackAPI)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) {
		f := newSlackAPI(t)
		n := start(t, address, func(n *node) []notify.Channel { return []notify.Channel{f.app(n)} })
		n.operator("ann", "operator", map[string]string{"slack": "U0ANN"})
		n.operator("bob", "operator", map[string]string{"slack": "U0BOB"})
		n.operator("eve", "viewer", map[string]string{"slack": "U0EVE"})
		fn(t, n, f)
		n.WantClean()
		n.wantNoSecrets(slackToken, slackAppToken, signingSecret)
	})
}

func TestAGateIsDecidedInSlack(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open()
		posted := f.next("chat.postMessage")
		texts, buttons := read(t, posted.values["blocks"])
		all := strings.Join(texts, "\n")
		for _, want := range []string{
			"Decision needed: Pay invoice 42", "Pay 100 EUR to ACME", "Read the invoice",
			"payer in default/billing", "Money leaves the house.",
		} {
			if !strings.Contains(all, want) {
				t.Errorf("the message lacks %q:\n%s", want, all)
			}
		}
		if posted.values["channel"] != "C123" || buttons["signalbox_open"].URL != base+"/ui/inbox/"+id {
			t.Errorf("%v", posted.values)
		}

		// A stranger, and an operator who may not decide, change nothing and hear why.
		for user, says := range map[string]string{
			"U0STRANGER": "not known here as an operator",
			"U0EVE":      "eve may not decide",
		} {
			n.press(user, buttons["signalbox_approve"])
			said := f.next("chat.postEphemeral")
			if said.values["user"] != user || !strings.Contains(said.values["text"], says) {
				t.Errorf("%s hears %v", user, said.values)
			}
		}
		if g := n.get(id); g.Status != gate.Pending || len(g.Votes) != 0 {
			t.Fatalf("%+v", g)
		}

		n.press("U0ANN", buttons["signalbox_approve"])
		// The answer and the change of the message come in any order.
		var said, changed call
		for range 2 {
			if got := testbed.Receive(t, "what comes of the press", f.got); got.method == "chat.update" {
				changed = got
			} else {
				said = got
			}
		}
		if said.values["user"] != "U0ANN" || !strings.Contains(said.values["text"], "You have approved this") {
			t.Errorf("%v", said.values)
		}
		texts, left := read(t, changed.values["blocks"])
		if changed.values["ts"] != "1700000000.000001" || changed.values["channel"] != "C123" ||
			!strings.Contains(texts[0], "Approved by ann: Pay invoice 42") || len(left) != 1 {
			t.Errorf("the outcome does not take the place of the buttons: %v", changed.values)
		}
		if g := n.get(id); g.Status != gate.Approved || g.ResolvedBy != "ann" || g.Note != "approved in Slack" {
			t.Errorf("%+v", g)
		}

		// Once is enough: whoever presses again sees who decided.
		before, _ := n.Ledger.Head(t.Context())
		for _, user := range []string{"U0ANN", "U0BOB"} {
			n.press(user, buttons["signalbox_reject"])
			if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "approved by ann") {
				t.Errorf("%v", said.values)
			}
		}
		n.until("the outcome is delivered", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE status <> 'delivered'") == 0
		})
		if after, _ := n.Ledger.Head(t.Context()); after > before+1 { // the success of the update may come in between
			t.Errorf("a press after the decision wrote %d entries", after-before)
		}
	})
}

func TestAQuorumHoldsInSlackToo(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open(func(o *gate.Opening) { o.Rules.Quorum = 2 })
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		n.press("U0ANN", buttons["signalbox_approve"])
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "Your vote counts") {
			t.Errorf("%v", said.values)
		}
		n.press("U0ANN", buttons["signalbox_approve"])
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "has voted on this gate already") {
			t.Errorf("%v", said.values)
		}
		if g := n.get(id); g.Status != gate.Pending || len(g.Votes) != 1 {
			t.Fatalf("%+v", g)
		}
		n.press("U0BOB", buttons["signalbox_reject"])
		n.submit("U0BOB", f.next("views.open").values["view"], "No.")
		if g := n.get(id); g.Status != gate.Rejected || g.Note != "No." || g.ResolvedBy != "bob" {
			t.Errorf("%+v", g)
		}
	})
}

func TestARejectionInSlackAsksForTheReason(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open()
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		reject := buttons["signalbox_reject"]

		// Nobody is asked in vain.
		for user, says := range map[string]string{
			"U0STRANGER": "not known here as an operator",
			"U0EVE":      "eve may not decide",
		} {
			n.press(user, reject)
			if said := f.next("chat.postEphemeral"); said.values["user"] != user ||
				!strings.Contains(said.values["text"], says) {
				t.Errorf("%s hears %v", user, said.values)
			}
		}

		// A form that does not open decides nothing.
		f.closed.Store(true)
		n.press("U0ANN", reject)
		if said := f.next("chat.postEphemeral"); said.values["user"] != "U0ANN" || said.values["channel"] != "C123" ||
			!strings.Contains(said.values["text"], "nothing was decided") {
			t.Errorf("%v", said.values)
		}
		f.closed.Store(false)

		// Nor does one that is open, or that somebody else submits.
		n.press("U0ANN", reject)
		view := f.next("views.open").values["view"]
		n.submit("U0BOB", view, "I am bob")
		if said := f.next("chat.postEphemeral"); said.values["user"] != "U0BOB" ||
			!strings.Contains(said.values["text"], "for somebody else") {
			t.Errorf("%v", said.values)
		}
		if g := n.get(id); g.Status != gate.Pending || len(g.Votes) != 0 {
			t.Fatalf("%+v", g)
		}

		n.submit("U0ANN", view, " \x00 ")
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "Say why") {
			t.Errorf("without a reason: %v", said.values)
		}
		n.submit("U0ANN", view, " Not to <them>\x00 ")
		if g := n.get(id); g.Status != gate.Rejected || g.ResolvedBy != "ann" || g.Note != "Not to <them>" {
			t.Errorf("%+v", g)
		}
		var said, changed call
		for range 2 {
			if got := <-f.got; got.method == "chat.update" {
				changed = got
			} else {
				said = got
			}
		}
		if said.values["user"] != "U0ANN" || said.values["channel"] != "C123" ||
			!strings.Contains(said.values["text"], "You have rejected this") {
			t.Errorf("%v", said.values)
		}
		if texts, _ := read(t, changed.values["blocks"]); !strings.Contains(strings.Join(texts, "\n"),
			"Note: Not to &lt;them&gt;") {
			t.Errorf("the reason is not shown: %v", texts)
		}

		// Once is enough.
		n.submit("U0ANN", view, "again")
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "rejected by ann") {
			t.Errorf("%v", said.values)
		}
		if g := n.get(id); g.Note != "Not to <them>" || len(g.Votes) != 1 {
			t.Errorf("%+v", g)
		}
	})
}

func TestWhoAskedMayNotApproveInSlack(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open(func(o *gate.Opening) { o.Requester = "operator:ann" })
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		n.press("U0ANN", buttons["signalbox_approve"])
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "The requester may not approve") {
			t.Errorf("%v", said.values)
		}
		if n.get(id).Status != gate.Pending {
			t.Error("it was approved")
		}
	})
}

// buttonOf makes what a button carries as press.go says.
func buttonOf(action string, g gate.Gate) string {
	return buttonFor("signalbox button under the whole gate", action, g)
}

// buttonFor is a button with another purpose in its code.
func buttonFor(purpose, action string, g gate.Gate) string {
	seen, _ := hex.DecodeString(g.ShownDigest()[:16]) // it is hex
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{purpose, action, g.ID, string(seen)} {
		mac.Write(append([]byte{0, 0, 0, 0, 0, 0, 0, byte(len(part))}, part...))
	}
	return action + ":" + g.ID + ":" + base64.RawURLEncoding.EncodeToString(append(seen, mac.Sum(nil)[:14]...))
}

func TestAButtonOfAMessageThatShowsSomethingElseDoesNothing(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open(func(o *gate.Opening) { o.Rules.Quorum = 2 })
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		who := roster.Identity{ID: "operator_zoe", Kind: roster.HolderOperator, Name: "zoe", Role: roster.Operator}
		if _, err := n.gates.Vote(t.Context(), who, id,
			gate.Ballot{Approve: true, Modified: wire.Raw(`{"amount":9}`)}); err != nil {
			t.Fatal(err)
		}
		n.press("U0ANN", buttons["signalbox_approve"])
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "zoe has voted with changes") {
			t.Errorf("%v", said.values)
		}
		if g := n.get(id); g.Status != gate.Pending || len(g.Votes) != 1 {
			t.Errorf("%+v", g)
		}
		// One that shows it as it is now counts, and its vote names what was shown.
		n.press("U0ANN", button{ActionID: "signalbox_approve", Value: buttonOf("a", n.get(id))})
		if g := n.get(id); g.Status != gate.Approved || g.Votes[1].Digest != g.ShownDigest()[:16] {
			t.Errorf("%+v", g)
		}
	})
}

// A chat shows less than the page, and has no second step.
func TestWhatIsNotShownWholeHasNoButtons(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open(func(o *gate.Opening) { o.Attach("call", make([]byte, gate.MaxWhole+1)) })
		if _, buttons := read(t, f.next("chat.postMessage").values["blocks"]); len(buttons) != 1 {
			t.Errorf("there is more than the link: %v", buttons)
		}
		n.press("U0ANN", button{ActionID: "signalbox_approve", Value: buttonOf("a", n.get(id))})
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "too long to be shown") {
			t.Errorf("%v", said.values)
		}
		if g := n.get(id); g.Status != gate.Pending {
			t.Errorf("it was decided: %+v", g.Votes)
		}
	})
}

func TestAForgedButtonDoesNothing(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		first, second := n.open(), n.open(func(o *gate.Opening) { o.Shown.Title = "Another" })
		_, of1 := read(t, f.next("chat.postMessage").values["blocks"])
		_, of2 := read(t, f.next("chat.postMessage").values["blocks"])
		approve := of1["signalbox_approve"].Value
		if want := buttonOf("a", n.get(first)); approve != want || len(approve) > 64 {
			t.Errorf("the button carries %s, want %s", approve, want)
		}
		code := approve[strings.LastIndex(approve, ":"):]
		for name, value := range map[string]string{
			"the code of another gate":   "a:" + second + code,
			"the code of another action": "r:" + first + code,
			"no code":                    "a:" + first + ":",
			"no such gate":               "a:" + gate.NewID() + code,
			"another word":               "x:" + first + code,
			"nothing":                    "",
			"half a code":                approve[:len(approve)-4],
			"what version 0.1 made":      "a:" + first + ":AAAAAAAAAAAAAAAAAAAAAA",
			"under a part of the gate":   buttonFor("signalbox button", "a", n.get(first)),
			"the code of something else": "a:" + first + ":AAAA" + code[5:],
		} {
			b := of2["signalbox_approve"]
			b.Value = value
			n.press("U0ANN", b)
			if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "not one of this server") {
				t.Errorf("%s: %v", name, said.values)
			}
		}
		if n.get(first).Status != gate.Pending || n.get(second).Status != gate.Pending {
			t.Error("a forged button has decided")
		}
	})
}

func TestSignaturesThatAreNotSlacksAreRefused(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open()
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		body := "payload=" + url.QueryEscape(interaction("U0ANN", buttons["signalbox_approve"]))
		for name, status := range map[string]int{
			"another secret":     n.post(body, "guessed", time.Now()),
			"an old one":         n.post(body, signingSecret, time.Now().Add(-6*time.Minute)),
			"one of the future":  n.post(body, signingSecret, time.Now().Add(6*time.Minute)),
			"none at all":        n.serve(httptest.NewRequest(http.MethodPost, "/notify/slack", strings.NewReader(body))),
			"a secret that is 0": n.post(body, "", time.Now()),
		} {
			if status != 401 {
				t.Errorf("%s: %d", name, status)
			}
		}
		if n.post("payload=nonsense", signingSecret, time.Now()) != 400 || n.post("%zz", signingSecret, time.Now()) != 400 {
			t.Error("nonsense is taken")
		}
		f.none()
		if n.get(id).Status != gate.Pending {
			t.Error("it was decided")
		}
	})
}

func TestSocketModeNeedsNoAddressOfOurs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newSlackAPI(t)
		n := start(t, address, func(n *node) []notify.Channel {
			return []notify.Channel{f.app(n, func(o *slack.Options) {
				o.SigningSecret, o.AppToken = wire.Secret{}, wire.NewSecret(slackAppToken)
			})}
		})
		n.operator("ann", "operator", map[string]string{"slack": "U0ANN"})
		socket := <-f.socket
		id := n.open()
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		envelope := `{"type":"interactive","envelope_id":"e-1","accepts_response_payload":true,"payload":` +
			interaction("U0ANN", buttons["signalbox_reject"]) + `}`
		if err := socket.Write(t.Context(), websocket.MessageText, []byte(envelope)); err != nil {
			t.Fatal(err)
		}
		if ack := <-f.acks; ack != "e-1" {
			t.Errorf("%q was acknowledged", ack)
		}
		view := f.next("views.open").values["view"]
		envelope = `{"type":"interactive","envelope_id":"e-2","accepts_response_payload":true,"payload":` +
			submission(t, "U0ANN", view, "Not this month") + `}`
		if err := socket.Write(t.Context(), websocket.MessageText, []byte(envelope)); err != nil {
			t.Fatal(err)
		}
		if ack := <-f.acks; ack != "e-2" {
			t.Errorf("%q was acknowledged", ack)
		}
		if g, err := n.gates.Wait(t.Context(), id); err != nil || g.Status != gate.Rejected || g.ResolvedBy != "ann" ||
			g.Note != "Not this month" {
			t.Errorf("%+v %v", g, err)
		}
		n.Stop()
		n.wantNoSecrets(slackToken, slackAppToken)
	})
}

// TestASlackThatHangsUpIsNotCalledAgainAtOnce: each pause is twice as long as the one before.
func TestASlackThatHangsUpIsNotCalledAgainAtOnce(t *testing.T) {
	f := newSlackAPI(t)
	f.hangs = make(chan time.Time, 10)
	start(t, storetest.SQLite(t), func(n *node) []notify.Channel {
		return []notify.Channel{f.app(n, func(o *slack.Options) { o.AppToken = wire.NewSecret(slackAppToken) })}
	})
	first, second, third := <-f.hangs, <-f.hangs, <-f.hangs
	if second.Sub(first) < time.Second || third.Sub(second) < 2*time.Second {
		t.Errorf("connections came at %v, %v and %v", first, second, third)
	}
}

func TestAGateOfHighRiskHasNoButtons(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		careful, bold := newSlackAPI(t), newSlackAPI(t)
		n := start(t, address, func(n *node) []notify.Channel {
			return []notify.Channel{careful.app(n), bold.app(n, func(o *slack.Options) {
				o.ButtonsOnHigh, o.Channel = true, "C999"
			})}
		})
		n.open(func(o *gate.Opening) { o.Risk = "high" })
		if _, buttons := read(t, careful.next("chat.postMessage").values["blocks"]); len(buttons) != 1 ||
			buttons["signalbox_open"].URL == "" {
			t.Errorf("%v", buttons)
		}
		if _, buttons := read(t, bold.next("chat.postMessage").values["blocks"]); len(buttons) != 3 {
			t.Errorf("%v", buttons)
		}
	})
}

func TestAReminderAsksThoseWhoMayDecide(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		n.open(func(o *gate.Opening) {
			o.Rules.Ladder = []gate.Step{{After: time.Minute.Microseconds(), Do: gate.Remind, Whom: []string{"operator"}}}
		})
		f.next("chat.postMessage")
		n.Move(2 * time.Minute)
		posted := map[string]call{} // by where it was posted, in any order
		for range 3 {
			got := f.next("chat.postMessage")
			posted[got.values["channel"]] = got
		}
		for _, member := range []string{"U0ANN", "U0BOB"} {
			if got := posted[member]; !strings.Contains(got.values["text"], "Still waits") || got.values["thread_ts"] != "" {
				t.Errorf("%s was not told: %v", member, got.values)
			}
		}
		reminder := posted["C123"]
		texts, _ := read(t, reminder.values["blocks"])
		all := strings.Join(texts, "\n")
		if reminder.values["thread_ts"] != "1700000000.000001" || reminder.values["reply_broadcast"] != "true" ||
			!strings.Contains(all, "Still waits") || !strings.Contains(all, "mrkdwn|<@U0ANN> <@U0BOB>") ||
			strings.Contains(all, "U0EVE") {
			t.Errorf("%v\n%s", reminder.values, all)
		}
	})
}

// decideRefused has a gate decided whose message Slack then refuses to change, with the word.
func decideRefused(n *node, f *slackAPI, word string) {
	n.T.Helper()
	id := n.open()
	f.next("chat.postMessage")
	f.refuse.Store(word)
	n.decide(id, "ann", true, "")
}

func TestAMessageThatSomebodyRemovedIsNotMissed(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		decideRefused(n, f, "message_not_found")
		if again := f.next("chat.postMessage"); !strings.Contains(again.values["text"], "Approved by ann") {
			t.Errorf("%v", again.values)
		}
	})
}

func TestAMessageThatSlackDoesNotTakeHoldsUpNobody(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		decideRefused(n, f, "invalid_blocks")
		n.open()
		f.next("chat.postMessage")
		if got := n.Count("SELECT count(*) FROM delivery WHERE status = 'dead'"); got != 1 {
			t.Errorf("%d were given up", got)
		}
	})
}

func TestSlackIsAnsweredInTimeWhateverTakesLong(t *testing.T) {
	eachSlack(t, func(t *testing.T, n *node, f *slackAPI) {
		id := n.open()
		_, buttons := read(t, f.next("chat.postMessage").values["blocks"])
		f.held = make(chan struct{})
		n.press("U0ANN", buttons["signalbox_approve"]) // is answered while that waits
		f.next("chat.update")
		close(f.held)
		if said := f.next("chat.postEphemeral"); !strings.Contains(said.values["text"], "You have approved this") {
			t.Errorf("%v", said.values)
		}
		if n.get(id).Status != gate.Approved {
			t.Error("it was not decided")
		}
	})
}
