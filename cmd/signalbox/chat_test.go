package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/notify/telegram/telegramtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// ann is the number of an operator in Telegram, and of her chat with the bot.
const ann = 77

// chat is a server whose runs are started in Telegram, and what the bot has said there.
type chat struct {
	*process
	*telegramtest.API

	folder, hold string // an agent is done when the file hold is there
	database     []string

	mu   sync.Mutex
	said []telegramtest.Call
}

// startChat starts the server. Its agent answers the prompt, in a session of its own.
func startChat(t *testing.T, address string) *chat {
	t.Helper()
	c := &chat{folder: t.TempDir(), hold: filepath.Join(t.TempDir(), "go")}
	c.API = telegramtest.New(t, func(call telegramtest.Call) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.said = append(c.said, call)
	})
	agent := filepath.Join(t.TempDir(), "agent")
	testbed.Write(t, agent, fmt.Sprintf(`#!/bin/sh
prompt=$(cat)
echo '{"type":"system","subtype":"init","session_id":"T-'$$'"}'
until [ -e %s ]; do sleep 0.05; done
echo '{"type":"result","result":"done: '"$prompt"'"}'
`, c.hold))
	if err := os.Chmod(agent, 0o700); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(address, "postgres") {
		c.database = []string{"--db", address}
	}
	data := t.TempDir()
	configure(t, data, fmt.Sprintf(`
notify:
  telegram: {token: %q, chat: -5, api: %q}
runs:
  telegram: "true"
  folders: [%s]
  budget_tokens: 100000
  amp: {command: %s}
`, telegramtest.Token, c.URL, c.folder, agent))
	c.process = up(t, data, c.database...)
	mustRun(t, data, "operators", "add", "ann")
	mustRun(t, data, "operators", "set", "ann", "--telegram", fmt.Sprint(ann))
	return c
}

// restart kills the server, and starts it again.
func (c *chat) restart() {
	c.t.Helper()
	c.kill()
	c.process = up(c.t, c.dir, c.database...)
}

// entry is an entry of the ledger, as far as it is about chats.
type chatEntry struct {
	Subject string
	Body    struct {
		Message int
		Run, Of string
		Prompt  string
	}
}

// entries are those of a kind.
func (c *chat) entries(kind string) []chatEntry {
	c.t.Helper()
	var page struct{ Entries []chatEntry }
	c.get("/ops/ledger?limit=1000&kind="+kind, &page)
	return page.Entries
}

// count is how many messages the bot has written with the text.
func (c *chat) count(text string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.said {
		if call.Method == "sendMessage" && strings.Contains(call.Values["text"], text) {
			n++
		}
	}
	return n
}

// TestAChatLosesNothingWhenTheServerIsKilled: each message starts one run, whenever the server is killed, and each
// answer that was waiting for Telegram arrives once.
func TestAChatLosesNothingWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		c := startChat(t, address)
		const rounds = 4
		prompts := map[string]bool{}
		for round := range rounds {
			for i := range 2 {
				prompt := fmt.Sprintf("prompt %d of %d", i, round)
				prompts[prompt] = true
				c.Write(ann, ann, "/new /amp "+prompt, 0, "")
			}
			switch round { // at another moment each time
			case 1:
				testbed.Until(t, "a message to be recorded", func() bool { return len(c.entries("chat.heard")) > 2*round })
			case 2:
				testbed.Until(t, "a run to be opened", func() bool { return len(c.entries("run.opened")) > 2*round })
			case 3:
				testbed.Until(t, "a message to be sent", func() bool { return c.count("starting · amp") > 2*round })
			}
			c.restart()
		}
		testbed.Until(t, "all agents to work", func() bool { return len(c.entries("run.started")) == len(prompts) })
		runs := map[string]string{} // of prompts
		for _, e := range c.entries("run.opened") {
			if !prompts[e.Body.Prompt] || runs[e.Body.Prompt] != "" {
				t.Errorf("%s was opened for %q", e.Subject, e.Body.Prompt)
			}
			runs[e.Body.Prompt] = e.Subject
		}
		if heard, answered := len(c.entries("chat.heard")), len(c.entries("chat.answered")); heard != len(prompts) ||
			answered != len(prompts) {
			t.Errorf("%d heard, %d answered of %d", heard, answered, len(prompts))
		}
		testbed.Until(t, "all messages about runs", func() bool { return c.count("starting · amp") >= len(prompts) })

		// A press while there is no server.
		const stopped = "prompt 1 of 3"
		c.kill()
		c.Press(ann, "run:"+runs[stopped])
		c.process = up(t, c.dir, c.database...)
		testbed.Until(t, "the run to be cancelled", func() bool {
			var r struct{ Status string }
			c.get("/runs/"+runs[stopped], &r)
			return r.Status == "cancelled"
		})
		testbed.Until(t, "the cancellation to be told", func() bool { return c.count("cancelled: cancelled in Telegram by ann") == 1 })

		// The others end while Telegram takes nothing, and the server is killed with all answers in the outbox.
		c.Away.Store(true)
		testbed.Write(t, c.hold, "")
		testbed.Until(t, "all ends to be queued", func() bool { return len(c.entries("chat.told")) == len(prompts) })
		c.kill()
		c.Away.Store(false)
		c.process = up(t, c.dir, c.database...)
		for prompt := range prompts {
			if prompt == stopped {
				continue
			}
			testbed.Until(t, "the answer of "+prompt, func() bool { return c.count("done: "+prompt) > 0 })
		}
		testbed.Until(t, "everything to be sent", func() bool {
			var page struct{ Deliveries []struct{ ID string } }
			c.get("/ops/deliveries?status=pending", &page)
			return len(page.Deliveries) == 0 && c.Unacknowledged() == 0
		})
		for prompt := range prompts {
			if n := c.count("done: " + prompt); n > 1 {
				t.Errorf("%q was answered %d times", prompt, n)
			}
		}
		if told := len(c.entries("chat.told")); told != len(prompts) || len(c.entries("run.opened")) != len(prompts) {
			t.Errorf("%d were told", told)
		}
		c.kill()
		if out := mustRun(t, c.dir, append([]string{"ledger", "rebuild", "--check"}, c.database...)...); !strings.Contains(out,
			" 0 differences") {
			t.Errorf("%s", out)
		}
	})
}

// TestARunOfAChatIsStoppedAtItsTime, which stands for a budget where the CLI cannot be held to one.
func TestARunOfAChatIsStoppedAtItsTime(t *testing.T) {
	t.Parallel()
	c := startChat(t, storetest.SQLite(t))
	mustRun(t, c.dir, "config", "set", "runs.gemini.command", filepath.Join(c.folder, "agent"))
	mustRun(t, c.dir, "config", "set", "runs.gemini.total_timeout", "2s")
	mustRun(t, c.dir, "config", "set", "runs.budget_tokens", "0")
	testbed.Write(t, filepath.Join(c.folder, "agent"), "#!/bin/sh\necho '{\"type\":\"init\",\"session_id\":\"g1\"}'\nsleep 3600\n")
	if err := os.Chmod(filepath.Join(c.folder, "agent"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.restart()
	c.Write(ann, ann, "/gemini fix it", 0, "")
	testbed.Until(t, "the limit to be said", func() bool { return c.count("so it is stopped after 2 s.") == 1 })
	testbed.Until(t, "the run to be stopped", func() bool { return c.count("stopped (time): gemini has taken 2s") == 1 })
}
