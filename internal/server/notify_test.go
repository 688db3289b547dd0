package server_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/fault"
	"signalbox/internal/notify/telegram/telegramtest"
	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestPeopleAreToldOfASignalThatWaits(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		service, told := delivertest.Listen(t, `{"ok":true,"channel":"C123","ts":"1.2"}`)
		b := start(t, address, map[string]string{
			"notify.webhook": service + "/hooks/a-secret-path", "notify.slack.token": "xoxb-a-secret",
			"notify.slack.channel":        "C123",
			"notify.slack.signing_secret": "sign-a-secret", "notify.slack.api": service + "/slack",
		})
		hear := func(want ...string) {
			t.Helper()
			for range 2 { // in any order
				got := testbed.Receive(t, fmt.Sprint(want), told)
				part := want[0]
				if strings.HasPrefix(got.Path, "/slack") {
					part = want[1]
				}
				if !strings.Contains(got.Body, part) {
					t.Errorf("%q is missing from %s", part, got.Body)
				}
			}
		}
		_, list, _ := b.do(request{call: "GET /ops/notify", token: b.token()})
		if !strings.Contains(list, `"slack:C123","buttons":true`) || !strings.Contains(list, "webhook:127.0.0.1") ||
			strings.Contains(list, "a-secret") {
			t.Error(list)
		}
		var secret struct{ Secret string }
		b.ops(200, "GET /ops/notify/secret", "", &secret)
		if !strings.HasPrefix(secret.Secret, "whsec_") {
			t.Errorf("%+v", secret)
		}
		var agent struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"payer"}`, &agent)
		status, answer, _ := b.do(request{
			call: "POST /amp/signal", token: agent.Keys["signal"],
			body: `{"amp_version":"1.0","agent_id":"payer","run_id":"r-1","status":"completed","summary":"s",` +
				`"proposed_action":"pay","model":"m","input_tokens":1,"output_tokens":1,"cost_usd":0,"gate_required":true,` +
				`"started_at":"2026-01-01T00:00:00Z","completed_at":"2026-01-01T00:00:01Z"}`,
		})
		var held struct {
			GateID string `json:"gate_id"`
		}
		if err := json.Unmarshal([]byte(answer), &held); status != 202 || err != nil {
			t.Fatalf("%d %s", status, answer)
		}
		hear(`"event":"gate.opened"`, url.QueryEscape(b.url+"/ui/inbox/"+held.GateID))
		b.ops(200, "POST /ops/gates/"+held.GateID+"/approve", "", nil)
		hear(`"event":"gate.resolved"`, "Approved+by+admin")
		b.ops(200, "POST /ops/notify/test", `{"channel":"webhook"}`, nil)
		if got := <-told; !strings.Contains(got.Body, `"event":"notify.test"`) {
			t.Error(got.Body)
		}
		if status, _, _ := b.do(request{
			call: "POST /notify/slack", body: "payload=x",
			media: "application/x-www-form-urlencoded",
		}); status != 401 {
			t.Errorf("an unsigned press: %d", status)
		}
		_, entries, _ := b.do(request{call: "GET /ops/ledger?limit=1000", token: b.token()})
		if strings.Contains(entries, "a-secret") || !strings.Contains(entries, "notice.queued") {
			t.Error("a secret is in the ledger, or nothing is")
		}
		b.stop()
		b.wantRebuilt(1)
	})
}

func TestChannelsThatAreConfiguredByHalfAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags map[string]string
		says  string
	}{
		{map[string]string{"notify.slack.token": "xoxb-hunter2"}, "notify.slack.channel"},
		{map[string]string{"notify.slack.app_token": "xapp-hunter2"}, "notify.slack.token"},
		{map[string]string{"notify.telegram.token": "1:hunter2"}, "notify.telegram.chat"},
		{map[string]string{"notify.email.smtp": "smtp://u:hunter2@h"}, "notify.email.from"},
		{map[string]string{"notify.email.smtp": "smtp://u:hunter2@h", "notify.email.from": "a@b.c"}, "notify.email.to"},
		{map[string]string{"notify.webhook": "hunter2"}, "such as https://"},
		{map[string]string{"notify.slack.webhook": "ftp://hunter2"}, "such as https://"},
		{map[string]string{"notify.slack.api": "slack"}, "such as https://"},
		{map[string]string{"notify.slack.buttons_on_high": "perhaps"}, "true or false"},
	} {
		c.flags["data"] = t.TempDir()
		_, err := server.Load(c.flags, nil, "")
		if !fault.Is(err, fault.InvalidConfig) || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v: %v", c.flags, err)
		}
	}
}

func TestChannelsMayStandInTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "notify:\n  email: {smtp: 'smtp://u:hunter2@h', from: a@b.c, to: [ann@example.com, bob@example.com]}\n" +
		"  telegram: {token: 1:hunter2, chat: -1001}\n  webhook: https://hooks.example.com/hunter2\n"
	testbed.Write(t, filepath.Join(dir, server.ConfigFile), text)
	c, err := server.Load(map[string]string{"data": dir}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(c.Notify.To, " ") != "ann@example.com bob@example.com" || c.Notify.TelegramChat != "-1001" ||
		c.Notify.Webhook.Reveal() != "https://hooks.example.com/hunter2" {
		t.Errorf("%+v", c.Notify)
	}
	for _, s := range server.Settings {
		if shown := c.Value(s.Key); strings.Contains(shown, "hunter2") {
			t.Errorf("%s is shown as %s", s.Key, shown)
		}
	}
	if strings.Contains(fmt.Sprintf("%+v", c), "hunter2") {
		t.Error("a secret is printed")
	}
}

// TestABotAndItsChatAreEnoughForAdmins: nothing else is configured, and operators are told what would let them.
func TestABotAndItsChatAreEnoughForAdmins(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no agent is installed, so none is started
	said := make(chan string, 100)
	api := telegramtest.New(t, func(c telegramtest.Call) { said <- c.Values["text"] })
	b := start(t, storetest.SQLite(t), map[string]string{
		"notify.telegram.token": telegramtest.Token, "notify.telegram.chat": "-1001", "notify.telegram.api": api.URL,
	})
	b.ops(201, "POST /ops/operators", `{"name":"ann","role":"operator"}`, nil)
	b.ops(200, "PATCH /ops/operators/ann", `{"contacts":{"telegram":"77"}}`, nil)
	b.ops(200, "PATCH /ops/operators/admin", `{"contacts":{"telegram":"78"}}`, nil)
	api.Write(77, 77, "fix it", 0, "")
	if got := testbed.Receive(t, "an answer", said); !strings.Contains(got, "signalbox config set runs.telegram true") {
		t.Errorf("an operator hears %q", got)
	}
	api.Write(78, 78, "fix it", 0, "")
	if got := testbed.Receive(t, "an answer", said); !strings.Contains(got, "No agent CLI was found") {
		t.Errorf("an admin hears %q", got)
	}
}
