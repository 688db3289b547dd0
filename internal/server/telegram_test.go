package server_test

import (
	"strings"
	"testing"

	"signalbox/internal/notify/telegram/telegramtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

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
