package conform

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/wire"
)

// Kit runs the cases of signals against a server. Set the exported fields, and call
// Run. A kit may be run again, but not by two goroutines at once.
type Kit struct {
	URL   string
	Agent string // the agent's name
	Key   string // a key of it
	Token string // an operator's, "" for none
	// Public says that the server does not listen on loopback only.
	Public bool

	// The state of one round, which Run resets.
	suite *Suite
	http  *http.Client
	round string          // tells the runs of this round from those of others
	can   map[Need]string // why something cannot be had, "" if it can
	does  map[Policy]bool // what the policy does by itself
	open  []string        // gates that nobody has decided
	decks map[string]bool // those that signals were taken in
}

// Report is the outcome of a round.
type Report struct {
	Passed  int       `json:"passed"`
	Failed  int       `json:"failed"`
	Skipped int       `json:"skipped"`
	Cases   []Outcome `json:"cases"`
	// Decks hold signals of this round, which stay: a ledger forgets nothing. Open are
	// gates that still wait, because the kit could not reject them.
	Decks []string `json:"decks"`
	Open  []string `json:"open"`
}

// Outcome is the outcome of one case.
type Outcome struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // passed, failed or skipped
	Problem string `json:"problem,omitempty"`
}

// Run runs every case, one after another. The error is about the round: it could not be
// begun, or not be cleaned up after. Cases that fail are in the report and no error.
func (k *Kit) Run(ctx context.Context, suite *Suite) (report Report, err error) {
	k.suite, k.round, k.open, k.decks = suite, strings.ToLower(rand.Text()[:12]), []string{}, map[string]bool{}
	// Cases about waiting hold a call for a minute.
	k.http = newHTTP(longest)
	defer k.http.CloseIdleConnections()
	// From here on the server's policy may be changed, so restore runs whatever happens.
	restore, err := k.prepare(ctx)
	if err != nil {
		return Report{}, err
	}
	defer func() {
		// What was changed is put back, also when ctx has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
		defer cancel()
		report.Open, report.Decks = k.rejectOpen(ctx), slices.Sorted(maps.Keys(k.decks))
		err = errors.Join(err, restore(ctx))
	}()
	err = report.each(ctx, len(suite.Cases), func(i int) Outcome { return k.run(ctx, &suite.Cases[i], i) })
	return report, err
}

// outcome is the outcome of a case that ended with err. A CannotError makes it skipped.
func outcome(name string, err error) Outcome {
	if cannot, skipped := errors.AsType[CannotError](err); skipped {
		return Outcome{name, "skipped", string(cannot)}
	}
	if err != nil {
		return Outcome{name, "failed", err.Error()}
	}
	return Outcome{name, "passed", ""}
}

// Add counts a case that ran: it failed if there is a problem.
func (r *Report) Add(name, problem string) {
	var err error
	if problem != "" {
		err = errors.New(problem)
	}
	r.add(outcome(name, err))
}

// each counts the outcome of every case, one after another, until ctx ends. Cases is
// never nil, so that JSON has a list.
func (r *Report) each(ctx context.Context, cases int, run func(i int) Outcome) error {
	r.Cases = []Outcome{}
	for i := range cases {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.add(run(i))
	}
	return nil
}

// add counts an outcome.
func (r *Report) add(o Outcome) {
	switch o.Outcome {
	case "passed":
		r.Passed++
	case "failed":
		r.Failed++
	default:
		r.Skipped++
	}
	r.Cases = append(r.Cases, o)
}

// run runs one case. Its run id tells its signals from those of other cases, and is how
// its rule matches.
func (k *Kit) run(ctx context.Context, c *Case, number int) Outcome {
	if why := k.skipReason(c); why != "" {
		return Outcome{c.Name, "skipped", why}
	}
	b := &bench{kit: k, c: c, sent: message(k.suite.Payload)}
	b.replace = strings.NewReplacer("$run", k.runID(number), "$agent", k.Agent)
	return outcome(c.Name, runSteps(c.Steps, func(s Step) error { return b.step(ctx, s) }))
}

// runSteps runs the steps of a case up to the first that fails. The error names the
// step if there are several.
func runSteps[S any](steps []S, run func(S) error) error {
	for i, step := range steps {
		switch err := run(step); {
		case err != nil && len(steps) > 1:
			return fmt.Errorf("step %d: %w", i+1, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// skipReason is why a case cannot be run here, "" if it can.
func (k *Kit) skipReason(c *Case) string {
	for _, n := range c.Needs {
		if why := k.can[n]; why != "" {
			return why
		}
	}
	if c.Policy != "" && k.can[Rules] != "" && !k.does[c.Policy] {
		return fmt.Sprintf("the policy in force is not one that %s, and %s", c.Policy, k.can[Rules])
	}
	return ""
}

// runID is the run of a case, by which its rule matches it.
func (k *Kit) runID(number int) string { return fmt.Sprintf("conform-%s-%d", k.round, number) }

// bench is the state of a running case: what was sent last, and the gate that it
// opened.
type bench struct {
	kit     *Kit
	c       *Case
	sent    message // by the step before
	gate    string  // of the step before
	replace *strings.Replacer
}

// step makes the call of a step and checks the answer. Gates are remembered also when
// the check fails, so that they are rejected in the end.
func (b *bench) step(ctx context.Context, s Step) error {
	// A decision is a step of its own, without an answer to check.
	if s.Decide != "" {
		return b.kit.decide(ctx, b.gate, s.Decide, s.Note)
	}
	method, path, body := http.MethodGet, b.replace.Replace(strings.ReplaceAll(s.Get, "$gate", b.gate)), []byte(nil)
	if s.Get == "" {
		m, err := b.sent.change(s)
		if err != nil {
			return err
		}
		b.sent = m
		method, path, body = http.MethodPost, s.Post, m.encode(s, b.replace)
		if path == "" {
			path = "/amp/signal"
		}
	}
	// The decision runs beside the call, and is waited for also when the call fails.
	done := b.meanwhile(ctx, s.Meanwhile)
	r, err := b.kit.send(ctx, method, path, body, s)
	if e := <-done; err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	if method == http.MethodPost && r.http < 300 {
		b.kit.decks[deckOf(body)] = true
	}
	a, err := s.Expect.check(r, b.gate)
	if a.gate != "" {
		b.gate = a.gate
		b.kit.trackGate(a)
	}
	return err
}

// deckOf is the deck that a message lands in.
func deckOf(body []byte) string {
	var m struct {
		Project string `json:"project_id"`
	}
	_ = wire.UnmarshalPart(body, &m) // it was taken
	return cmp.Or(m.Project, "default")
}

// gateAppears is how long a server may take to show the gate of a call that waits for it.
const gateAppears = 20 * time.Second

// meanwhile decides the gate of the step before, or the one that this step opens, a
// while after the step has begun: the call of the step waits for that decision. The
// channel gets one value.
func (b *bench) meanwhile(ctx context.Context, m *Meanwhile) <-chan error {
	done := make(chan error, 1)
	if m == nil {
		done <- nil
		return done
	}
	go func() {
		clock.Pause(ctx, m.After)
		gate, err := b.gate, error(nil)
		// The call of this step has opened the gate and is waiting, so its id is not known from
		// an answer.
		for began := time.Now(); gate == "" && time.Since(began) < gateAppears && ctx.Err() == nil; {
			gate, err = b.kit.findGate(ctx, b.replace.Replace("$run"))
			clock.Pause(ctx, 100*time.Millisecond)
		}
		if err == nil {
			err = b.kit.decide(ctx, gate, m.Decide, m.Note)
		}
		done <- err
	}()
	return done
}

// send makes a call as the agent. If the agent has made too many calls, it waits and
// tries again, unless the case is about exactly that.
func (k *Kit) send(ctx context.Context, method, path string, body []byte, s Step) (reply, error) {
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	if s.Media != "" {
		header.Set("Content-Type", s.Media)
	}
	for name, value := range s.Headers {
		header.Set(name, value)
	}
	// The wrong key has the right form, so that it is looked up.
	switch s.Key {
	case "none":
	case "wrong":
		header.Set("Authorization", "Bearer rs-amp-00000000000000000000000000000000")
	case "operator":
		header.Set("Authorization", "Bearer "+k.Token)
	default:
		header.Set("Authorization", "Bearer "+k.Key)
	}
	// A case about the rate limit wants the 429 itself.
	if s.Expect.HTTP == http.StatusTooManyRequests {
		return k.call(ctx, method, path, body, header)
	}
	return whileLimited(ctx, func() (reply, error) { return k.call(ctx, method, path, body, header) })
}

// call makes one call to the server.
func (k *Kit) call(ctx context.Context, method, path string, body []byte, header http.Header) (reply, error) {
	return call(ctx, k.http, method, strings.TrimSuffix(k.URL, "/")+path, body, header)
}
