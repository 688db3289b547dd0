package clock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// alarms is a package that uses timers: alarm.set sets one, alarm.off clears it,
// alarm.rang counts how often it rang.
var alarmMigrations = store.Migrations{Package: "alarms", Steps: []string{
	"CREATE TABLE alarm (name {text} PRIMARY KEY, rang {bigint} NOT NULL) {strict};",
}}

type setBody struct {
	Due int64 `json:"due"`
}

var alarms = ledger.Projection{
	Name:   "alarms",
	Tables: ledger.Tables("alarm (name)"),
	Apply: map[string]ledger.Apply{
		"alarm.set": ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *setBody) {
			tx.Exec("INSERT INTO alarm (name, rang) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING", e.Subject)
			clock.Set(tx, clock.Timer{Kind: "alarm", Subject: e.Subject, Workspace: e.Workspace, Due: time.UnixMicro(b.Due)})
		}),
		"alarm.off": func(tx *store.Tx, e *ledger.Entry) error {
			clock.Clear(tx, "alarm", e.Subject)
			return nil
		},
		"alarm.rang": func(tx *store.Tx, e *ledger.Entry) error {
			tx.Exec("UPDATE alarm SET rang = rang + 1 WHERE name = $1", e.Subject)
			return nil
		},
	},
}

// parts are timers, and what uses them.
func parts() []ledgertest.Part {
	return []ledgertest.Part{
		{Migrations: clock.Migrations, Projection: clock.Projection()},
		{Migrations: alarmMigrations, Projection: alarms},
	}
}

// node is a ledger with timers, as one process has them.
type node struct{ *ledgertest.Node }

// start runs a node; ring may make the handler fail, nil never does.
func start(t testing.TB, address, dir string, ring func(clock.Timer) error) *node {
	t.Helper()
	n := &node{ledgertest.Open(t, address, nil, parts(), ledgertest.Dir(dir))}
	timers := clock.New(n.DB, n.Ledger, n.Now, slog.New(slog.DiscardHandler), map[string]clock.Handler{
		"alarm": func(tx *ledger.Tx, timer clock.Timer) error {
			if ring != nil {
				if err := ring(timer); err != nil {
					return err
				}
			}
			tx.Append(ledger.Event{Kind: "alarm.rang", Actor: "system", Subject: timer.Subject, Body: struct{}{}})
			return nil
		},
	})
	n.Run(timers.Run)
	return n
}

func (n *node) append(kind, subject string, body any) {
	n.T.Helper()
	err := n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Kind: kind, Actor: "system", Subject: subject, Body: body})
		return nil
	})
	if err != nil {
		n.T.Error(err)
	}
}

func (n *node) set(name string, in time.Duration) {
	n.T.Helper()
	n.append("alarm.set", name, setBody{n.Now().Add(in).UnixMicro()})
}

// rang counts how often an alarm rang, -1 for one that is not there.
func (n *node) rang(name string) (times int) {
	n.T.Helper()
	if err := n.DB.Read.QueryRowContext(context.Background(), "SELECT rang FROM alarm WHERE name = $1",
		name).Scan(&times); err != nil {
		return -1
	}
	return times
}

func TestATimer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		var broken atomic.Bool
		broken.Store(true)
		n := start(t, address, t.TempDir(), func(timer clock.Timer) error {
			if timer.Subject == "broken" && broken.Load() {
				return errors.New("not yet")
			}
			if timer.Subject == "panics" && broken.Load() {
				panic("not yet")
			}
			return nil
		})
		n.set("far", time.Hour)
		n.set("now", 0)
		n.set("past", -time.Minute)
		n.set("soon", 200*time.Millisecond)
		n.set("cleared", time.Minute)
		n.append("alarm.off", "cleared", struct{}{})
		n.set("moved", time.Hour)
		n.set("moved", 100*time.Millisecond)
		n.set("broken", 0)
		n.set("panics", 0)
		for _, name := range []string{"now", "past", "soon", "moved"} {
			testbed.Until(t, name+" to ring", func() bool { return n.rang(name) == 1 })
		}
		if n.rang("far") != 0 || n.rang("cleared") != 0 || n.rang("broken") != 0 {
			t.Errorf("far %d, cleared %d, broken %d", n.rang("far"), n.rang("cleared"), n.rang("broken"))
		}
		broken.Store(false)
		testbed.Until(t, "broken to ring", func() bool { return n.rang("broken") == 1 && n.rang("panics") == 1 })

		// A clock that is set forward by an hour fires what that makes due; one that
		// is set back fires nothing twice.
		n.Set(time.Hour + time.Second)
		testbed.Until(t, "far to ring", func() bool { return n.rang("far") == 1 })
		n.Set(-time.Hour)
		n.set("after the step", 0)
		testbed.Until(t, "after the step to ring", func() bool { return n.rang("after the step") == 1 })
		for _, name := range []string{"now", "past", "soon", "moved", "broken", "panics", "far"} {
			if n.rang(name) != 1 {
				t.Errorf("%s rang %d times", name, n.rang(name))
			}
		}
		if n.rang("cleared") != 0 {
			t.Error("an alarm that was cleared rang")
		}
		n.WantClean()
	})
}

func TestATimerFiresOnceWhateverIsKilled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		nodes := 1
		if strings.HasPrefix(address, "postgres") {
			nodes = 3
		}
		dirs := make([]string, nodes)
		running := make([]*node, nodes)
		for i := range nodes {
			dirs[i] = t.TempDir()
			running[i] = start(t, address, dirs[i], nil)
		}
		count := func(where string) (c int) {
			if err := running[0].DB.Read.QueryRowContext(context.Background(),
				"SELECT count(*) FROM alarm WHERE "+where).Scan(&c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		const rounds, each = 6, 50
		const alarmCount = rounds * each
		for round := range rounds {
			for i := range each {
				running[rand.IntN(nodes)].set(fmt.Sprintf("%d-%d", round, i), time.Duration(rand.IntN(400))*time.Millisecond)
			}
			some := rand.IntN(each)
			testbed.Until(t, "some alarms of the round", func() bool {
				return count(fmt.Sprintf("rang >= 1 AND name LIKE '%d-%%'", round)) >= some
			})
			i := rand.IntN(nodes)
			running[i].Stop()
			running[i] = start(t, address, dirs[i], nil)
		}
		testbed.Until(t, "all alarms", func() bool { return count("rang >= 1") == alarmCount })
		if twice := count("rang > 1"); twice != 0 {
			t.Errorf("%d alarms rang more than once", twice)
		}
		running[0].WantClean()
	})
}
