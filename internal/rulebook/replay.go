package rulebook

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/store"
)

// Report says how past decisions would have come out under another policy. Decisions counts
// those that could be tried; Erased and Broken could not.
type Report struct {
	Since     time.Time `json:"since"`
	Decisions int64     `json:"decisions"`
	Changed   int64     `json:"changed"`    // that would have come out otherwise
	OtherRule int64     `json:"other_rule"` // the same, by another rule
	Erased    int64     `json:"erased"`     // that cannot be tried, since their bodies are gone
	Broken    int64     `json:"broken"`     // that cannot be tried, since they cannot be read; the log says why
	// Changes are those that would have come out otherwise, the most frequent first.
	Changes []Change `json:"changes"`
}

// Change is a group of decisions that would have come out otherwise in the same way.
type Change struct {
	Point    policy.Point `json:"point"`
	Was      Outcome      `json:"was"`
	Would    Outcome      `json:"would"`
	Count    int64        `json:"count"`
	Examples []Example    `json:"examples"` // the earliest
}

// Outcome is an action and the rule that wanted it.
type Outcome struct {
	Then  policy.Action `json:"then"`
	Rule  string        `json:"rule"`
	Layer string        `json:"layer,omitzero"` // that the rule is of, absent for the server's
}

// Example is one decision.
type Example struct {
	Seq       int64     `json:"seq"`
	At        time.Time `json:"at"`
	Workspace string    `json:"workspace"`
	Agent     string    `json:"agent"`
	What      string    `json:"what"`   // what the agent was about to do, in short
	Reason    string    `json:"reason"` // of the other policy
}

const (
	maxExamples = 200 // of a Change; the count goes on
	maxWhat     = 200 // characters of Example.What
)

// replay is a replay under way. Pages are tried one after another, so only the decisions of
// one page are worked on at a time.
type replay struct {
	book   *Book
	layer  Layer
	policy *policy.Policy // to be tried as that layer
	// others are those of the other layers that were in force since; nil for one that cannot be read.
	others map[layerVersion]*policy.Policy
	recent *tally
	first  int64 // the entry after which decisions are tried; those before are only counted
	report *report
}

// Replay decides again what was decided since a moment, with another policy as the server's layer. Nothing
// is recorded. progress is called with the number of entries read and to be read.
//
// A counter that a decision has on record is taken from there; others are counted again
// from the entries. So the policy that was in force comes out as it did then.
func (b *Book) Replay(ctx context.Context, p *policy.Policy, since time.Time, progress func(done, of int64)) (Report,
	error,
) {
	return b.ReplayLayer(ctx, Layer{}, p, since, progress)
}

// ReplayLayer is Replay for any layer, over the decisions that the layer is about. The other layers are as they were
// when each decision was made.
func (b *Book) ReplayLayer(ctx context.Context, l Layer, p *policy.Policy, since time.Time,
	progress func(done, of int64),
) (Report, error) {
	r := &replay{book: b, layer: l, policy: p, report: newReport(since)}
	head, err := b.ledger.Head(ctx)
	if err != nil {
		return Report{}, err
	}
	if err := r.loadOthers(ctx, since); err != nil {
		return Report{}, err
	}
	r.recent = newTally(r.counters())
	if r.first, err = b.ledger.SeqBefore(ctx, since); err != nil {
		return Report{}, err
	}
	begin := r.first
	if len(r.recent.counters) > 0 {
		if begin, err = b.ledger.SeqBefore(ctx, r.recent.reach(since)); err != nil {
			return Report{}, err
		}
	}
	for p := range b.pages(ctx, begin, head) {
		if p.err == nil {
			p.err = r.try(ctx, p.entries)
		}
		if p.err != nil {
			return Report{}, p.err
		}
		progress(p.upTo-begin, head-begin)
	}
	return r.report.finish(), nil
}

// loadOthers reads the versions of the other layers that were in force at some time since a moment.
func (r *replay) loadOthers(ctx context.Context, since time.Time) error {
	layers, err := store.All(r.book.db.Reading(ctx), store.Text, "SELECT DISTINCT layer FROM policy_layer ORDER BY layer")
	if err != nil {
		return err
	}
	r.others = map[layerVersion]*policy.Policy{}
	for _, key := range append(layers, "") {
		var l Layer
		l.Workspace, l.User, _ = strings.Cut(key, ":")
		if l == r.layer || r.layer.Workspace != "" && l.Workspace != "" && l.Workspace != r.layer.Workspace {
			continue
		}
		all, err := r.book.Versions(ctx, l, 0, math.MaxInt32)
		if err != nil {
			return err
		}
		// The newest first, up to those of before; one more, since a node may go on with it for a moment.
		for before := 0; len(all) > 0 && before < 2; all = all[1:] {
			p, err := r.book.open(ctx, l, all[0])
			if err != nil {
				return err
			}
			if r.others[layerVersion{l, all[0].Number}] = p; all[0].AppliedAt.Before(since) {
				before++
			}
		}
	}
	return nil
}

// counters are those that any of the policies reads.
func (r *replay) counters() (all []counter) {
	seen := map[counter]bool{}
	add := func(l Layer, p *policy.Policy) { all = appendCounters(all, seen, l, p) }
	add(r.layer, r.policy)
	for v, p := range r.others {
		add(v.Layer, p)
	}
	return all
}

// about reports whether a decision is one that the layer is about.
func (r *replay) about(d *Record) bool {
	return (r.layer.Workspace == "" || r.layer.Workspace == d.Agent.Workspace) &&
		(r.layer.User == "" || r.layer.User == d.User.ID)
}

// inWorkspace is about for what cannot be read: the entries of other workspaces are not even counted.
func (r *replay) inWorkspace(e *ledger.Entry) bool {
	return r.layer.Workspace == "" || r.layer.Workspace == e.Workspace
}

// rulesFor is what decides about a past decision: the layers that were in force then, with the policy that is tried in
// the place of one.
func (r *replay) rulesFor(d *Record) (rules inForceFor) {
	tried := d.layers()
	switch i := slices.IndexFunc(tried, func(v layerVersion) bool { return v.Layer == r.layer }); {
	case i >= 0:
		tried[i].number = 0 // stands for the policy that is tried
	case r.layer.User != "":
		tried = slices.Insert(tried, 1, layerVersion{r.layer, 0})
	default:
		tried = append(tried, layerVersion{r.layer, 0})
	}
	for _, v := range tried {
		p := r.policy
		if v.number > 0 || v.Layer != r.layer {
			p = r.others[v]
		}
		switch {
		case v.Layer == (Layer{}):
			rules.Server = p
		case p == nil:
			rules.broken = v.Layer
		default:
			rules.Narrower = append(rules.Narrower, narrower(v.Layer, p))
		}
	}
	return rules
}

// try decides again what a page holds. Counting depends on the order of entries and is done
// first, by one goroutine; the decisions then share all processors.
func (r *replay) try(ctx context.Context, page []decidedEntry) error {
	if len(r.recent.counters) > 0 {
		r.count(page)
	}
	page = slices.DeleteFunc(page, func(t decidedEntry) bool {
		d := t.reading.Decision
		return t.entry.Seq <= r.first || d == nil && !t.erased && !t.broken || d != nil && !r.about(d) ||
			d == nil && !r.inWorkspace(t.entry)
	})
	var deciding sync.WaitGroup
	for part := range slices.Chunk(page, len(page)/runtime.GOMAXPROCS(0)+1) {
		deciding.Go(func() { r.decide(ctx, part) })
	}
	deciding.Wait()
	r.report.add(page)
	return ctx.Err() // a verdict that was cut short would look like a block
}

// count notes for each decision what the counters were at its time, and then counts the
// entry itself, in that order: a decision does not count itself.
func (r *replay) count(page []decidedEntry) {
	for i := range page {
		t := &page[i]
		if d := t.reading.Decision; d != nil && t.entry.Seq > r.first && r.about(d) {
			t.counts, t.reserved = r.countsFor(d)
		}
		r.recent.add(t.entry.Seq, t.workspace(), t.reading.facts(), t.entry.At)
	}
}

// countsFor is what the counters were for a decision, and what was reserved of them.
func (r *replay) countsFor(d *Record) (counts, reserved policy.Counts) {
	counts, reserved = policy.Counts{}, policy.Counts{}
	again := countReader{at: r.recent, of: d.belongs(), now: time.UnixMicro(d.Now)}
	for i := range r.recent.counters {
		c := &r.recent.counters[i]
		if c.workspace != "" && c.workspace != d.Agent.Workspace {
			continue
		}
		n, onRecord := d.Recent.Find(c.What, c.Window)
		held := d.Reserved.Count(c.What, c.Window)
		if !onRecord {
			n, held = again.count(c.Count)
		}
		counts.Set(c.What, c.Window, n)
		if held > 0 {
			reserved.Set(c.What, c.Window, held)
		}
	}
	return counts, reserved
}

// decide fills in the verdicts of a part of a page. Parts do not overlap.
func (r *replay) decide(ctx context.Context, part []decidedEntry) {
	for i := range part {
		t := &part[i]
		if d := t.reading.Decision; d != nil {
			in := d.input()
			in.Counts, in.Reserved = t.counts, t.reserved
			t.verdict = decide(ctx, r.rulesFor(d), in)
		}
	}
}

// report collects what came out.
type report struct {
	Report
	groups map[group]*Change
}

// group is the key of a Change: decisions that differ in the same way are reported together.
type group struct {
	point      policy.Point
	was, would Outcome
}

// newReport begins a report without decisions.
func newReport(since time.Time) *report {
	return &report{Report: Report{Since: since.UTC(), Changes: []Change{}}, groups: map[group]*Change{}}
}

// add compares the verdicts of a page with what was decided. It is called by one goroutine, page
// after page, so that the examples are the earliest.
func (r *report) add(page []decidedEntry) {
	for _, t := range page {
		switch {
		case t.erased:
			r.Erased++
			continue
		case t.broken:
			r.Broken++
			continue
		}
		d := t.reading.Decision
		was, would := Outcome{d.Then, d.Rule, d.Layer}, Outcome{t.verdict.Action, t.verdict.Rule, t.verdict.Layer}
		r.Decisions++
		switch {
		case was == would:
			continue
		case was.Then == would.Then:
			r.OtherRule++
			continue
		}
		r.Changed++
		key := group{d.Event.Point, was, would}
		c := r.groups[key]
		if c == nil {
			c = &Change{Point: key.point, Was: was, Would: would}
			r.groups[key] = c
		}
		c.Count++
		if len(c.Examples) < maxExamples {
			c.Examples = append(c.Examples,
				Example{t.entry.Seq, t.entry.At, t.entry.Workspace, d.Agent.Name, inShort(d.Event), t.verdict.Reason})
		}
	}
}

// finish sorts the groups, the most frequent first, and the earliest first among equals.
func (r *report) finish() Report {
	for _, c := range r.groups {
		r.Changes = append(r.Changes, *c)
	}
	slices.SortFunc(r.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Examples[0].Seq, b.Examples[0].Seq))
	})
	return r.Report
}

// inShort is the one line of an event that is most useful to a person.
func inShort(e *policy.Event) string {
	e.Read()
	text := []rune(cmp.Or(e.ProposedAction, e.Command, e.URL, e.Path, e.Subject, e.Text, e.Summary, e.Tool, e.Kind))
	if len(text) > maxWhat {
		text = append(text[:maxWhat], '…')
	}
	if e.Tool != "" && string(text) != e.Tool {
		return e.Tool + ": " + string(text)
	}
	return string(text)
}
