package deliver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/deliver"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// longLease outlasts every test, so that nothing is taken over because time has passed.
func longLease(o *deliver.Options) { o.Lease = time.Hour }

// startHanging starts a runner whose first delivery hangs, until answers is called.
func startHanging(t *testing.T, address string) (n *node, id string, answers func()) {
	t.Helper()
	reached, answering := make(chan struct{}, 1), &atomic.Bool{}
	hanging := newReceiver(t, func(_ http.ResponseWriter, req *http.Request, _ call) {
		if !answering.Load() {
			reached <- struct{}{}
			<-req.Context().Done()
		}
	})
	n = start(t, address, longLease, func(o *deliver.Options) { o.Timeout = time.Minute })
	id = n.queue(t, hook(hanging.URL))[0]
	testbed.Receive(t, "the first try", reached)
	return n, id, func() { answering.Store(true) }
}

func TestARunnerThatStopsLeavesItsLanesToOthersAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		watcher := storetest.Open(t, address, ledger.Migrations, deliver.Migrations)
		n, id, answers := startHanging(t, address)
		if held(t, watcher) == 0 {
			t.Fatal("a runner that sends holds nothing")
		}
		n.stop()
		if got := held(t, watcher); got != 0 {
			t.Errorf("after a stop %d rows say that the lane is held", got)
		}
		answers()
		start(t, address, longLease).becomes(t, id, deliver.Delivered)
	})
}

// TestARunnerThatIsAloneGoesOnAtOnce: a server that was killed and starts again does not wait for a lease of its own.
func TestARunnerThatIsAloneGoesOnAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, id, answers := startHanging(t, address)
		n.kill()
		answers()
		start(t, address, longLease, func(o *deliver.Options) { o.Alone = true }).becomes(t, id, deliver.Delivered)
	})
}

func TestARunnerThatIsStoppedWhileItClaimsHoldsNothing(t *testing.T) {
	address := storetest.Postgres(t)
	watcher := storetest.Open(t, address, ledger.Migrations, deliver.Migrations)
	commit := storetest.HoldCommits(t, address, "delivery_claim")
	n := start(t, address, longLease)
	id := n.queue(t, hook(newReceiver(t, ok).URL))[0]
	commit.Reached()
	stopped := make(chan struct{})
	go func() { defer close(stopped); n.stop() }()
	select { // a runner that gives its claim up does so now
	case <-stopped:
	case <-time.After(100 * time.Millisecond):
	}
	commit.Release()
	testbed.Receive(t, "the runner's end", stopped)
	if got := held(t, watcher); got != 0 {
		t.Errorf("after a stop %d rows say that the lane is held", got)
	}
	start(t, address, longLease).becomes(t, id, deliver.Delivered)
}

// held counts the runners and their claims, after what is under way.
func held(t *testing.T, db *store.DB) (rows int) {
	t.Helper()
	tx, err := db.Begin(context.Background(), "delivery_lock")
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.QueryRow("SELECT (SELECT count(*) FROM delivery_runner) + (SELECT count(*) "+
		"FROM delivery_claim WHERE holder <> '')", nil, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestMoreLanesThanSlotsTakeTurns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, ok)
		c := &ledgertest.Clock{}
		n := open(t, address, c, func(o *deliver.Options) { o.Slots = 4 })
		var all []deliver.Delivery
		for range 60 { // the long lines were there first
			for i := range 8 {
				all = append(all, hook(fmt.Sprintf("%s/long/%d", r.URL, i)))
			}
		}
		long := n.queue(t, all...)
		short := n.queue(t, hook(r.URL+"/short"))[0]
		n.core.Run(n.Run)
		n.becomes(t, short, deliver.Delivered)
		before := len(r.got(""))
		for _, id := range long {
			n.becomes(t, id, deliver.Delivered)
		}
		if before > len(long)/2 {
			t.Errorf("%d of %d deliveries of long lines came before the only one of a short line", before, len(long))
		}
		n.core.WantClean()
	})
}

// silence is a sender whose targets never answer. It counts how many hang at a time.
type silence struct{ now, most atomic.Int64 }

func (s *silence) Send(ctx context.Context, _ deliver.Attempt) deliver.Result {
	if n := s.now.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	<-ctx.Done()
	s.now.Add(-1)
	return deliver.Result{Class: "timeout"}
}

func TestTargetsThatHangLeaveSlotsForOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		bad, good := &silence{}, newReceiver(t, ok)
		n := start(t, address, func(o *deliver.Options) {
			o.Slots, o.Timeout, o.Senders = 4, 100*time.Millisecond, map[string]deliver.Sender{"silence": bad}
		})
		var all []deliver.Delivery
		for i := range 12 {
			all = append(all, deliver.Delivery{Workspace: "default", Sender: "silence", Target: strconv.Itoa(i)})
		}
		ids := n.queue(t, all...)
		for _, id := range ids {
			n.tried(t, id, 1)
		}
		// All of them are known to hang now, and half of the slots stay free of them.
		bad.most.Store(0)
		for range 5 {
			n.becomes(t, n.queue(t, hook(good.URL+"/good"))[0], deliver.Delivered)
		}
		for _, id := range ids {
			n.tried(t, id, 3)
		}
		if most := bad.most.Load(); most > 2 {
			t.Errorf("%d of 4 slots were held by targets that hang", most)
		}
	})
}

func TestAnOutcomeForADeliveryThatHasEndedChangesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, ok)
		n := start(t, address)
		ids := n.queue(t, hook(r.URL+"/a"), hook(r.URL+"/a"))
		n.becomes(t, ids[1], deliver.Delivered)
		before, err := n.List(t.Context(), deliver.Filter{}, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"delivery.failed", "delivery.given_up", "delivery.succeeded", "delivery.resent"} {
			err := n.ledger.Write(t.Context(), func(tx *ledger.Tx) error {
				tx.Append(ledger.Event{
					Kind: kind, Actor: "system", Subject: ids[0],
					Body: []byte(`{"attempt":7,"at":5,"took_ms":1,"text":"late","next_at":9}`),
				})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		after, err := n.List(t.Context(), deliver.Filter{}, "", 10)
		if diff := cmp.Diff(before, after); diff != "" || err != nil {
			t.Error(diff, err)
		}
		n.core.WantClean()
	})
}

func TestADeliveryForLaterWaitsAndThoseBehindItToo(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, ok)
		n := start(t, address)
		later := hook(r.URL + "/later")
		later.NotBefore = n.Now().Add(time.Hour)
		ids := n.queue(t, later, hook(r.URL+"/later"), hook(r.URL+"/other"))
		n.becomes(t, ids[2], deliver.Delivered)
		if a, b := n.get(t, ids[0]), n.get(t, ids[1]); a.Attempts != 0 || a.NextAt == nil || b.Attempts != 0 ||
			b.Behind != ids[0] {
			t.Errorf("they are %+v and %+v", a, b)
		}
		n.Move(time.Hour)
		n.becomes(t, ids[1], deliver.Delivered)
		if got := r.got("/later"); len(got) != 2 || got[0].id != ids[0] {
			t.Errorf("the receiver got %+v", got)
		}
	})
}

// phone is a sender of another kind.
type phone struct{ calls atomic.Int64 }

func (p *phone) Send(_ context.Context, a deliver.Attempt) deliver.Result {
	if p.calls.Add(1) == 1 {
		panic("the line is cut")
	}
	if a.Target != "+49 30 1234" || string(a.Payload) != "hello" || a.Number != 2 {
		return deliver.Result{Verdict: deliver.Hopeless, Text: fmt.Sprintf("%+v", a)}
	}
	return deliver.Result{Verdict: deliver.Succeeded}
}

func TestOtherSendersUseTheSameQueueAndAPanicIsTheirFailure(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, func(o *deliver.Options) { o.Senders = map[string]deliver.Sender{"phone": &phone{}} })
		ids := n.queue(t,
			deliver.Delivery{Workspace: "default", Sender: "phone", Target: "+49 30 1234", Payload: []byte("hello")},
			deliver.Delivery{Workspace: "default", Sender: "pigeon", Target: "roof"})
		d := n.becomes(t, ids[0], deliver.Delivered)
		if d.Attempts != 2 || d.Events[0].Class != "internal" {
			t.Errorf("it is %+v", d)
		}
		if d := n.tried(t, ids[1], 1); d.Events[0].Class != "no_sender" {
			t.Errorf("without a sender it is %+v", d)
		}
	})
}

func TestTheOperatorsAPI(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, status(http.StatusGone))
		n := start(t, address)
		var ids []string
		for i := range 5 {
			d := hook(fmt.Sprintf("%s/%d", r.URL, i%2))
			d.Workspace = []string{"default", "other"}[i%2]
			ids = append(ids, n.queue(t, d)[0])
		}
		for _, id := range ids {
			n.becomes(t, id, deliver.Dead)
		}
		scope := ""
		mux := http.NewServeMux()
		for _, route := range n.Routes() {
			mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, req *http.Request) {
				ctx := wire.WithScope(roster.With(req.Context(),
					roster.Identity{Kind: roster.HolderOperator, ID: "o", Name: "ines", Role: roster.Operator}), scope)
				if err := route.Handle(w, req.WithContext(ctx)); err != nil {
					wire.Fail(w, err)
				}
			})
		}
		ask := func(method, path string, into any) int {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if into != nil {
				if err := wire.Unmarshal(w.Body.Bytes(), into); err != nil {
					t.Errorf("%s: %v\n%s", path, err, w.Body)
				}
			}
			return w.Code
		}
		for query, want := range map[string]int{
			"": 5, "?status=dead": 5, "?status=pending": 0, "?workspace=other": 2, "?workspace=none": 0,
			"?target=" + r.URL + "/0": 3, "?target=" + r.URL + "/0&workspace=default&status=dead": 3, "?limit=2": 2,
		} {
			var page deliver.Page
			if code := ask("GET", "/ops/deliveries"+query, &page); code != 200 || len(page.Deliveries) != want {
				t.Errorf("%q: %d, %d deliveries, want %d", query, code, len(page.Deliveries), want)
			}
		}
		var pages []string
		for cursor := ""; ; {
			var page deliver.Page
			ask("GET", "/ops/deliveries?limit=2&cursor="+cursor, &page)
			for _, d := range page.Deliveries {
				pages = append([]string{d.ID}, pages...)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(ids, pages); diff != "" {
			t.Error(diff)
		}
		var one deliver.Detail
		if code := ask("GET", "/ops/deliveries/"+ids[0], &one); code != 200 || one.ID != ids[0] || len(one.Events) != 1 ||
			!strings.Contains(one.Events[0].Text, "410") {
			t.Errorf("%d %+v", code, one)
		}
		var again deliver.Summary
		if code := ask("POST", "/ops/deliveries/"+ids[0]+"/resend", &again); code != 200 || again.Status != deliver.Pending {
			t.Errorf("%d %+v", code, again)
		}
		scope = "other"
		var page deliver.Page
		ask("GET", "/ops/deliveries", &page)
		if len(page.Deliveries) != 2 {
			t.Errorf("one workspace sees %+v", page.Deliveries)
		}
		ask("GET", "/ops/deliveries?workspace=default", &page)
		if len(page.Deliveries) != 0 {
			t.Errorf("one workspace sees of another %+v", page.Deliveries)
		}
		for _, call := range []string{"GET /ops/deliveries/" + ids[0], "POST /ops/deliveries/" + ids[0] + "/resend"} {
			method, path, _ := strings.Cut(call, " ")
			if code := ask(method, path, nil); code != 404 {
				t.Errorf("%s of another workspace: %d", call, code)
			}
		}
		for path, want := range map[string]int{
			"/ops/deliveries/delivery_x": 404, "/ops/deliveries?status=lost": 400,
			"/ops/deliveries?limit=0": 400, "/ops/deliveries?cursor=!": 400,
		} {
			if code := ask("GET", path, nil); code != want {
				t.Errorf("%s: %d, want %d", path, code, want)
			}
		}
	})
}
