package run_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/price"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// price sets what a model costs for a million tokens of input.
func (n *node) price(model string, input float64) {
	n.T.Helper()
	_, err := n.prices.Change(n.T.Context(), roster.Identity{},
		price.Change{Models: []price.Price{{Model: model, Input: input, Output: input}}})
	if err != nil {
		n.T.Fatal(err)
	}
}

// recorded is what a real CLI has written, as testdata/usage has it.
func recorded(t testing.TB, name string) [][]byte {
	t.Helper()
	text := testbed.Read(t, filepath.Join("testdata", "usage", name+".jsonl"))
	return bytes.Split(bytes.TrimSpace(text), []byte("\n"))
}

// play reports a run of an engine that writes the lines, and ends. Every event is reported by itself.
func (n *node) play(name, resume string, lines [][]byte) run.Run {
	n.T.Helper()
	e, err := engine.Find(name)
	if err != nil {
		n.T.Fatal(err)
	}
	r := n.open(run.Request{Engine: name, Resume: resume})
	job, at := engine.Job{Resume: engine.Resume{Engine: name, Value: resume}}, int64(0)
	if name == "codex" { // which does not name its own
		job.Override = "gpt-5.4"
	}
	var stream *engine.Stream
	stream = e.NewStream(job, func(event engine.Event) {
		text, err := wire.EncodeData(event)
		if err != nil {
			n.T.Fatal(err)
		}
		at++
		n.must(n.runs.Report(n.T.Context(), operator, r.ID,
			run.Report{From: at, Events: []run.Entry{{Event: text, Usage: stream.Usage()}}}))
	})
	for _, line := range lines {
		stream.Line(line)
	}
	stream.Finish(engine.Exit{Reason: "killed"})
	r, err = n.runs.Get(n.T.Context(), r.ID)
	if err != nil {
		n.T.Fatal(err)
	}
	return r
}

// call is what one call of a model takes, as the stand-in has reported it to the CLI.
type call struct{ input, output, read, write, hour int64 }

func (c call) tokens() int64 { return c.input + c.output + c.read + c.write + c.hour }

// byHand is what calls cost by hand, in dollars: prices for a million tokens in the order of the fields of call.
func byHand(prices [5]float64, calls ...call) (tokens int64, usd float64) {
	for _, c := range calls {
		tokens += c.tokens()
		usd += (float64(c.input)*prices[0] + float64(c.output)*prices[1] + float64(c.read)*prices[2] +
			float64(c.write)*prices[3] + float64(c.hour)*prices[4]) / 1e6
	}
	return tokens, usd
}

// What the stand-ins have reported for the call with a number.
func anthropicCall(i int64) call { return call{100 + i, 20 + i, 1000 + i, 100, 200 + i} }
func openaiCall(i int64) call    { return call{400, 50 + i, 600 + i, 0, 0} }
func googleCall(i int64) call    { return call{400 + i, 57 + i, 600, 0, 0} }

var (
	sonnet = [5]float64{3, 15, 0.3, 3.75, 6}
	haiku  = [5]float64{1, 5, 0.1, 1.25, 2}
	gpt54  = [5]float64{2.5, 15, 0.25}
	gemini = [5]float64{1.25, 10, 0.125}
)

// calls are those with the numbers from one to another.
func calls(of func(int64) call, from, to int64) (all []call) {
	for i := from; i <= to; i++ {
		all = append(all, of(i))
	}
	return all
}

// wantUsed fails unless a run was counted with exactly these tokens, and this cost to a billionth of a dollar for
// each.
func wantUsed(t *testing.T, what string, r run.Run, tokens int64, usd float64) {
	t.Helper()
	if r.Tokens != tokens || math.Abs(r.CostUSD-usd) > 1e-7 {
		t.Errorf("%s: %d tokens, $%.7f; by hand %d, $%.7f", what, r.Tokens, r.CostUSD, tokens, usd)
	}
}

// TestResumedSessionsAreCountedOnce plays what real CLIs wrote in a session that was resumed three times. Some report
// the whole session each time, some only what the process did, and Claude Code did one and then the other.
func TestResumedSessionsAreCountedOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.priceHaiku()
		for _, c := range []struct {
			engine, version string
			prices          [5]float64
			call            func(int64) call
			first, runs     int64
		}{
			{"claude", "claude-2.1.325", sonnet, anthropicCall, 4, 4},
			{"claude", "claude-2.1.197", sonnet, anthropicCall, 16, 4},
			{"codex", "codex-0.166.0", gpt54, openaiCall, 1, 4},
			{"gemini", "gemini-0.61.0", gemini, googleCall, 1, 3},
		} {
			session := ""
			for i := range c.runs {
				if i == 2 { // another node goes on with the session
					n.Stop()
					n = start(t, address)
				}
				from := c.first + 3*i
				r := n.play(c.engine, session, recorded(t, fmt.Sprintf("%s-%d", c.version, i)))
				tokens, usd := byHand(c.prices, calls(c.call, from, from+2)...)
				wantUsed(t, c.version, r, tokens, usd)
				session = r.Resume
			}
		}
		n.WantClean()
	})
}

// priceHaiku sets the price of the model of subagents, whatever day the test has.
func (n *node) priceHaiku() {
	n.T.Helper()
	at := func(f float64) *float64 { return &f }
	_, err := n.prices.Change(n.T.Context(), roster.Identity{}, price.Change{Models: []price.Price{{
		Provider: "anthropic", Model: "claude-haiku-4-5", Input: 1, Output: 5, CacheRead: at(0.1), CacheWrite: at(1.25),
		CacheWrite1h: at(2),
	}}})
	if err != nil {
		n.T.Fatal(err)
	}
}

// countedByModel are the tokens of a run that the counters have, by model.
func (n *node) countedByModel(id string) map[string]int64 {
	n.T.Helper()
	tokens, readers := map[string]int64{}, run.Counters()
	for _, e := range n.Entries(slices.Collect(maps.Keys(readers))...) {
		if e.Subject != id {
			continue
		}
		all, err := readers[e.Kind](&e)
		if err != nil {
			n.T.Fatal(err)
		}
		for _, one := range all {
			tokens[one.Model] += one.InputTokens + one.OutputTokens
		}
	}
	return tokens
}

// TestSubagentsAreCounted, with their own model: they are not in the usage of the result, and partly not in the stream.
func TestSubagentsAreCounted(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	n.priceHaiku()
	for _, c := range []struct {
		version    string
		main, sub  []int64
		unfinished bool
	}{
		{"claude-2.1.325-subagent", []int64{28, 30, 31, 34, 35, 36}, []int64{29, 32, 33}, false},
		{"claude-2.1.197-subagent", []int64{37, 41, 42}, []int64{38, 39, 40}, false},
		{"claude-2.1.325-budget", []int64{51, 52}, nil, true},
	} {
		r := n.play("claude", "", recorded(t, c.version))
		var tokens int64
		var usd float64
		byModel := n.countedByModel(r.ID)
		for _, of := range []struct {
			model  string
			prices [5]float64
			all    []int64
		}{{"claude-sonnet-4-5", sonnet, c.main}, {"claude-haiku-4-5", haiku, c.sub}} {
			for _, i := range of.all {
				more, cost := byHand(of.prices, anthropicCall(i))
				tokens, usd = tokens+more, usd+cost
				byModel[of.model] -= more
			}
			if byModel[of.model] != 0 {
				t.Errorf("%s: %d tokens of %s too many are counted", c.version, byModel[of.model], of.model)
			}
		}
		wantUsed(t, c.version, r, tokens, usd)
		if r.Calls < int64(len(c.main)) || c.unfinished != (r.Status == run.Failed) {
			t.Errorf("%s: %+v", c.version, r)
		}
	}
	n.WantClean()
}

// TestAKilledRunKeepsWhatItCost wherever it is killed, and the run that goes on with its session counts only its own.
func TestAKilledRunKeepsWhatItCost(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	lines := recorded(t, "claude-2.1.325-0")
	var before int64
	for end := range lines {
		session := fresh(lines, end)
		r := n.play("claude", "", session[:end])
		var done []call
		for _, line := range session[:end] {
			if bytes.Contains(line, []byte(`"message_delta"`)) {
				done = append(done, anthropicCall(4+int64(len(done))))
			}
		}
		tokens, usd := byHand(sonnet, done...)
		// The call under way has read its input by then, and written a token.
		if r.Status != run.Failed || r.Tokens < tokens || r.CostUSD < usd-1e-7 || r.Tokens < before ||
			r.Tokens > tokens+anthropicCall(6).tokens() {
			t.Errorf("killed after %d lines: %d tokens, $%.6f; whole calls have %d, $%.6f", end, r.Tokens, r.CostUSD, tokens, usd)
		}
		before = r.Tokens
	}
	n.WantClean()
}

// fresh is a stream in a session of its own.
func fresh(lines [][]byte, i int) [][]byte {
	out := make([][]byte, len(lines))
	for j, line := range lines {
		out[j] = bytes.ReplaceAll(line, []byte("07378757"), []byte(strings.Repeat(string('a'+rune(i%26)), 8)))
	}
	return out
}

// reportUsage reports one event of a run with this usage.
func (n *node) reportUsage(id string, from int64, event string, u engine.Usage) {
	n.T.Helper()
	n.must(n.runs.Report(n.T.Context(), operator, id,
		run.Report{From: from, Events: []run.Entry{{Event: wire.Raw(event), Usage: u}}}))
}

// TestAReportThatLiesDoesNotLowerASum: totals that fall, that jump, and those of other sessions, workspaces and
// engines.
func TestAReportThatLiesDoesNotLowerASum(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.price("m", 1)
		total := func(tokens int64) engine.Usage {
			return engine.Usage{Source: "amp", Model: "m", Session: &engine.Total{Tokens: engine.Tokens{Input: tokens}}}
		}
		used := func(session string, tokens ...int64) int64 {
			t.Helper()
			r := n.open(run.Request{Resume: session})
			at := strings.ReplaceAll(started, "T-1", session)
			for i, one := range tokens {
				n.reportUsage(r.ID, int64(i)+1, at, total(one))
			}
			r, err := n.runs.Get(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			return r.Tokens
		}
		for _, c := range []struct {
			what    string
			session string
			reports []int64
			want    int64
		}{
			{"the first run", "T-1", []int64{100}, 100},
			{"one that goes on", "T-1", []int64{150, 250}, 150},
			{"one that falls has begun anew", "T-1", []int64{80}, 80},
			{"and goes on from there", "T-1", []int64{90}, 10},
			{"one that falls while it goes on keeps what it had", "T-1", []int64{290, 200, 295}, 205},
			{"one that reports again what was", "T-1", []int64{295}, 0},
			{"another session", "T-2", []int64{295}, 295},
			{"a lie upwards", "T-2", []int64{1 << 60}, 1e12 - 295},
			{"and the truth after it", "T-2", []int64{300}, 300},
			{"less than nothing", "T-2", []int64{-5}, 0},
		} {
			if got := used(c.session, c.reports...); got != c.want {
				t.Errorf("%s: %d tokens, want %d", c.what, got, c.want)
			}
		}
		n.WantClean()
	})
}

// TestCostIsTheTablesOrTheCLIs: where the table has the model, never less than it says.
func TestCostIsTheTablesOrTheCLIs(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	n.price("m", 1)
	dollar := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		what string
		u    engine.Usage
		want float64
	}{
		{"the CLI does not say", engine.Usage{Model: "m", Tokens: engine.Tokens{Input: 1e6}}, 1},
		{"it says less", engine.Usage{Model: "m", Tokens: engine.Tokens{Input: 1e6}, CostUSD: dollar(0)}, 1},
		{"it says more", engine.Usage{Model: "m", Tokens: engine.Tokens{Input: 1e6}, CostUSD: dollar(1.5)}, 1.5},
		{"an unknown model", engine.Usage{Model: "x", Tokens: engine.Tokens{Input: 1e6}}, 30},
		{"an unknown one, and the CLI knows", engine.Usage{Model: "x", Tokens: engine.Tokens{Input: 1e6}, CostUSD: dollar(0.2)}, 0.2},
		{"an unknown one that is said to be free", engine.Usage{Model: "x", Tokens: engine.Tokens{Input: 1e6}, CostUSD: dollar(0)}, 30},
		{"no tokens", engine.Usage{CostUSD: dollar(0.3)}, 0.3},
		{"more than there is", engine.Usage{CostUSD: dollar(1e300)}, 1e6},
		{"less than nothing", engine.Usage{CostUSD: dollar(-1)}, 0},
		{"two models", engine.Usage{
			Model: "m", Tokens: engine.Tokens{Input: 2e6},
			Models: map[string]engine.Tokens{"x": {Input: 1e6}, "y\x00": {Input: 5e6}},
		}, 31},
		{"models that are more than the whole", engine.Usage{
			Model: "m", Tokens: engine.Tokens{Input: 1e6}, Models: map[string]engine.Tokens{"m": {Input: 9e6}},
		}, 1},
	} {
		r := n.open(run.Request{})
		n.reportUsage(r.ID, 1, started, c.u)
		if r, _ = n.runs.Get(t.Context(), r.ID); math.Abs(r.CostUSD-c.want) > 1e-9 {
			t.Errorf("%s: $%f, want $%f", c.what, r.CostUSD, c.want)
		}
	}
	n.WantClean()
}

// TestLongRequestsArePricedByTheirOwnLength, and not by that of all requests of a run together.
func TestLongRequestsArePricedByTheirOwnLength(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	_, err := n.prices.Change(t.Context(), roster.Identity{}, price.Change{Models: []price.Price{
		{Model: "m", Input: 1, Output: 1}, {Model: "m", Above: 1000, Input: 5, Output: 5},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for calls, want := range map[int64]float64{1: 0.05, 5: 0.05, 20: 0.01} {
		r := n.open(run.Request{})
		n.reportUsage(r.ID, 1, started, engine.Usage{Model: "m", Calls: calls, Tokens: engine.Tokens{Input: 10_000}})
		if r, _ = n.runs.Get(t.Context(), r.ID); math.Abs(r.CostUSD-want) > 1e-9 {
			t.Errorf("in %d calls: $%f, want $%f", calls, r.CostUSD, want)
		}
	}
}

// TestWhatIsCountedNeverFallsAndIsTheSumOfItsParts, for any reports in any order.
func TestWhatIsCountedNeverFallsAndIsTheSumOfItsParts(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	n.price("m", 1)
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.Custom(func(t *rapid.T) engine.Tokens {
			some := rapid.Int64Range(-5, 50)
			return engine.Tokens{
				Input: some.Draw(t, "in"), Output: some.Draw(t, "out"), CacheRead: some.Draw(t, "read"),
				CacheWrite: some.Draw(t, "write"), CacheWrite1h: some.Draw(t, "hour"),
			}
		})
		models := rapid.MapOf(rapid.SampledFrom([]string{"m", "x", ""}), tokens)
		r := n.open(run.Request{Engine: rapid.SampledFrom([]string{"amp", "codex"}).Draw(t, "engine"), Resume: "T-9"})
		last := r
		for at := int64(1); at <= rapid.Int64Range(1, 6).Draw(t, "events"); at++ {
			u := engine.Usage{Source: r.Engine, Model: "m", Tokens: tokens.Draw(t, "own"), Models: models.Draw(t, "models")}
			if rapid.Bool().Draw(t, "session") {
				u.Session = &engine.Total{Tokens: tokens.Draw(t, "total"), Models: models.Draw(t, "models of all")}
			}
			n.reportUsage(r.ID, at, strings.ReplaceAll(started, "T-1", "T-9"), u)
			now, err := n.runs.Get(n.T.Context(), r.ID)
			if err != nil || now.Tokens < last.Tokens || now.CostUSD < last.CostUSD {
				t.Fatalf("%v: from %d, $%f to %d, $%f", err, last.Tokens, last.CostUSD, now.Tokens, now.CostUSD)
			}
			last = now
		}
		var parts, cost int64
		err := n.DB.Read.QueryRowContext(n.T.Context(), `SELECT coalesce(sum(input + output + cache_read + cache_write +
cache_write_1h), 0), coalesce(sum(nanos), 0) FROM run_usage WHERE run = $1`, r.ID).Scan(&parts, &cost)
		if err != nil || parts != last.Tokens || math.Abs(float64(cost)/1e9-last.CostUSD) > 1e-12 {
			t.Fatalf("%v: %d tokens and %d nanos of models, %+v", err, parts, cost, last)
		}
	})
	n.WantClean()
}
