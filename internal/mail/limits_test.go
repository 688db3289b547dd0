package mail_test

import (
	"fmt"
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

// TestTheLimitsOfMessages: 60 a minute and 500 an hour for who sends, 120 a minute for who
// receives.
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
	var total int
	begun := n.Now()
	for i := range 3 {
		a := n.Register(fmt.Sprintf("sender-%d", i), "acme")
		taken, answer := burst(a, bob.Address)
		if total += taken; !strings.Contains(answer, "429") || i < 2 && !strings.Contains(answer, "messages a minute") {
			t.Errorf("%d %s", taken, answer)
		}
		if i == 2 && !strings.Contains(answer, "recipient_busy") {
			t.Errorf("%s", answer)
		}
	}
	if total < 120 || total > 120+refilled(begun, 120*60) {
		t.Errorf("%d were received", total)
	}
	carol, total := n.Register("carol", "acme"), 0
	var last string
	begun = n.Now()
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
