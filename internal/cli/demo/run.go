package demo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/record"
)

// storyRun is a run whose steps are made up, but which is reported through the real
// recorder. So the server sees the same calls, in the same order, as from `signalbox
// run`. It is used by one goroutine at a time; the recorder sends in another.
type storyRun struct {
	record *record.Recorder
	engine string
	steps  []runStep
	answer string
	at     int // the next step
	usage  engine.Usage
	ended  chan error
	stop   context.CancelCauseFunc
}

// runStep is one action of an agent CLI. It is reported as begun and as done.
type runStep struct {
	kind   engine.Kind
	title  string
	detail map[string]any
	fails  bool
}

// runs is the part of the night shift: one run that is complete, and one that is left in
// the middle, for the live part or for the reader to watch.
func (d *story) runs(ctx context.Context) error {
	done, err := d.open(ctx, "codex",
		"Find pages of the documentation that name prices, and check them against the price table",
		"Checked 31 pages. Two are wrong, and I have changed neither: `docs/refunds.md` contradicts the terms.", pricePages)
	if err != nil {
		return err
	}
	for done.step() {
	}
	if err := <-done.ended; err != nil {
		return err
	}
	going, err := d.open(ctx, "claude",
		"Update the API documentation for the coupon endpoint, with an example in three languages",
		"Updated `docs/api/coupons.md` with examples for curl, Python and Go.", couponDocs)
	if err != nil {
		return err
	}
	// The other half is left for the live part.
	for range len(couponDocs) / 2 {
		going.step()
	}
	d.going = going
	d.report(nightShift, "checked 31 pages with codex, and is in the middle of a run with claude")
	return nil
}

// open opens a run and starts its recorder. The context is detached from Ctrl-C: the
// recorder has to report the end. stop ends it, and is also called when somebody cancels
// the run in the dashboard.
func (d *story) open(ctx context.Context, name, prompt, answer string, steps []runStep) (*storyRun, error) {
	server := record.Server{URL: d.Address, Token: d.dana.Token, HTTP: &http.Client{Timeout: 90 * time.Second}}
	// The host is shown beside the run. A machine without a name is no reason to fail.
	host, _ := os.Hostname()
	request := run.Request{Engine: name, Prompt: prompt, Dir: "/srv/shop", Host: host, Recorded: true}
	if e, err := engine.Find(name); err == nil && e.Late() == "" { // others cannot be held to one
		request.Budget.USD = 5
	}
	opened, err := server.Open(ctx, request)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // Ctrl-C ends it in order
	r := &storyRun{
		engine: name, steps: steps, answer: answer, usage: engine.Usage{Source: name, Model: model},
		ended: make(chan error, 1), stop: stop,
	}
	r.record = server.Begin(opened.ID, opened.Events, stop)
	d.ended.Go(func() {
		defer stop(nil)
		r.ended <- r.record.Run(ctx)
	})
	r.record.Event(engine.Event{
		Type: engine.Started, Engine: name, Resume: r.resume(opened.ID), Title: name,
		Meta: map[string]any{"model": model},
	}, r.usage)
	return r, nil
}

// resume is the token with which the CLI would go on later. It has to be different for
// each run.
func (r *storyRun) resume(id string) *engine.Resume {
	return &engine.Resume{Engine: r.engine, Value: "demo-" + id[len(id)-8:]}
}

// leave stops the recorder. With complete set it reports all remaining steps first, and
// waits up to five seconds for the server to take them. Otherwise the run stays in
// progress until the server notices that its heartbeats stopped.
func (r *storyRun) leave(complete bool) {
	if complete {
		for r.step() {
		}
		select {
		case <-r.ended:
		case <-time.After(5 * time.Second):
		}
	}
	r.stop(nil)
}

// step reports the next step, and after the last one that the run is complete. It
// returns false when nothing is left. Usage grows with each step, as engines report it:
// totals, not differences.
func (r *storyRun) step() bool {
	if r.at > len(r.steps) {
		return false
	}
	r.usage.Turns++
	r.usage.Tokens.Input += 3_140
	r.usage.Tokens.Output += 412
	// In US dollars, and far below the budget of 5: the server would stop the run at it.
	cost := float64(r.usage.Turns) * 0.0156
	r.usage.CostUSD, r.usage.DurationMS = &cost, r.usage.DurationMS+2_700
	yes := true
	// Completed is the last event of a run; Close lets the recorder
	// end once it is sent.
	if r.at == len(r.steps) {
		r.record.Event(engine.Event{
			Type: engine.Completed, Engine: r.engine, OK: &yes, Answer: r.answer,
			Usage: &engine.Report{CostUSD: &cost},
		}, r.usage)
		r.record.Close()
		r.at++
		return false
	}
	s := r.steps[r.at]
	action := &engine.Action{ID: fmt.Sprintf("a%d", r.at+1), Kind: s.kind, Title: s.title, Detail: s.detail}
	ok := !s.fails
	r.record.Event(engine.Event{Type: engine.Acted, Engine: r.engine, Action: action, Phase: engine.Begun}, r.usage)
	r.record.Event(engine.Event{Type: engine.Acted, Engine: r.engine, Action: action, Phase: engine.Done, OK: &ok},
		r.usage)
	r.at++
	return true
}

// pricePages is the script of the run that is complete.
var pricePages = []runStep{
	{kind: engine.Command, title: "rg -l '€' docs/", detail: map[string]any{"command": "rg -l '€' docs/", "exit_code": 0}},
	{kind: engine.Tool, title: "read prices/seeds.csv"},
	{
		kind: engine.Command, title: "scripts/compare-prices docs/",
		detail: map[string]any{"command": "scripts/compare-prices docs/", "exit_code": 1}, fails: true,
	},
	{kind: engine.Note, title: "Two pages differ; the terms say otherwise, so I leave them"},
}

// couponDocs is the script of the run that is left in the middle.
var couponDocs = []runStep{
	{kind: engine.Note, title: "I read the endpoint first, then its tests"},
	{kind: engine.Tool, title: "read checkout/coupon.go"},
	{
		kind: engine.Command, title: "rg -n 'POST /coupons' --type go",
		detail: map[string]any{"command": "rg -n 'POST /coupons' --type go", "exit_code": 0},
	},
	{kind: engine.WebSearch, title: "RFC 9457 problem details"},
	{
		kind: engine.FileChange, title: "docs/api/coupons.md",
		detail: map[string]any{"changes": []map[string]string{{"path": "docs/api/coupons.md", "kind": "update"}}},
	},
	{
		kind: engine.Command, title: "curl -s localhost:8080/coupons -d @example.json",
		detail: map[string]any{"exit_code": 0},
	},
	{kind: engine.Subagent, title: "Write the Python example"},
	{kind: engine.Subagent, title: "Write the Go example"},
	{kind: engine.Command, title: "mdformat --check docs/", detail: map[string]any{"exit_code": 1}, fails: true},
	{
		kind: engine.FileChange, title: "docs/api/coupons.md",
		detail: map[string]any{"changes": []map[string]string{{"path": "docs/api/coupons.md", "kind": "update"}}},
	},
	{kind: engine.Command, title: "mdformat --check docs/", detail: map[string]any{"exit_code": 0}},
}
