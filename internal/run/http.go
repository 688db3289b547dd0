package run

import (
	"net/http"
	"slices"
	"strconv"

	"signalbox/internal/behalf"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// CancelRequest is the body of POST /runs/{id}/cancel. Reason is recorded, and the
// run's error text.
type CancelRequest struct {
	Reason string `json:"reason,omitempty" example:"It repeats itself"`
}

// Routes are the calls of runs. Reporting takes the role operator: whoever may start
// agents may also say what they did.
func (s *Runs) Routes() []wire.Route {
	after := wire.Param{
		Name: "after", Meaning: "the number of the last known event; 0 starts from the beginning",
		Number: true,
	}
	follow := wire.Param{
		Name:    "follow",
		Meaning: "false ends with the last recorded event; otherwise the answer follows until the run is completed",
	}
	status := wire.Param{Name: "status", Meaning: "running, completed, failed, cancelled or stopped; all when absent"}
	wait := wire.Param{Name: "wait", Meaning: "how many seconds to wait for an order to stop, 60 at most", Number: true}
	return []wire.Route{
		{
			Method: "POST", Path: "/runs", Summary: "Open a run: one that the caller reports, or one that the server starts",
			Auth: wire.Operator, Request: Request{}, Answer: Run{}, Status: http.StatusCreated,
			Handle: wire.Take(http.StatusCreated, 2*maxPrompt, s.post),
		},
		{
			Method: "GET", Path: "/runs", Summary: "List runs, the newest first", Auth: wire.Viewer,
			Query: slices.Concat([]wire.Param{status}, behalf.UserParams, wire.PageParams), Answer: Page{}, Handle: wire.List(s.list),
		},
		{
			Method: "GET", Path: "/runs/{id}", Summary: "Show a run", Auth: wire.Viewer, Answer: Run{},
			Handle: wire.Answer(http.StatusOK, s.get),
		},
		{
			Method: "GET", Path: "/runs/{id}/trace",
			Summary: "Read what belongs to a run, in order: its entries, and what was decided and done under it in every protocol",
			Auth:    wire.Viewer, Query: []wire.Param{
				{Name: "after", Meaning: "only entries with a greater sequence number", Number: true},
				{Name: "limit", Meaning: "how many at the most, 1 to 1000; 100 when absent", Number: true},
			}, Answer: ledger.EntryPage{}, Handle: wire.Answer(http.StatusOK, s.trace),
		},
		{
			Method: "POST", Path: "/runs/{id}/events",
			Summary: "Record events of a run, in order; events that are recorded already are skipped", Auth: wire.Operator,
			Request: Report{}, Answer: Orders{}, Handle: wire.Take(http.StatusOK, maxReport, s.report),
		},
		{
			Method: "GET", Path: "/runs/{id}/events",
			Summary: "Replay the events of a run from a number, then follow: JSON lines or server-sent events",
			Auth:    wire.Viewer, Query: []wire.Param{after, follow}, Media: "text/event-stream", Handle: s.events,
		},
		{
			Method: "POST", Path: "/runs/{id}/pulse",
			Summary: "A supervisor's sign of life; the answer may order the run to stop", Auth: wire.Operator,
			Query: []wire.Param{wait}, Request: Pulse{}, Answer: Orders{}, Handle: wire.Take(http.StatusOK, 1<<16, s.pulse),
		},
		{
			Method: "POST", Path: "/runs/{id}/access",
			Summary: "A key for the calls of models of a run that goes through the model proxy, good for an hour",
			Auth:    wire.Operator, Answer: Access{}, Handle: wire.Answer(http.StatusOK, s.access),
		},
		{
			Method: "POST", Path: "/runs/{id}/cancel", Summary: "Tell a run to stop", Auth: wire.Operator,
			Request: CancelRequest{}, Answer: Run{}, Handle: wire.Take(http.StatusOK, 1<<16, s.cancel),
		},
	}
}

// post answers POST /runs.
func (s *Runs) post(r *http.Request, in Request) (Run, error) {
	return s.Open(r.Context(), roster.From(r.Context()), in)
}

// list answers GET /runs.
func (s *Runs) list(r *http.Request, p wire.Paging) (Page, error) {
	at, err := wire.ParseCursor(p.Cursor, 1)
	if err != nil {
		return Page{}, err
	}
	f := Filter{Status: r.URL.Query().Get("status")}
	if f.User, f.Claimed, err = behalf.Asked(r); err != nil {
		return Page{}, err
	}
	return s.List(r.Context(), f, at[0], p.Limit)
}

// get answers GET /runs/{id}.
func (s *Runs) get(r *http.Request) (Run, error) {
	found, err := s.Get(r.Context(), r.PathValue("id"))
	if err == nil {
		found.Awaited, err = s.awaited(r.Context(), found)
	}
	return found, err
}

// report answers POST /runs/{id}/events.
func (s *Runs) report(r *http.Request, in Report) (Orders, error) {
	return s.Report(r.Context(), roster.From(r.Context()), r.PathValue("id"), in)
}

// pulse answers POST /runs/{id}/pulse.
func (s *Runs) pulse(r *http.Request, in Pulse) (Orders, error) {
	wait, err := wire.QueryWait(r, maxWait)
	if err != nil {
		return Orders{}, err
	}
	s.core.Kin.Supervises(r.Context()) // what a supervisor starts must not decide
	return s.Wait(r.Context(), r.PathValue("id"), in, wait)
}

// cancel answers POST /runs/{id}/cancel.
func (s *Runs) cancel(r *http.Request, in CancelRequest) (Run, error) {
	return s.Cancel(r.Context(), roster.From(r.Context()), r.PathValue("id"), in.Reason)
}

// events answers GET /runs/{id}/events: a replay from a number on, and then events as
// they come, as JSON lines or server-sent events (RUN-38). Errors after the first byte
// can only end the stream; a reader asks again from the last number it has.
func (s *Runs) events(w http.ResponseWriter, r *http.Request) error {
	after, err := wire.Number(r, "after", 0)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if _, err := s.Get(r.Context(), id); err != nil {
		return err
	}
	stream := wire.Lines
	if wire.WantsEvents(r) {
		stream = wire.Events
		if last, err := wire.LastEventID(r, 0); err == nil {
			after = max(after, last)
		}
	}
	out := stream(w)
	send := func(events []Numbered) error { return sendEvents(out, events) }
	if r.URL.Query().Get("follow") == "false" {
		return s.replay(r, id, after, send)
	}
	if out.Flush() != nil {
		return nil // the reader is gone
	}
	ctx, end := wire.UntilStop(r.Context())
	defer end()
	if err := s.Follow(ctx, id, after, send); err != nil && ctx.Err() == nil {
		s.core.Log.Debug("reader of a run disconnected", "error", err.Error())
	}
	return nil
}

// sendEvents sends events to one reader in one write.
func sendEvents(out *wire.Stream, events []Numbered) error {
	for i := range events {
		data, err := wire.Marshal(events[i])
		if err != nil {
			return err
		}
		out.Put(strconv.FormatInt(events[i].N, 10), "", data)
	}
	return out.Flush()
}

// replay sends what is recorded, page by page, and ends.
func (s *Runs) replay(r *http.Request, id string, after int64, send func([]Numbered) error) error {
	for {
		events, err := s.Events(r.Context(), id, after)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		if err := send(events); err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
		after = events[len(events)-1].N
	}
}
