package web

import (
	"strconv"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/handoff"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// runList is a page of runs.
type runList struct {
	Status, User string
	Runs         []run.Run
	Sum          run.Totals // of all that pass the filter
	Next         string
}

// runRows is how many runs one page lists.
const runRows = 50

// loadRuns reads a page of runs.
func (w *Web) loadRuns(r *Request) (any, error) {
	v := &runList{Status: r.Query("status"), User: r.Query("user")}
	before, err := wire.ReadCursor(r.Request, 1)
	if err != nil {
		return nil, err
	}
	selected := run.Filter{Status: v.Status, User: v.User}
	page, err := w.Runs.List(r.Context(), selected, before[0], runRows)
	v.Runs, v.Next = page.Runs, nextPage(r, page.Next)
	if err != nil {
		return v, unlessNobody(v.User, err)
	}
	v.Sum, err = w.Runs.Sum(r.Context(), selected)
	return v, err
}

// runView is one run, as it is now or as it was after one of its events (At). Prev and Next step
// through the events, Older says that the beginning is not shown.
type runView struct {
	run.Run
	Steps  []runStep
	At     int64 // the event up to which it is shown, 0 for all
	Prev   int64
	Next   int64
	Shown  int64
	Answer string
	Failed string // why, when it did
	Usage  run.Numbered
	Older  bool // there are events before those that are shown
	// Handoffs are those that are for it.
	Handoffs []handoff.Handoff
	Tree     *runTree
}

// runTree is what a run has changed in its worktree.
type runTree struct {
	Dir, Branch string
	difference
}

// runStep is an action of the agent, from its start to its end. An action that never ended,
// because the run did, stays "running".
type runStep struct {
	N        int64
	Kind     string
	Title    string
	Status   string // running, done or failed
	Message  string
	Detail   string
	After    time.Duration // since the run was opened
	Took     time.Duration
	startsAt time.Time
}

// maxDetail is how many characters of an action's detail are shown; the ledger has all of it.
const maxDetail = 400

// maxSteps is how many steps a page shows, the newest ones.
const maxSteps = 80

// PageTitle is the beginning of the prompt.
func (v *runView) PageTitle() string { return cut(60, v.Prompt) }

// Spent is how much of the budget is used, in percent; 0 if there is no budget.
func (v *runView) Spent() int {
	if v.Budget.USD <= 0 {
		return 0
	}
	return int(min(100, 100*v.CostUSD/v.Budget.USD))
}

// loadRun reads a run and builds its steps from its events. Of a long run only the newest events
// are read, unless the address asks for an earlier moment (?at=N), which needs all before it.
func (w *Web) loadRun(r *Request) (any, error) {
	found, err := w.Runs.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v := &runView{Run: found}
	v.At, _ = strconv.ParseInt(r.Query("at"), 10, 64)
	from := int64(0)
	// The newest steps are wanted, and most steps have two to four events.
	if v.At == 0 && found.Events > 4*maxSteps { // each step has two events or more
		from, v.Older = found.Events-4*maxSteps, true
	}
	for {
		events, err := w.Runs.Events(r.Context(), found.ID, from)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			// The page shows the run as it was after that event.
			if v.At > 0 && e.N > v.At {
				break
			}
			v.addEvent(e)
		}
		if len(events) == 0 || v.At > 0 && events[len(events)-1].N >= v.At {
			break
		}
		from = events[len(events)-1].N
	}
	if len(v.Steps) > maxSteps {
		v.Steps, v.Older = v.Steps[len(v.Steps)-maxSteps:], true
	}
	v.Prev, v.Next = max(1, v.Shown-1), min(found.Events, v.Shown+1)
	v.Handoffs, err = w.handoffsFor(r.Context(), found.Workspace, found.ID)
	return v, err
}

// addEvent adds one event to the picture. The end of an action replaces its start, so that each
// action is one step.
func (v *runView) addEvent(e run.Numbered) {
	v.Shown = e.N
	if e.Usage.Turns > 0 || e.Usage.Model != "" { // the server ends a run that is lost, and has counted nothing
		v.Usage = e
	}
	var event struct {
		Type   string `json:"type"`
		Action *struct {
			ID     string   `json:"id"`
			Kind   string   `json:"kind"`
			Title  string   `json:"title"`
			Detail wire.Raw `json:"detail"`
		} `json:"action"`
		Phase   string `json:"phase"`
		OK      *bool  `json:"ok"`
		Message string `json:"message"`
		Answer  string `json:"answer"`
		Error   string `json:"error"`
	}
	if wire.UnmarshalPart(e.Event, &event) != nil {
		return
	}
	// The last event of a run, and the only one with an answer.
	if event.Type == "completed" {
		v.Answer, v.Failed = limit(event.Answer), limit(event.Error)
		return
	}
	if event.Action == nil {
		return
	}
	a := event.Action
	detail := ""
	if len(a.Detail) > 2 && string(a.Detail) != "null" {
		detail = cut(maxDetail, string(a.Detail))
	}
	step := runStep{
		N: e.N, Kind: a.Kind, Title: a.Title, Status: "running", Message: cut(300, event.Message),
		Detail: detail, After: e.At.Sub(v.OpenedAt), startsAt: e.At,
	}
	if v.Worktree && a.ID == engine.WorktreeAction {
		v.addTree(a.Detail)
		step.Detail = ""
	}
	// An end is matched with the last step, if that still runs and has the same title.
	if n := len(v.Steps) - 1; event.Phase != "started" && n >= 0 && v.Steps[n].Title == a.Title &&
		v.Steps[n].Status == "running" {
		step.N, step.After, step.startsAt = v.Steps[n].N, v.Steps[n].After, v.Steps[n].startsAt
		v.Steps = v.Steps[:n]
	}
	if event.Phase == "completed" {
		step.Took, step.Status = e.At.Sub(step.startsAt), "done"
		if event.OK != nil && !*event.OK {
			step.Status = "failed"
		}
	}
	v.Steps = append(v.Steps, step)
}

// addTree adds what was changed in the worktree of the run.
func (v *runView) addTree(detail wire.Raw) {
	var said struct {
		Worktree string `json:"worktree"`
		Branch   string `json:"branch"`
		Diff     string `json:"diff"`
		Cut      bool   `json:"cut"`
	}
	if wire.UnmarshalPart(detail, &said) != nil || said.Diff == "" {
		return
	}
	shown, cut := firstLines([]byte(said.Diff))
	v.Tree = &runTree{said.Worktree, said.Branch, difference{Rows: sideBySide(shown), Cut: cut || said.Cut}}
}

// cancelRun orders a run to stop. Its supervisor carries that out.
func (w *Web) cancelRun(r *Request) (Result, error) {
	at := Result{To: address.Run.At(r.PathValue("id"))}
	if _, err := w.Runs.Cancel(r.Context(), r.Who, r.PathValue("id"), r.Field("reason")); err != nil {
		return at, err
	}
	at.Flash = "The run is told to stop."
	return at, nil
}
