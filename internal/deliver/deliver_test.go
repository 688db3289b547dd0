package deliver_test

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/deliver"
	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestADeliveryArrivesOnceWithItsBytesHeadersAndSignatures(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, r := start(t, address), newReceiver(t, ok)
		text, raw := hook(r.URL+"/text"), hook(r.URL+"/raw")
		text.Payload = []byte("{ \"ü\":1}\n")
		text.Header = map[string]string{"X-AMP-Message-Id": "msg_1", "Content-Type": "application/json; charset=utf-8"}
		raw.Payload = []byte("a\x00b\xff")
		ids := n.queue(t, text, raw)
		d := n.becomes(t, ids[0], deliver.Delivered)
		n.becomes(t, ids[1], deliver.Delivered)
		if d.Attempts != 1 || d.EndedAt == nil || d.NextAt != nil || len(d.Events) != 1 || d.Events[0].Status != 204 {
			t.Errorf("the delivery is %+v", d)
		}
		got := r.got("/text")
		if len(got) != 1 || got[0].body != string(text.Payload) || got[0].id != ids[0] ||
			got[0].header.Get("X-AMP-Message-Id") != "msg_1" ||
			got[0].header.Get("Content-Type") != "application/json; charset=utf-8" ||
			got[0].header.Get("X-AMP-Delivery-Attempt") != "1" {
			t.Errorf("the receiver got %+v", got)
		}
		if got := r.got("/raw"); len(got) != 1 || got[0].body != string(raw.Payload) {
			t.Errorf("bytes that are no text arrived as %+v", got)
		}
		for _, c := range r.got("") {
			stamp := c.header.Get("webhook-timestamp")
			if at, err := strconv.ParseInt(stamp, 10, 64); err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
				t.Errorf("the timestamp is %q", stamp)
			}
			delivertest.Verify(t, n.SecretFor("default", "billing", 1).Reveal(), c.body, c.header.Get)
		}
		n.core.WantClean()
	})
}

func TestWhatIsNotCommittedIsNotSent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, r := start(t, address), newReceiver(t, ok)
		err := n.ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			if _, err := deliver.Queue(tx, hook(r.URL+"/never")); err != nil {
				return err
			}
			return fault.New(fault.Conflict, "No.")
		})
		if !fault.Is(err, fault.Conflict) {
			t.Fatal(err)
		}
		n.becomes(t, n.queue(t, hook(r.URL+"/after"))[0], deliver.Delivered)
		if got := r.got("/never"); len(got) != 0 {
			t.Errorf("the receiver got %+v", got)
		}
	})
}

func TestAReceiverThatIsDownForTwoDaysGetsItWithTheSameID(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		up := atomic.Bool{}
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ call) {
			if !up.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		n := start(t, address, func(o *deliver.Options) { o.Pauses = nil })
		ids := n.queue(t, hook(r.URL+"/down"), hook(r.URL+"/down"))
		begun := n.Now()
		tries := int64(0)
		for n.Now().Sub(begun) < 48*time.Hour {
			tries++
			d := n.tried(t, ids[0], tries)
			if d.Status != deliver.Pending || d.NextAt == nil {
				t.Fatalf("after %v it is %+v", n.Now().Sub(begun), d)
			}
			n.Move(d.NextAt.Sub(n.Now()) + time.Millisecond)
		}
		if tries < 15 || tries > 30 {
			t.Errorf("it was tried %d times in two days", tries)
		}
		if b := n.get(t, ids[1]); b.Attempts != 0 || b.Behind != ids[0] {
			t.Errorf("the one behind it is %+v", b)
		}
		n.tried(t, ids[0], tries+1) // that is due: one that fails after the clock has moved on waits for hours more
		up.Store(true)
		n.Move(4 * time.Hour)
		d := n.becomes(t, ids[0], deliver.Delivered)
		n.becomes(t, ids[1], deliver.Delivered)
		calls := r.got("")
		if int64(len(calls)) != d.Attempts+1 {
			t.Errorf("%d calls for %d attempts", len(calls), d.Attempts+1)
		}
		for _, c := range calls[:d.Attempts] {
			if c.id != ids[0] {
				t.Errorf("a try has the id %s, and not %s", c.id, ids[0])
			}
		}
		n.core.WantClean()
	})
}

func TestWhatCannotBeDeliveredIsGivenUpVisiblyAndCanBeSentAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		code := atomic.Int32{}
		code.Store(500)
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ call) { w.WriteHeader(int(code.Load())) })
		n := start(t, address)
		d := hook(r.URL + "/dead")
		d.GiveUpAfter = time.Hour
		id := n.queue(t, d)[0]
		testbed.Until(t, "two tries", func() bool { return n.get(t, id).Attempts >= 2 })
		n.Move(2 * time.Hour)
		dead := n.becomes(t, id, deliver.Dead)
		if last := dead.Events[len(dead.Events)-1]; last.Kind != "given_up" || last.Status != 500 || dead.Attempts < 2 ||
			dead.EndedAt == nil || dead.LastError == "" {
			t.Errorf("the dead letter is %+v", dead)
		}
		list, err := n.List(t.Context(), deliver.Filter{Status: deliver.Dead}, "", 10)
		if err != nil || len(list) != 1 || list[0].ID != id {
			t.Errorf("dead letters: %+v %v", list, err)
		}
		code.Store(200)
		by := roster.Identity{Kind: roster.HolderOperator, ID: "operator_1", Name: "ines", Role: roster.Operator}
		if s, err := n.Resend(t.Context(), by, id); err != nil || s.Status != deliver.Pending {
			t.Fatalf("%+v %v", s, err)
		}
		again := n.becomes(t, id, deliver.Delivered)
		kinds := []string{}
		for _, e := range again.Events[len(dead.Events):] {
			kinds = append(kinds, e.Kind+" by "+e.Actor)
		}
		if diff := cmp.Diff([]string{"resent by operator:ines", "succeeded by system"}, kinds); diff != "" {
			t.Error(diff)
		}
		for _, c := range r.got("") {
			if c.id != id {
				t.Errorf("a try has the id %s, and not %s", c.id, id)
			}
		}
		if _, err := n.Resend(t.Context(), by, id); !fault.Is(err, fault.Conflict) {
			t.Errorf("sending again what has arrived: %v", err)
		}
		if _, err := n.Resend(t.Context(), by, "delivery_none"); !fault.Is(err, fault.NotFound) {
			t.Errorf("sending what is not there: %v", err)
		}
		n.core.WantClean()
	})
}

func TestOneThatWaitsForItsNextTryCanBeTriedAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, status(500))
		n := start(t, address, func(o *deliver.Options) { o.Pauses = nil })
		id := n.queue(t, hook(r.URL+"/waits"))[0]
		n.tried(t, id, 1)
		if _, err := n.Resend(t.Context(), roster.Identity{}, id); err != nil {
			t.Fatal(err)
		}
		if d := n.tried(t, id, 2); d.Status != deliver.Pending || d.NextAt == nil {
			t.Errorf("it is %+v", d)
		}
		n.core.WantClean()
	})
}

func TestAnAddressThatIsGoneIsGivenUpAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, status(http.StatusGone))
		n := start(t, address)
		d := n.becomes(t, n.queue(t, hook(r.URL))[0], deliver.Dead)
		if d.Attempts != 1 || d.Events[0].Class != "gone" {
			t.Errorf("it is %+v", d)
		}
	})
}
