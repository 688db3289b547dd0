package mail_test

import (
	"strings"
	"sync"
	"testing"

	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/store/storetest"
)

// TestANoticeIsDeliveredOnce by its key, however often and by however many it is sent, and
// whatever agents may send one another.
func TestANoticeIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address, func(o *mail.Options) { o.QueueCap, o.SignaturesRequired = 3, true })
		n.Apply("rules: [{name: none, on: [message], then: block}]\n")
		n.Register("bob", "acme")
		bob := n.Register("alice", "acme")
		notify := func(key string, context any) {
			t.Helper()
			to, err := n.Roster.Agent(t.Context(), "acme", bob.Who().Name)
			if err != nil {
				t.Fatal(err)
			}
			err = n.Mail.Notify(t.Context(),
				mail.Notice{
					From: "_test", To: to, Subject: "Hello", Kind: "update", Text: "It is <time>", Context: context,
					Key: key,
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { notify("1", map[string]any{"a": 1}) })
		}
		wg.Wait()
		notify("2", strings.Repeat("x", 600<<10)) // more than a message may hold
		var page struct {
			Messages []struct {
				ID       string
				Envelope amp.Envelope
				Payload  map[string]any
			}
		}
		n.Want(200, bob.APIKey, "GET /v1/messages/pending", "", &page)
		if len(page.Messages) != 2 {
			t.Fatalf("%+v", page)
		}
		if m := page.Messages[0]; m.Envelope.From != "_test@acme.signalbox.local" || m.Payload["message"] != "It is <time>" ||
			m.Payload["type"] != "update" || m.Payload["context"] == nil {
			t.Errorf("%+v", m)
		}
		if page.Messages[1].Payload["context"] != nil {
			t.Error("the context is there, and too long")
		}
		bob.Ack(page.Messages[0].ID)
		notify("1", nil) // also after it was read
		notify("3", nil)
		notify("4", nil)
		notify("5", nil) // the queue is full
		if got := bob.Inbox(); len(got) != 3 {
			t.Errorf("%v", got)
		}
		n.WantClean()
	})
}
