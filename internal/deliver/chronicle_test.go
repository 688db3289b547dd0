package deliver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// chronicle is what a ledger says happened, read by itself and not through the tables.
type chronicle struct {
	t          *testing.T
	gates      map[string]*story
	deliveries map[string]*parcel
	lines      map[string][]string // the deliveries to a target, in the order they were queued
	notes      map[string]int      // how many deliveries should tell of a note
	fired      map[string]int
}

// story is all that happened to a gate.
type story struct {
	rules     gate.Rules
	votes     []gate.Vote
	outcomes  []outcome
	escalated int
	expired   int // timers of the expiry that fired
	reminded  int // timers of the ladder that fired
}

type outcome struct {
	Status gate.Status
	By     string
	Cause  gate.Cause
	Note   string
	at     time.Time
}

// parcel is all that happened to a delivery.
type parcel struct {
	note string
	ends []string // the kinds of the entries that ended it
}

func readChronicle(t *testing.T, l *ledger.Ledger) *chronicle {
	t.Helper()
	c := &chronicle{
		t: t, gates: map[string]*story{}, deliveries: map[string]*parcel{},
		lines: map[string][]string{}, notes: map[string]int{}, fired: map[string]int{},
	}
	for after := int64(0); ; {
		entries, err := l.Entries(t.Context(), ledger.Query{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return c
		}
		for _, e := range entries {
			if e.Seq != after+1 {
				t.Fatalf("entry %d stands where %d should", e.Seq, after+1)
			}
			c.add(e)
			after = e.Seq
		}
	}
}

func (c *chronicle) read(e ledger.Entry, into any) {
	c.t.Helper()
	if err := json.Unmarshal(e.Body, into); err != nil {
		c.t.Fatalf("entry %d (%s): %v", e.Seq, e.Kind, err)
	}
}

func (c *chronicle) add(e ledger.Entry) {
	c.t.Helper()
	g := c.gates[e.Subject]
	if g == nil {
		g = &story{}
	}
	if len(g.outcomes) > 0 && (e.Kind == "gate.voted" || e.Kind == "gate.escalated") {
		c.t.Errorf("%s after the gate was resolved", e.Kind)
	}
	switch e.Kind {
	case "gate.opened":
		var o gate.Opening
		c.read(e, &o)
		g.rules, c.gates[e.Subject] = o.Rules, g
	case "gate.voted":
		var v gate.Vote
		c.read(e, &v)
		g.votes = append(g.votes, v)
	case "gate.escalated":
		g.escalated++
	case "gate.resolved":
		o := outcome{at: e.At}
		c.read(e, &o)
		g.outcomes = append(g.outcomes, o)
	case "timer.fired":
		c.addFired(g, e)
	case "note.written":
		var deliveries int
		c.read(e, &deliveries)
		c.notes[e.Subject] = deliveries
	case "delivery.queued":
		var q struct{ Target string }
		c.read(e, &q)
		c.lines[q.Target] = append(c.lines[q.Target], e.Subject)
		c.deliveries[e.Subject] = &parcel{note: e.Trace}
	case "delivery.succeeded", "delivery.given_up":
		d := c.deliveries[e.Subject]
		d.ends = append(d.ends, e.Kind)
	}
}

func (c *chronicle) addFired(g *story, e ledger.Entry) {
	c.t.Helper()
	var f struct {
		Kind string
		Due  int64
	}
	c.read(e, &f)
	timer := fmt.Sprintf("%s of %s at %d", f.Kind, e.Subject, f.Due)
	c.fired[timer]++
	if c.fired[timer] > 1 {
		c.t.Errorf("the timer %s fired %d times", timer, c.fired[timer])
	}
	switch f.Kind {
	case "gate.expiry":
		g.expired++
	case "gate.ladder":
		g.reminded++
	}
}

// checkGates compares the ledger with itself, with what was acknowledged, and with
// the rows.
func (c *chronicle) checkGates(w *witness, gates *gate.Gates, db *store.DB) {
	c.t.Helper()
	causes := map[gate.Cause]int{}
	for gateID, g := range c.gates {
		if len(g.outcomes) != 1 {
			c.t.Errorf("gate %s has %d outcomes: %+v", gateID, len(g.outcomes), g.outcomes)
			continue
		}
		o := g.outcomes[0]
		causes[o.Cause]++
		c.checkStory(gateID, g, o)
		row, err := gates.Get(c.t.Context(), gateID)
		if err != nil {
			c.t.Fatal(err)
		}
		if row.Status != o.Status || row.ResolvedBy != o.By || row.Cause != o.Cause || row.Note != o.Note ||
			!row.ResolvedAt.Equal(o.at) || len(row.Votes) != len(g.votes) {
			c.t.Errorf("the ledger says %+v, and the row of the gate %+v", o, row)
		}
	}
	if causes[gate.ByVote] == 0 || causes[gate.ByExpiry] == 0 {
		c.t.Errorf("the gates were resolved by %v; that shows too little", causes)
	}
	for _, said := range w.words {
		c.checkWord(said)
	}
	var left int
	if err := db.Read.QueryRowContext(c.t.Context(), "SELECT count(*) FROM timer").Scan(&left); err != nil || left != 0 {
		c.t.Errorf("%d timers are left of gates that are all resolved (%v)", left, err)
	}
}

// checkStory checks that the outcome follows from what came before it.
func (c *chronicle) checkStory(gateID string, g *story, o outcome) {
	c.t.Helper()
	want, expiries := g.rules.Tally(g.votes), 0
	if o.Cause == gate.ByExpiry {
		if want != gate.Pending {
			c.t.Errorf("gate %s expired after votes had made it %s", gateID, want)
		}
		want, expiries = g.rules.OnExpiry, 1
	}
	if o.Status != want {
		c.t.Errorf("gate %s is %s, and should be %s: %+v", gateID, o.Status, want, g)
	}
	if g.expired != expiries || g.reminded != g.escalated || g.escalated > len(g.rules.Ladder) {
		c.t.Errorf("gate %s was resolved by %s; its expiry fired %d times, its ladder %d times for %d steps taken of %d",
			gateID, o.Cause, g.expired, g.reminded, g.escalated, len(g.rules.Ladder))
	}
	voters := map[string]bool{}
	for _, v := range g.votes {
		if voters[v.Operator] {
			c.t.Errorf("%s voted twice on gate %s", v.Operator, gateID)
		}
		voters[v.Operator] = true
	}
}

// checkWord checks that what was acknowledged is so.
func (c *chronicle) checkWord(said word) {
	c.t.Helper()
	g := c.gates[said.ID]
	switch said.What {
	case "opened", "voted", "told":
		if g == nil || len(g.outcomes) == 0 {
			c.t.Errorf("the gate is lost: %+v", said)
			return
		}
	}
	switch said.What {
	case "voted":
		if !slices.ContainsFunc(g.votes, func(v gate.Vote) bool { return v.Operator == said.By && v.Note == said.Name }) {
			c.t.Errorf("the vote is lost: %+v", said)
		}
	case "told":
		if o := g.outcomes[0]; said.By != o.By || said.Status != string(o.Status) {
			c.t.Errorf("somebody was told %+v and the outcome is %+v", said, o)
		}
	case "queued":
		if d := c.deliveries[said.ID]; d == nil || d.note != said.Name {
			c.t.Errorf("the delivery is lost: %+v", said)
		}
	}
}

// checkDeliveries compares the ledger with what arrived, and with the rows.
func (c *chronicle) checkDeliveries(r *receiver, post *postbox, db *store.DB) {
	c.t.Helper()
	c.checkCalls(r)
	told, ended := map[string]int{}, map[string]int{} // by note, by status
	for id, d := range c.deliveries {
		told[d.note]++
		answers := post.answers[id]
		want, kind := deliver.Delivered, "delivery.succeeded"
		if slices.Contains(answers, http.StatusGone) {
			want, kind = deliver.Dead, "delivery.given_up"
		} else if !slices.Contains(answers, http.StatusNoContent) {
			c.t.Errorf("delivery %s did not arrive: %v", id, answers)
		}
		var status string
		if err := db.Read.QueryRowContext(c.t.Context(), "SELECT status FROM delivery WHERE id = $1",
			id).Scan(&status); err != nil || status != want {
			c.t.Errorf("the receiver answered %v and the delivery is %s (%v)", answers, status, err)
		}
		if !slices.Equal(d.ends, []string{kind}) {
			c.t.Errorf("the receiver answered %v and the ledger says %v", answers, d.ends)
		}
		ended[status]++
	}
	for note, n := range c.notes {
		if told[note] != n {
			c.t.Errorf("%d of %d deliveries were queued in one transaction", told[note], n)
		}
	}
	if len(told) != len(c.notes) {
		c.t.Errorf("%d notes were written, and deliveries tell of %d", len(c.notes), len(told))
	}
	if ended[deliver.Delivered] == 0 || ended[deliver.Dead] == 0 {
		c.t.Errorf("the deliveries ended as %v; that shows too little", ended)
	}
}

// checkCalls checks what the receivers got: nothing that was not queued, each
// delivery under its own id, and per target none after one that was queued later.
func (c *chronicle) checkCalls(r *receiver) {
	c.t.Helper()
	for _, path := range paths {
		line := c.lines[r.URL+path]
		place := map[string]int{}
		for i, id := range line {
			place[id] = i
		}
		reached := -1
		for _, got := range r.got(path) {
			i, queued := place[got.id]
			if !queued || c.deliveries[got.id].note != got.body {
				c.t.Errorf("%s: %s came with %q, and was not queued so", path, got.id, got.body)
				continue
			}
			if i < reached || i > reached+1 {
				c.t.Errorf("%s: number %d came after number %d", path, i, reached)
			}
			reached = max(reached, i)
		}
		if reached+1 != len(line) {
			c.t.Errorf("%s: %d of %d deliveries came", path, reached+1, len(line))
		}
	}
}
