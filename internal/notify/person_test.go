package notify_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/clock"
	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

const minute = int64(time.Minute / time.Microsecond)

// letters reads so many, by who gets them.
func (f *mailServer) letters(t *testing.T, many int) map[string]letter {
	t.Helper()
	got := map[string]letter{}
	for range many {
		m := f.next("mail")
		to := strings.TrimSuffix(strings.TrimPrefix(m.values["RCPT"], "TO:<"), ">")
		if _, twice := got[to]; twice {
			t.Errorf("%s was told twice", to)
		}
		got[to] = parseLetter(t, m.values["data"])
	}
	return got
}

func wantReaders(t *testing.T, got map[string]letter, subject string, want ...string) {
	t.Helper()
	all := map[string]bool{}
	for to, l := range got {
		all[to] = true
		if !strings.Contains(l.subject, subject) {
			t.Errorf("%s reads %q", to, l.subject)
		}
	}
	wanted := map[string]bool{}
	for _, to := range want {
		wanted[to+"@example.com"] = true
	}
	if diff := cmp.Diff(wanted, all); diff != "" {
		t.Error(diff)
	}
}

func TestThoseWhomAGateAsksAreToldAtTheirOwnAddresses(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newMailServer(t, false)
		n := start(t, address, func(*node) []notify.Channel { return f.boxes(t, "team@example.com", "ann@example.com") })
		n.operator("ann", "operator", map[string]string{"email": "ann@example.com"}) // who has a channel of her own
		n.operator("bob", "operator", map[string]string{"email": "bob@example.com", "telegram": "4711"})
		n.operator("dan", "admin", map[string]string{"email": "dan@example.com"})
		n.operator("eve", "viewer", map[string]string{"email": "eve@example.com"})
		n.operator("fay", "operator", nil)
		if err := n.roster.AddWorkspace(t.Context(), roster.Identity{Role: roster.Admin}, "other"); err != nil {
			t.Fatal(err)
		}
		n.operatorIn("gil", "admin", "other", map[string]string{"email": "gil@example.com"})

		id := n.open(func(o *gate.Opening) {
			o.Rules.Approvers = []string{"bob"}
			o.Rules.Ladder = []gate.Step{
				{After: minute, Do: gate.Remind},
				{After: 2 * minute, Do: gate.Notify, Whom: []string{"admin", "eve"}},
			}
		})
		wantReaders(t, f.letters(t, 2), "Decision needed", "team", "ann")
		n.Move(90 * time.Second)
		reminded := f.letters(t, 3)
		wantReaders(t, reminded, "Still waits", "team", "ann", "bob")
		n.Move(90 * time.Second)
		wantReaders(t, f.letters(t, 4), "Still waits", "team", "ann", "dan", "eve")

		// They hear how it ended; who is no operator any more hears nothing.
		if err := n.roster.RemoveOperator(t.Context(), roster.Identity{Role: roster.Admin}, "eve"); err != nil {
			t.Fatal(err)
		}
		n.decide(id, "bob", true, "go")
		ended := f.letters(t, 4)
		wantReaders(t, ended, "Approved by bob", "team", "ann", "bob", "dan")
		got := ended["bob@example.com"].header.Get("In-Reply-To")
		if want := reminded["bob@example.com"].header.Get("Message-Id"); got != want || want == "" {
			t.Errorf("the outcome answers %q, and he read %q", got, want)
		}
		n.until("all is delivered", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE status <> 'delivered'") == 0
		})
		n.Stop()
		f.none()

		// Begun again it tells nobody twice.
		again := open(t, address, func(*node) []notify.Channel { return f.boxes(t, "team@example.com", "ann@example.com") })
		before := again.Count("SELECT count(*) FROM delivery")
		again.readAgain()
		if got := again.Count("SELECT count(*) FROM delivery"); got != before {
			t.Errorf("there are %d deliveries, and were %d", got, before)
		}
		again.WantClean()
		again.wantNoSecrets(mailPassword)
	})
}

// untilMoot waits until the reminders of a decided gate to these are done with. Only then may the
// server take letters again: a try that had begun before the decision would reach it.
func (n *node) untilMoot(names ...string) {
	n.T.Helper()
	for _, name := range names {
		n.until("the reminders of "+name+" are moot", func() bool {
			return n.Count("SELECT count(*) FROM delivery d JOIN notice o ON o.delivery = d.id WHERE o.event = "+
				"'gate.escalated' AND o.channel = $1 AND d.status <> 'delivered'", "email:"+name+"@example.com") == 0
		})
	}
}

func TestAReminderThatNobodyNeedsReachesNobody(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newMailServer(t, false)
		n := start(t, address, func(*node) []notify.Channel { return f.boxes(t, "team@example.com") })
		n.operator("bob", "operator", map[string]string{"email": "bob@example.com"})
		f.refuse.Store(450)
		id := n.open(func(o *gate.Opening) { o.Rules.Ladder = []gate.Step{{After: 1, Do: gate.Remind}} })
		n.until("bob's letter was tried", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE target = 'email:bob@example.com' AND attempts > 0") == 1
		})
		n.decide(id, "bob", true, "go")
		n.untilMoot("bob")
		f.refuse.Store(0)
		n.until("all is delivered", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE status <> 'delivered'") == 0
		})
		for len(f.got) > 0 {
			if got := f.next("mail"); strings.Contains(got.values["RCPT"], "bob@") {
				t.Errorf("bob was told of what he never heard of: %v", got.values)
			}
		}
	})
}

func TestTelegramWritesToThoseWhoHaveBegun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f, n := startTelegram(t, address)
		n.operator("ann", "operator", map[string]string{"telegram": "4711"})
		n.operator("bob", "operator", map[string]string{"telegram": "4712"})
		f.Forbid.Store("4712") // who has not begun
		n.open(func(o *gate.Opening) { o.Rules.Ladder = []gate.Step{{After: minute, Do: gate.Remind}} })
		f.next("sendMessage")
		n.Move(2 * time.Minute)
		chats := map[string]bool{}
		for range 2 {
			chats[f.next("sendMessage").values["chat_id"]] = true
		}
		if !chats["4711"] {
			t.Errorf("told in %v", chats)
		}
		n.until("bob's is given up", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE status = 'dead' AND last_error LIKE '%/start%'") == 1
		})
	})
}

func TestAStepAndItsOutcomeThatAreReadTogetherAreBothTold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newMailServer(t, false)
		box := func(*node) []notify.Channel { return f.boxes(t, "team@example.com") }
		first := start(t, address, box)
		first.operator("bob", "operator", map[string]string{"email": "bob@example.com"})
		first.Stop()
		n := open(t, address, box) // nothing follows the ledger yet
		id := n.open(func(o *gate.Opening) { o.Rules.Ladder = []gate.Step{{After: 1, Do: gate.Remind}} })
		ctx, cancel := context.WithCancel(t.Context())
		var climbing sync.WaitGroup
		climbing.Go(func() { _ = clock.New(n.DB, n.Ledger, n.Now, n.notifierLog(), n.gates.Handlers()).Run(ctx) })
		n.until("the step was taken", func() bool { return len(n.Entries("gate.escalated")) == 1 })
		cancel()
		climbing.Wait()
		n.decide(id, "bob", true, "go")
		n.run()
		n.until("all is delivered", func() bool {
			return n.Count("SELECT count(*) FROM notice") == 5 &&
				n.Count("SELECT count(*) FROM delivery WHERE status <> 'delivered'") == 0
		})
		if got := n.Count(
			"SELECT count(*) FROM notice WHERE contact = 'bob@example.com' AND event = 'gate.resolved'",
		); got != 1 {
			t.Errorf("bob's outcome was queued %d times", got)
		}
		n.WantClean()
	})
}

func TestTheOutcomeAnswersTheLastThatWasRead(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newMailServer(t, false)
		n := start(t, address, func(*node) []notify.Channel { return f.boxes(t, "team@example.com") })
		n.operator("bob", "operator", map[string]string{"email": "bob@example.com"})
		id := n.open(func(o *gate.Opening) {
			o.Rules.Ladder = []gate.Step{{After: minute, Do: gate.Remind}, {After: 2 * minute, Do: gate.Remind}}
		})
		f.letters(t, 1)
		n.Move(90 * time.Second)
		reminded := f.letters(t, 2)["bob@example.com"].header.Get("Message-Id")
		f.refuse.Store(450)
		n.Move(time.Minute)
		n.until("the second reminder was tried", func() bool {
			return n.Count("SELECT count(*) FROM delivery WHERE target = 'email:bob@example.com' AND "+
				"status <> 'delivered' AND attempts > 0") == 1
		})
		n.decide(id, "bob", true, "go") // now it is moot
		n.untilMoot("bob", "team")
		f.refuse.Store(0)
		ended := f.letters(t, 2)
		wantReaders(t, ended, "Approved by bob", "team", "bob")
		if got := ended["bob@example.com"].header.Get("In-Reply-To"); got != reminded || got == "" {
			t.Errorf("the outcome answers %q, and he read %q", got, reminded)
		}
	})
}
