package rulebook

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/policy"
	"signalbox/internal/policy/window"
)

// told is one thing that a tally is told, as the model keeps it.
type told struct {
	at      time.Time
	of      Belongs
	usd     float64 // dollars, in whole cents
	tokens  float64
	hold    *Reservation
	release string
}

func (s *told) facts() []Fact {
	return []Fact{
		{Belongs: s.of, What: "cost", N: s.usd},
		{Belongs: s.of, What: "tokens", N: s.tokens},
		{Belongs: s.of, Reserve: s.hold, Release: s.release},
	}
}

// modelled is what a simple model says of a counter: go through everything from the start.
func modelled(all []told, c policy.Count, of Belongs, now time.Time) (sum, reserved float64) {
	what, scope := splitCounter(c.What)
	open := map[string]told{}
	for _, s := range all {
		mine := ownerOf(scope, &s.of) == ownerOf(scope, &of) && ownerOf(scope, &of) != ""
		if mine && s.at.UTC().Truncate(24*time.Hour).Equal(now.UTC().Truncate(24*time.Hour)) {
			if what == "cost" {
				sum += math.Round(s.usd * 1e9)
			} else {
				sum += s.tokens
			}
		}
		if s.hold != nil {
			open[s.hold.ID] = s
		}
		if h, ok := open[s.release]; ok && h.of.Agent == s.of.Agent {
			delete(open, s.release)
		}
	}
	for _, s := range open {
		if ownerOf(scope, &s.of) != ownerOf(scope, &of) || ownerOf(scope, &of) == "" || s.hold.Until <= now.UnixMicro() {
			continue
		}
		if what == "cost" {
			reserved += float64(s.hold.CostNano)
		} else {
			reserved += float64(s.hold.Tokens)
		}
	}
	return inUnit(c, sum+reserved), inUnit(c, reserved)
}

// The law of reserves: whatever is spent, reserved, released and left to expire, in whatever order, and wherever the
// part begins that is not committed, counters are what a simple model says.
func TestCountersAreWhatAModelSaysOfReservesAndSpending(t *testing.T) {
	var counters []counter
	for _, scope := range []string{"", ".run", ".deck", ".workspace", ".user"} {
		for _, what := range []string{"cost", "tokens"} {
			counters = append(counters, counter{policy.Count{What: what + scope, Window: window.Day}, ""})
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
		belongs := func() Belongs {
			return Belongs{
				Agent: pick("agent", "x", "y"), Run: pick("run", "", "r", "s"), Project: pick("deck", "", "default", "web"),
				Workspace: pick("workspace", "v", "w"), User: pick("user", "", "dana"), Handoffs: []string{pick("handoff", "h", "i")},
			}
		}
		now := time.Date(2026, 5, 1, 23, 30, 0, 0, time.UTC)
		var all []told
		var holds []string
		committed, aside := newTally(counters), (*tally)(nil)
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "pause")) * time.Second)
			s := told{at: now, of: belongs()}
			switch pick("step", "spend", "reserve", "reserve", "release", "release") {
			case "spend":
				s.usd, s.tokens = float64(rapid.IntRange(0, 500).Draw(t, "cents"))/100, float64(rapid.IntRange(0, 9).Draw(t, "n"))
			case "reserve":
				s.hold = &Reservation{
					ID: fmt.Sprint("reserve-", i), CostNano: rapid.Int64Range(0, 1e10).Draw(t, "nanos"),
					Tokens: rapid.Int64Range(0, 99).Draw(t, "tokens"), Until: now.Add(reserveFor).UnixMicro(),
				}
				holds = append(holds, s.hold.ID)
			case "release":
				s.release = pick("which", append(holds, "unknown")...)
			}
			all = append(all, s)
			// From some moment on nothing is committed any more.
			if aside == nil && rapid.IntRange(0, 20).Draw(t, "split") == 0 {
				aside = committed.aside()
			}
			to := committed
			if aside != nil {
				to = aside
			}
			to.add(int64(i+1), s.of.Workspace, s.facts(), now)
			of := belongs()
			reader := countReader{at: committed, pending: aside, of: of, now: now}
			for _, c := range counters {
				got, reserved := reader.count(c.Count)
				want, wantReserved := modelled(all, c.Count, of, now)
				if got != want || reserved != wantReserved {
					t.Fatalf("step %d (%+v): %s of %+v is %v, %v of it reserved; want %v and %v", i, s, c.What, of, got, reserved,
						want, wantReserved)
				}
			}
			hop := reader.spend([]policy.Hop{{ID: "h", Budget: policy.Budget{Tokens: 1}}})[0]
			if used, held := handedOn(all, "h", now); hop.Spent.Tokens != used+held || hop.Reserved.Tokens != held {
				t.Fatalf("step %d: the handoff has %+v, want %d and %d reserved", i, hop, used, held)
			}
		}
		if aside == nil {
			now = now.Add(48 * time.Hour)
			committed.count(&Belongs{Agent: "x"}, counters[0].Count, now, nil)
			committed.forget(now)
			if len(committed.all)+len(committed.held)+len(committed.reserved)+len(committed.owners)+len(committed.heldBy) != 0 {
				t.Fatalf("%d counters, %d reservations, %d owners are kept", len(committed.all), len(committed.held),
					len(committed.owners))
			}
		}
	})
}

// handedOn is what a simple model says of the tokens of a handoff.
func handedOn(all []told, handoffID string, now time.Time) (used, held int64) {
	open := map[string]told{}
	for _, s := range all {
		if s.of.Handoffs[0] == handoffID {
			used += int64(s.tokens)
		}
		if s.hold != nil {
			open[s.hold.ID] = s
		}
		if h, ok := open[s.release]; ok && h.of.Agent == s.of.Agent {
			delete(open, s.release)
		}
	}
	for _, s := range open {
		if s.of.Handoffs[0] == handoffID && s.hold.Until > now.UnixMicro() {
			held += s.hold.Tokens
		}
	}
	return used, held
}

// An agent that makes up runs without end uses no more memory than 10,000 take, and its budget for a run is used up.
func TestInventedRunsCountTogether(t *testing.T) {
	c := counter{policy.Count{What: "cost.run", Window: window.Day}, ""}
	tl, now := newTally([]counter{c}), time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	count := func(agent, run string) float64 {
		n, _ := tl.count(&Belongs{Agent: agent, Workspace: "w", Run: run}, c.Count, now, nil)
		return n / 1e9
	}
	tl.add(1, "w", []Fact{{Belongs: Belongs{Agent: "honest", Run: "mine"}, What: "cost", N: 3}}, now)
	for i := range 2 * maxOwners {
		of := Belongs{Agent: "liar", Run: fmt.Sprint("run-", i)}
		tl.add(int64(i+2), "w", []Fact{{Belongs: of, What: "cost", N: 1}}, now)
	}
	if len(tl.all) > maxOwners+2 {
		t.Errorf("%d runs are kept", len(tl.all))
	}
	if got := count("liar", "one more"); got < maxOwners-1 {
		t.Errorf("another invented run begins with $%v", got)
	}
	if count("liar", "run-1") != 1 || count("honest", "mine") != 3 || count("honest", "new") != 0 {
		t.Errorf("others: $%v, $%v and $%v", count("liar", "run-1"), count("honest", "mine"), count("honest", "new"))
	}
	// The same in a transaction.
	beside := tl.aside()
	for i := range 5 {
		of := Belongs{Agent: "liar", Workspace: "w", Run: fmt.Sprint("later-", i)}
		beside.add(int64(3*maxOwners+i), "w", []Fact{{Belongs: of, What: "cost", N: 1}}, now)
		reader := countReader{at: tl, pending: beside, of: of, now: now}
		if n, _ := reader.count(c.Count); n != float64(maxOwners+i+1) {
			t.Errorf("not committed yet, the run %s has $%v", of.Run, n)
		}
	}
	tl.forget(now.Add(24 * time.Hour))
	if len(tl.all)+len(tl.owners) != 0 {
		t.Errorf("%d runs and %d agents are kept on the next day", len(tl.all), len(tl.owners))
	}
}

// A counter for which something is reserved is kept over midnight, so that its run stays one of those counted apart.
func TestWhatIsReservedOverMidnightIsNotForgotten(t *testing.T) {
	c := counter{policy.Count{What: "cost.run", Window: window.Day}, ""}
	tl, now := newTally([]counter{c}), time.Date(2026, 5, 1, 23, 59, 0, 0, time.UTC)
	of := Belongs{Agent: "x", Run: "late", Workspace: "w"}
	hold := &Reservation{ID: "reserve-1", CostNano: 5e9, Until: now.Add(reserveFor).UnixMicro()}
	tl.add(1, "w", []Fact{{Belongs: of, Reserve: hold}}, now)
	now = now.Add(2 * time.Minute)
	tl.forget(now)
	for i := range maxOwners {
		invented := Belongs{Agent: "x", Run: fmt.Sprint("run-", i), Workspace: "w"}
		tl.add(int64(i+2), "w", []Fact{{Belongs: invented, What: "cost", N: 1}}, now)
	}
	if _, reserved := tl.count(&of, c.Count, now, nil); reserved != 5e9 {
		t.Errorf("%v is reserved after midnight", reserved)
	}
}

// A window counts everything in it, and nothing that is more than a sixtieth older.
func TestAWindowCountsNoLessAndHardlyMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(int64(time.Second), int64(31*24*time.Hour)).Draw(t, "window"))
		c := policy.Count{What: "actions", Window: window.Last(length)}
		tl := newTally([]counter{
			{c, ""},
			{policy.Count{What: "actions", Window: window.Last(length / 2)}, ""},
			{policy.Count{What: "cost", Window: window.Last(length)}, ""},
		})
		at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		type event struct {
			at    time.Time
			agent string
			n     float64
		}
		var all []event
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			// Short and long pauses, some longer than the window.
			at = at.Add(time.Duration(rapid.Float64Range(0, 1).Draw(t,
				"pause") * float64(length) / rapid.SampledFrom([]float64{100, 10, 0.4}).Draw(t, "scale")))
			e := event{at, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "agent"), float64(rapid.IntRange(1, 9).Draw(t, "n"))}
			all = append(all, e)
			tl.add(int64(len(all)), "", []Fact{{Belongs: Belongs{Agent: e.agent}, What: "actions", N: e.n}}, at)
			now := at.Add(time.Duration(rapid.Float64Range(0, 1.2).Draw(t, "later") * float64(length)))
			least, most := 0.0, 0.0
			for _, e := range all {
				if e.agent != "x" {
					continue
				}
				if age := now.Sub(e.at); age < length {
					least += e.n
					most += e.n
				} else if age <= length+length/parts+1 {
					most += e.n
				}
			}
			if got, _ := tl.count(&Belongs{Agent: "x"}, c, now, nil); got < least || got > most {
				t.Fatalf("window %s: counted %v, want %v to %v", length, got, least, most)
			}
		}
		tl.forget(at.Add(2 * length))
		if len(tl.all) != 0 {
			t.Fatalf("%d idle agents are kept", len(tl.all))
		}
	})
}
