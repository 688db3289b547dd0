package notify_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"signalbox/internal/deliver"
	"signalbox/internal/notify"
	"signalbox/internal/notify/ntfy"
	"signalbox/internal/notify/slack"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// channelsAt are channels whose service is at the address, and whose secrets say so.
func channelsAt(t *testing.T, address string) []notify.Channel {
	t.Helper()
	client := notify.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	log := slog.New(slog.DiscardHandler)
	topic, err := ntfy.NewTopic(wire.NewSecret(address+"/hunter2"), wire.NewSecret("tk_hunter2"), client)
	if err != nil {
		t.Fatal(err)
	}
	bot, err := telegram.NewBot(telegram.Options{
		Token: wire.NewSecret("1:hunter2"), Chat: "7", API: address, HTTP: client,
		Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return []notify.Channel{
		topic, bot, slack.NewHook(wire.NewSecret(address+"/services/hunter2"), client),
		slack.NewApp(slack.Options{
			Token: wire.NewSecret("xoxb-hunter2"), Channel: "C1", API: address, HTTP: client,
			Log: log,
		}),
	}
}

func TestAServiceThatMisbehavesIsAFailureAndNoMore(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	elsewhere := testbed.ServeHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	for name, answer := range map[string]http.HandlerFunc{
		"it points elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+"/hunter2", http.StatusTemporaryRedirect)
		},
		"it answers without end": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.Copy(w, io.LimitReader(endless{}, 100<<20))
		},
		"it repeats the secret": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "hunter2")
		},
		"it hangs up":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"nobody is there": nil,
	} {
		t.Run(name, func(t *testing.T) {
			address := "http://" + testbed.FreeAddress(t)
			if answer != nil {
				address = testbed.ServeHTTP(t, answer)
			}
			for _, c := range channelsAt(t, address) {
				r := c.Send(t.Context(), notify.Message{ID: "delivery_1", Event: notify.Tested, Link: base})
				if r.Verdict != deliver.Failed || r.Text == "" || strings.Contains(r.Text, "hunter2") {
					t.Errorf("%s: %+v", c.Name(), r)
				}
				if strings.Contains(c.Target(), "hunter2") {
					t.Errorf("the target is %s", c.Target())
				}
			}
		})
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
