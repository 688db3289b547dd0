package run

import (
	"fmt"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// row is what a write needs to know about a run. append keeps it up to date while it
// goes through events, so that a report of many events is checked like many reports of
// one.
type row struct {
	workspace, engine, thread, stop string
	cause                           engine.Cause // of the order to stop
	status                          Status
	events, tokens, nanos           int64
	maxTokens, maxNanos             int64
	meter                           string // the agent whose calls through the proxy are the run's, "" if none are
	calls                           int64  // of models: what the proxy has seen, or what the CLI says
	called                          int64  // the last entry of the proxy that was counted
	said                            said   // by the CLI of a metered run
	counted                         tally  // nil until it is read
}

// read is an event of a report that was checked, with the kind of its entry.
type read struct {
	kind string
	body reported
	acts bool // the agent begins to do something
	// unasked is the error of a run whose agent has done something that nobody was asked about.
	unasked string
}

// readEvent checks an event of a report. Only what the tables need is checked; the
// event itself is kept as it was sent.
func readEvent(e Entry) (read, error) {
	var event engine.Event
	if err := wire.UnmarshalPart(e.Event, &event); err != nil {
		return read{}, fault.Wrap(err, fault.InvalidPayload,
			`An event should be an object with the members of its type, such as {"type":"started","engine":"amp",…}.`).
			About("events")
	}
	e.Usage = boundUsage(e.Usage)
	r := read{body: reported{Event: e.Event, Usage: e.Usage}}
	if event.Resume != nil && !strings.ContainsRune(event.Resume.Value, 0) { // which no database looks up
		r.body.Session = event.Resume.Value
	}
	switch {
	case event.Type == engine.Started && event.Resume != nil:
		r.kind = kindStarted
	case event.Type == engine.Acted && event.Action != nil:
		r.kind, r.body.Silent = kindActed, event.IsStall()
		switch event.Action.Kind {
		case engine.Command, engine.Tool, engine.FileChange, engine.WebSearch, engine.Subagent:
			r.acts = event.Phase == engine.Begun
		case engine.Note, engine.Turn, engine.Warning:
		}
	case event.Type == engine.Completed && event.OK != nil:
		r.kind = kindCompleted
		if event.Outcome != event.Cause.Outcome() || event.Cause != "" && (event.Outcome == "" || *event.OK) {
			return read{}, fault.New(fault.InvalidPayload, "A completed event that is not ok may have the outcome cancelled with "+
				"the cause person, or stopped with the cause budget, time or policy; this one has ok %t, outcome %.20q and cause %.20q.",
				*event.OK, event.Outcome, event.Cause).About("events")
		}
		r.body.Cause = event.Cause
		r.body.Status = outcome(*event.OK, event.Cause)
		if strings.HasPrefix(event.Error, engine.Unasked) && !*event.OK {
			r.unasked = event.Error
		}
	default:
		return read{}, fault.New(fault.InvalidPayload,
			"An event has the type started with resume, action with action, or completed "+
				"with ok, and this one has the type %.40q.", event.Type).About("events")
	}
	return r, nil
}

// outcome is the status of a run that has ended.
func outcome(ok bool, cause engine.Cause) Status {
	switch {
	case ok:
		return Done
	case cause != "":
		return Status(cause.Outcome())
	}
	return Failed
}

// maxTokens is far above what a run can use. It keeps sums within an int64, whatever a
// supervisor sends.
const maxTokens = 1e12

// overBudget says why a run that has used so much must stop, "" if it may go on.
func (r *row) overBudget(day spent, daily Budget) string {
	// A CLI that says more than the proxy has seen has made calls past it.
	tokens, cost := max(r.tokens, r.said.Tokens), max(r.nanos, r.said.Nanos)
	switch {
	case r.maxTokens > 0 && tokens >= r.maxTokens:
		return fmt.Sprintf("the run has used %d tokens, and its budget is %d", tokens, r.maxTokens)
	case r.maxNanos > 0 && cost >= r.maxNanos:
		return fmt.Sprintf("the run has cost $%.4f, and its budget is $%.4f", dollars(cost), dollars(r.maxNanos))
	}
	return spentDay(day, daily)
}

// spentDay says why no run may go on today, "" if they may.
func spentDay(day spent, daily Budget) string {
	switch {
	case daily.Tokens > 0 && day.Tokens >= daily.Tokens:
		return fmt.Sprintf("today's runs have used %d tokens, and the budget of a day is %d", day.Tokens, daily.Tokens)
	case daily.USD > 0 && day.Nanos >= nanos(daily.USD):
		return fmt.Sprintf("today's runs have cost $%.4f, and the budget of a day is $%.4f", dollars(day.Nanos), daily.USD)
	}
	return ""
}

// dollars is the inverse of nanos.
func dollars(nanos int64) float64 { return float64(nanos) / 1e9 }
