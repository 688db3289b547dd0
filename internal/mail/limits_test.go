package mail_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// TestTheLimitsOfMessages: 60 a minute and 500 an hour for who sends, to one recipient or to many.
func TestTheLimitsOfMessages(t *testing.T) {
	t.Parallel()
	n := mailtest.StartLimited(t, storetest.SQLite(t), nil)
	bob := n.Register("bob", "acme")
	n.Move(time.Hour)
	// burst sends until something is refused, and returns how many were taken.
	burst := func(a *mailtest.Agent, to string) (taken int, answer string) {
		for ; taken < 1000; taken++ {
			status, text := n.Call(a.APIKey, "POST /v1/route",
				fmt.Sprintf(`{"to":%q,"subject":"s","payload":{"type":"request","message":"m"}}`, to), nil)
			if status != 200 {
				return taken, fmt.Sprint(status, text)
			}
		}
		return taken, ""
	}
	// A bucket fills while it is emptied: refilled is how many fit into it since then.
	refilled := func(since time.Time, perHour float64) int { return int(perHour*n.Now().Sub(since).Hours()) + 1 }
	// Nobody can close a mailbox to others: each of three senders has its own limit.
	for i := range 3 {
		begun := n.Now()
		taken, answer := burst(n.Register(fmt.Sprintf("sender-%d", i), "acme"), bob.Address)
		if taken < 60 || taken > 60+refilled(begun, 60*60) || !strings.Contains(answer, "messages a minute") {
			t.Errorf("%d %s", taken, answer)
		}
	}
	carol, total := n.Register("carol", "acme"), 0
	var last string
	begun := n.Now()
	for range 12 {
		n.Move(time.Minute)
		var taken int
		taken, last = burst(carol, n.Register(fmt.Sprintf("to-%d", total), "acme").Address)
		total += taken
	}
	if total < 500 || total > 500+refilled(begun, 500) || !strings.Contains(last, "messages an hour") {
		t.Errorf("%d were sent within the hour: %s", total, last)
	}
}

// Of 100 messages at once as many get through as the rule says, whatever becomes of the others.
func TestALimitOfARuleIsExact(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address)
		for then, want := range map[string]fault.Code{"block": fault.Forbidden, "defer": fault.RateLimited, "gate": ""} {
			alice, bob := n.Register("alice", "acme-"+then), n.Register("bob", "acme-"+then)
			n.Apply("rules: [{name: sixty, on: [message], when: 'recent.messages(\"1h\") >= 60', then: " + then + "}]")
			var mu sync.Mutex
			sent, held, refused := 0, 0, 0
			letter := alice.Letter(bob.Address, "s", "hello there", "")
			testbed.AtOnce(100, func(int) {
				a, err := n.Mail.Route(t.Context(), alice.Who(), letter)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && a.Status == mail.Held:
					held++
				case err == nil:
					sent++
				// An agent of which forty messages are blocked is at risk, and may be suspended before the last one.
				case mailtest.Code(err) == want, then == "block" && mailtest.Code(err) == fault.AgentSuspended:
					refused++
				default:
					t.Error(err)
				}
			})
			if sent != 60 || held+refused != 40 || (then == "gate") != (held == 40) {
				t.Errorf("%s: %d sent, %d held, %d refused", then, sent, held, refused)
			}
		}
	})
}

// A sender fills its share of a queue, and others still get in, also if together they fill it.
func TestOneSenderCannotCloseAMailboxToOthers(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address, func(o *mail.Options) { o.QueueCap = 40 })
		bob := n.Register("bob", "acme")
		fill := func(name string) (taken int) {
			a := n.Register(name, "acme")
			for ; taken < 50; taken++ {
				if _, err := n.Mail.Route(t.Context(), a.Who(), a.Letter(bob.Address, "s", "m", "")); err != nil {
					if e := fault.From(err); e.Details["reason"] != "queue_full" {
						t.Error(err)
					}
					break
				}
			}
			return taken
		}
		var got []int
		for i := range 6 {
			got = append(got, fill(fmt.Sprintf("sender-%d", i)))
		}
		// Four quarters, and one message of each further sender.
		if want := []int{10, 10, 10, 10, 1, 1}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
