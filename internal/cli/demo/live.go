package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	amp "signalbox/client"
	"signalbox/internal/clock"
	"signalbox/internal/mail/mailbox"
)

// goOn lets one small thing happen every two to six seconds until ctx ends. The acts
// take turns and run one after another, so they need no locks. Errors end the demo,
// unless they come from Ctrl-C.
func (d *story) goOn(ctx context.Context) error {
	for round := 0; ; round++ {
		clock.Pause(ctx, 2*time.Second+rand.N(4*time.Second)) //nolint:gosec // a pause needs no secrecy
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is how it ends
		}
		act := []func(context.Context, int) error{d.liveRun, d.liveStep, d.liveSignal, d.liveMail, d.liveGate}[round%5]
		if err := act(ctx, round/5); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// liveRun reports one more step of the run, and begins the next run after the last one
// has ended. A run can also end because somebody cancelled it in the dashboard; then
// step has reports left that nobody takes, and ended is what counts.
func (d *story) liveRun(ctx context.Context, _ int) (err error) {
	if d.going.step() {
		return nil
	}
	// ended is ready only after the server has taken the last report.
	select {
	case <-d.going.ended: // also when somebody has cancelled it
	default:
		return nil
	}
	d.report(nightShift, "begins another run")
	d.going, err = d.open(ctx, "claude", "Read the changes of today and write what the support desk has to know",
		"Wrote `docs/support/today.md`: the coupon fix, and what to say to customers in Porto.", couponDocs)
	return err
}

// liveStep asks for one more command in a session that stays open, with a heartbeat.
func (d *story) liveStep(ctx context.Context, round int) error {
	if d.live == nil {
		s, err := d.session(ctx, "release-checks")
		if err != nil {
			return err
		}
		d.live = s
	}
	// Harmless commands: the live part must not fill the inbox with gates.
	commands := []string{
		"git fetch origin", "go vet ./...", "go test ./warehouse/...", "scripts/zones Athens",
		"git diff --stat main",
	}
	d.live.ask("bash", commands[round%len(commands)])
	d.live.beat()
	return d.live.err
}

// liveSignal reports finished work, which moves the counters and needs no decision.
func (d *story) liveSignal(ctx context.Context, round int) error {
	topics := []string{
		"Answered 6 questions about delivery days", "Wrote the text for the bee mix",
		"Checked nine links of the spring issue", "Sorted 41 replies to the last issue",
	}
	end := time.Now().UTC()
	tokens := 2_000 + rand.Int64N(9_000) //nolint:gosec // a number of a story
	_, err := d.agents[writer].signals.Signal(ctx, amp.Payload{
		RunID: amp.NewRunID(), ProjectID: "newsletter", Summary: topics[round%len(topics)], Model: model, InputTokens: tokens,
		OutputTokens: tokens / 8,
		Cost:         amp.BuiltinPrices().Cost(model, tokens, tokens/8), StartedAt: end.Add(-20 * time.Second),
		CompletedAt: end,
	})
	return passed(err)
}

// liveMail sends a message and has it fetched, so that the queue stays short.
func (d *story) liveMail(ctx context.Context, round int) error {
	talk := []struct{ from, to, subject, body string }{
		{nightShift, lead, "Pages that need a person", "The refund page is still open. Who may change the terms?"},
		{lead, nightShift, "Re: Pages that need a person", "Legal. I have asked them; leave it for today."},
		{engineer, reviewer, "Zones are in", "Athens and Auckland pass. The branch has not moved since."},
	}
	m := talk[round%len(talk)]
	if _, err := d.agents[m.from].box.Send(ctx, mailbox.Draft{To: m.to, Subject: m.subject, Body: m.body}); err != nil {
		return err
	}
	_, err := d.agents[m.to].box.Fetch(ctx, mailbox.Fetching{})
	return err
}

// liveGate opens a gate, but only after the one before it was decided. A demo that runs
// over lunch must not leave a hundred gates.
func (d *story) liveGate(ctx context.Context, round int) error {
	a := d.agents[writer]
	if d.asked != "" {
		// Long enough for one answer of the server. Wait itself blocks until the decision.
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := a.signals.Wait(short, d.asked); err != nil {
			return nil // it still waits
		}
	}
	stores := []string{"Porto", "Gent", "Graz", "Turku"}
	where := stores[round%len(stores)]
	answer, err := a.signals.Signal(ctx, amp.GateRequest{
		RunID: amp.NewRunID(), ProjectID: "shops",
		Summary:        fmt.Sprintf("The shop in %s has 40 trays of cress that will not last the week", where),
		ProposedAction: fmt.Sprintf("Put the cress in %s on sale for half the price until Saturday", where), Model: model,
		Artifacts: []any{amp.JSON(map[string]any{"shop": where, "trays": 40, "price": 1.05, "until": "Saturday"})},
	})
	if err == nil && answer.GateID != "" {
		d.asked = answer.GateID
		d.report(writer, "asks whether the cress in %s may go on sale", where)
	}
	return passed(err)
}
