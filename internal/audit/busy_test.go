package audit_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"signalbox/internal/audit"
	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// A server at work, with writes, gates, erasures of both sorts and a second node, is never found to be wrong; nor is it
// after a stop, with what a killed process has left in the folder of the audit.
func TestAServerAtWorkIsNotFoundToBeWrong(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		s := open(t, address, dir, options{})
		s.fill()
		nodes := []*site{s}
		if s.DB.Name() == "postgres" {
			nodes = append(nodes, open(t, address, t.TempDir(), options{}))
		}
		admin := s.admin()
		over, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		for i, n := range nodes {
			working.Go(func() {
				for round := 0; over.Err() == nil; round++ {
					n.work(admin, fmt.Sprintf("%d-%d", i, round))
					ledger.Pause(over, nil, 50*time.Millisecond)
				}
			})
		}
		began := s.audit.Status().Last
		testbed.Until(t, "everything was audited while others worked", func() bool {
			last := s.audit.Status().Last
			return last != nil && last != began && last.Entries > 900
		}, s)
		if s.DB.Name() == "postgres" {
			_, err := ledger.Rebuild(context.Background(), s.DB, s.projections(), nil)
			s.Must(err)
		}
		stop()
		working.Wait()
		for _, n := range nodes {
			if found := n.audit.Findings(); len(found) > 0 || n.Ledger.Mismatch() != nil {
				t.Errorf("nothing was changed: %+v %v", found, n.Ledger.Mismatch())
			}
		}
		s.wantClean()
		for _, n := range nodes {
			n.Stop()
		}
		testbed.Folder(t, filepath.Join(dir, "audit", "all"))
		testbed.Write(t, filepath.Join(dir, "audit", "all", "all.db"), "not a database")
		s = open(t, address, dir, options{})
		s.wantClean()
	})
}

// admin is who works.
func (s *site) admin() roster.Identity {
	s.T.Helper()
	token, err := s.roster.LocalToken(context.Background())
	s.Must(err)
	who, err := s.roster.Authenticate(context.Background(), token.Secret)
	s.Must(err)
	return who
}

// work does a little of everything.
func (s *site) work(admin roster.Identity, name string) {
	ctx := context.Background()
	a, keys, err := s.roster.AddAgent(ctx, admin, roster.NewAgent{Name: "worker-" + name})
	s.Must(err)
	_, err = s.roster.RevokeKey(ctx, admin, keys[0].Key.ID)
	s.Must(err)
	id := gatetest.Open(s.Node, "default", gate.Opening{
		Agent: a.ID, AgentName: a.Name, Origin: gate.Origin{Protocol: "signal"}, Risk: "low",
		Shown: gate.Shown{Title: "T", Summary: "S"}, Rules: gate.Rules{Expires: int64(time.Hour / time.Microsecond)},
	})
	_, err = s.gates.Vote(ctx, admin, id, gate.Ballot{Note: "No."})
	s.Must(err)
	var noted int64
	s.Must(s.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		noted = tx.Append(ledger.Event{Kind: "thing.noted", Actor: "system", Body: map[string]string{"name": name}})
		return nil
	}))
	s.Must(s.Ledger.Write(ctx, func(tx *ledger.Tx) error { tx.Erase(noted); return nil }))
	_, err = s.Ledger.Erase(ctx, s.Now().Add(-time.Second))
	s.Must(err)
}

// The audit takes no more of a processor than its share.
func TestTheAuditRestsForWhatItTakes(t *testing.T) {
	s := open(t, storetest.SQLite(t), t.TempDir(), options{audit: func(o *audit.Options) { o.Share = 0.05 }})
	s.fill()
	began, before := time.Now(), s.audit.Status()
	testbed.Until(t, "both rounds have ended", func() bool {
		now := s.audit.Status()
		return now.Last != nil && now.Fast != nil
	}, s)
	// A step longer than its rest may be under way at either end.
	took, passed := s.audit.Status().Processor-before.Processor, time.Since(began).Seconds()
	if most := 0.05*passed + 1; took > most {
		t.Errorf("%.2f seconds of a processor in %.2f", took, passed)
	}
}

// What one node has found in the whole round stops the others too.
func TestWhatOneNodeFindsStopsTheOthers(t *testing.T) {
	address := storetest.Postgres(t)
	s := open(t, address, t.TempDir(), options{})
	s.fill()
	other := open(t, address, t.TempDir(), options{audit: func(o *audit.Options) { o.Power = nil }})
	s.passes(1)
	s.power()
	for _, n := range []*site{s, other} {
		testbed.Until(t, "writes are stopped", func() bool { return n.Ledger.Mismatch() != nil }, n)
	}
}
