package server_test

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/ledger"
	"signalbox/internal/notify/telegram/telegramtest"
	"signalbox/internal/secret/secrettest"
	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// TestCredentialsAreNotKept has an agent say credentials of every shape in signals, steps, results and
// events of runs, and people in the prompts of runs and schedules and in chats. None may be left in the database, the export or on a page.
func TestCredentialsAreNotKept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		people, told := delivertest.Listen(t, "")
		posts := make(chan string, 1000)
		telegram := telegramtest.New(t, func(c telegramtest.Call) { posts <- fmt.Sprint(c.Values) })
		b := start(t, address, map[string]string{
			"notify.webhook": people, "notify.telegram.token": telegramtest.Token, "notify.telegram.chat": "-1001",
			"notify.telegram.api": telegram.URL, "runs.folders": t.TempDir(),
		})
		b.ops(200, "PATCH /ops/operators/admin", `{"contacts":{"telegram":"78"}}`, nil)
		b.ops(200, "PUT /ops/policy", "version: 1\nrules: [{name: ask, on: [signal], then: gate}]\n", nil)
		said, pages := sayCredentials(b)
		for _, s := range secrettest.Samples() {
			telegram.Write(78, 78, "/runs It says:\n"+s.Text(), 0, "")
		}
		testbed.Until(t, "the bot to have heard it", func() bool { return telegram.Unacknowledged() == 0 })
		var chat strings.Builder
		for range said {
			chat.WriteString(testbed.Receive(t, "people to be told of every gate", told).Body)
		}
		if strings.Count(chat.String(), "It says") < len(said) {
			t.Error("people are not told what it says")
		}
		entries := b.entries()
		kept := map[string]string{"the ledger": entries, "the chat": chat.String()}
		for v := b.signedIn(b.token()); len(pages) > 0; pages = pages[1:] {
			kept["the pages"] += html.UnescapeString(v.sees(pages[0]))
		}
		if strings.Count(kept["the pages"], "It says") < 3*len(said) { // the gate, the run's prompt and its answer
			t.Error("the pages do not show what it says")
		}
		for range 20 { // Telegram takes no more in a while
			kept["Telegram"] += testbed.Receive(t, "a post to Telegram", posts)
		}
		_, kept["the export"], _ = b.do(request{call: "GET /ops/ledger/export", token: b.token()})
		_, kept["the inbox"], _ = b.do(request{call: "GET /ops/gates", token: b.token()})
		_, kept["the sessions"], _ = b.do(request{call: "GET /ops/sessions/s1", token: b.token()})
		b.wantRebuilt(1)
		b.stop()
		files, err := filepath.Glob(filepath.Join(b.config.Data, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files { // those of SQLite are among them
			if text, err := os.ReadFile(file); err == nil {
				kept[filepath.Base(file)] = string(text)
			}
		}
		for _, s := range said {
			for where, text := range kept {
				if strings.Contains(text, s) {
					t.Errorf("%s is in %s", s, where)
				}
			}
		}
		if !strings.Contains(entries, "[secret:github-token:") || !strings.Contains(entries, ledger.RawMember) {
			t.Error("the ledger does not say what was replaced")
		}
		for _, kind := range []string{"schedule.set", "chat.heard"} {
			if got := strings.Count(entries, `"kind":"`+kind+`"`); got < len(said) {
				t.Errorf("%d entries %s of %d", got, kind, len(said))
			}
		}
	})
}

// sayCredentials says every sample in every way, and returns the credentials, and the pages that show what
// was said.
func sayCredentials(b *box) (said, pages []string) {
	b.t.Helper()
	_, key := b.addAgent("talker")
	for i, s := range secrettest.Samples() {
		if len(s.Secret) < 12 { // too short not to be somewhere by chance
			continue
		}
		said = append(said, s.Secret)
		text := "It says:\n" + s.Text() + "\nand nothing else."
		quoted, err := json.Marshal(text)
		if err != nil {
			b.t.Fatal(err)
		}
		signal := strings.Replace(ampSignal("talker", fmt.Sprint("run-", i)), `"Rewrote it"`, string(quoted), 1)
		status, answer, _ := b.do(request{call: "POST /amp/signal", token: key, body: signal})
		if status > 202 {
			b.t.Fatalf("%s: %d %s", s.Kind, status, answer)
		}
		if gate := regexp.MustCompile(`gate_\w{20,}`).FindString(answer); gate != "" {
			pages = append(pages, "/ui/inbox/"+gate)
		}
		event := `{"jsonrpc":"2.0",%s"method":"ahp/event","params":{"event_type":%q,"session_id":"s1","agent_id":"a",` +
			`"timestamp":"t","depth":0,"payload":{"tool_name":"note","arguments":{"text":%s},"result":{"output":%s}}}}`
		if status, answer := b.ahp(key, fmt.Sprintf(event, `"id":1,`, "pre_action", quoted, quoted)); status != 200 ||
			!strings.Contains(answer, `"allow"`) {
			b.t.Fatalf("%s: %d %s", s.Kind, status, answer)
		}
		b.ahp(key, fmt.Sprintf(event, "", "post_action", quoted, quoted))
		var run struct{ ID string }
		b.ops(201, "POST /runs", fmt.Sprintf(`{"engine":"amp","prompt":%s,"recorded":true}`, quoted), &run)
		b.ops(200, "POST /runs/"+run.ID+"/events", report(1,
			strings.Replace(runActed, `"detail":{}`, fmt.Sprintf(`"detail":{"command":%s}`, quoted), 1),
			strings.Replace(runCompleted, `"done"`, string(quoted), 1)), nil)
		pages = append(pages, "/ui/runs/"+run.ID)
		b.ops(201, "POST /runs/schedules", setSchedule(b.config.Runs.Folders[0], text), nil)
	}
	return said, append(pages, "/ui/sessions/default/s1")
}

func TestCredentialsAreKeptWhereTheServerIsToldTo(t *testing.T) {
	t.Parallel()
	b := start(t, storetest.SQLite(t), map[string]string{"secrets.keep": "true", "runs.folders": t.TempDir()})
	said, _ := sayCredentials(b)
	if !strings.Contains(b.entries(), said[0]) {
		t.Error("the credentials are gone")
	}
}

// entries are the bodies of all entries.
func (b *box) entries() string {
	b.t.Helper()
	var all strings.Builder
	for seq := range b.head() {
		_, text, _ := b.do(request{call: fmt.Sprint("GET /ops/ledger/", seq+1), token: b.token()})
		all.WriteString(text)
	}
	return all.String()
}

func TestTheLogHidesCredentials(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log := server.Logger(&server.Config{LogLevel: "info", LogFormat: format}, &out)
		for _, s := range secrettest.Samples() {
			log.Warn("it says "+s.Text(), "error", "refused:\n"+s.Text())
			if strings.Contains(out.String(), s.Secret) {
				t.Errorf("%s: %s", s.Kind, out.String())
			}
			out.Reset()
		}
	}
}
