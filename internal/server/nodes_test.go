package server_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestTwoNodesShareOneLedger(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	a := start(t, address, nil)
	b := start(t, address, nil) // in a folder of its own, without the key

	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { a.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":"a-%d"}`, i), nil) })
		wg.Go(func() { b.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":"b-%d"}`, i), nil) })
	}
	wg.Wait()
	if a.head() != b.head() {
		t.Errorf("one node sees %d entries, the other %d", a.head(), b.head())
	}
	var s server.Status
	b.ops(200, "GET /ops/status", "", &s)
	if s.Signs {
		t.Error("a node without the key says that it signs")
	}
	// The second node takes over the checkpoint that the first signs.
	testbed.Until(t, fmt.Sprintf("a checkpoint over %d entries on the second node", s.Entries), func() bool {
		return strings.Contains(testbed.ReadAny(filepath.Join(b.config.Data, "checkpoint")), fmt.Sprintf("\n%d\n", s.Entries))
	})
	if status, answer, _ := b.do(request{call: "GET /ledger/checkpoint"}); status != http.StatusOK ||
		!strings.Contains(answer, "— signalbox.local/") {
		t.Errorf("%d %s", status, answer)
	}
}

func TestALedgerThatIsNotWhatWasSignedIsReadOnly(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		flags := map[string]string{"data": dir}
		if !strings.HasPrefix(address, "postgres") {
			address = ""
		}
		b := start(t, address, flags)
		before, _ := b.addAgent("before")
		b.stop()

		db, err := server.OpenStore(t.Context(), b.config)
		if err != nil {
			t.Fatal(err)
		}
		var first []byte
		added := ledgertest.Seq(t, db, "agent.added", before)
		ledgertest.Tamper(t, db, 1, func(record, _, body []byte) ([]byte, []byte) { first = record; return record, body })
		ledgertest.Tamper(t, db, added, func(_, _, body []byte) ([]byte, []byte) { return first, body })
		db.Close()

		b = start(t, address, flags)
		if status, answer, _ := b.do(request{call: "GET /readyz"}); status != 503 ||
			!strings.Contains(answer, fmt.Sprint("Entry ", added)) {
			t.Errorf("/readyz: %d %s", status, answer)
		}
		if status, answer, _ := b.do(request{
			call: "POST /ops/agents", token: b.token(),
			body: `{"name":"after"}`,
		}); status != 503 || !strings.Contains(answer, "ledger_mismatch") {
			t.Errorf("a write: %d %s", status, answer)
		}
		b.ops(200, "GET /ops/agents", "", nil) // reading goes on
		// But nobody is somebody by an entry that was changed.
		b.ops(503, "GET /ops/agents/before", "", nil)
		if _, text, _ := b.do(request{call: "GET /metrics"}); !strings.Contains(text, "signalbox_ledger_refuses_writes 1") {
			t.Error("/metrics does not say that writes are refused")
		}
	})
}

// Another node goes on at once when one stops, whatever that one was doing.
func TestAServerThatIsStoppedHoldsNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		asked := make(chan struct{}, 100)
		silent := testbed.ServeHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // by which the server notices that the caller is gone
			asked <- struct{}{}
			<-r.Context().Done()
		}))
		settings := map[string]string{"data": t.TempDir(), "notify.webhook": silent}
		for round := range 2 {
			b := start(t, address, settings)
			if round == 0 {
				b.signal(b.agentKey("tailor", "default"), "tailor", "r")
			}
			if round%2 == 0 {
				testbed.Receive(t, "a delivery", asked)
			}
			b.stop()
			db := address
			if !strings.HasPrefix(address, "postgres") {
				db = filepath.Join(b.config.Data, server.DatabaseFile)
			}
			after, err := store.Open(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			var held int
			err = after.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM ledger_cursor WHERE held_until <> 0) +
(SELECT count(*) FROM delivery_runner) + (SELECT count(*) FROM delivery_claim WHERE holder <> '')`, nil, &held)
			after.Close()
			if err != nil || held != 0 {
				t.Errorf("round %d: %d leases are held: %v", round, held, err)
			}
		}
	})
}
