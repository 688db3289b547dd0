package web

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// boardRows is how many tasks the board shows, most recently changed first.
const boardRows = 40

// board is the tasks of one workspace, in columns by how far they are. Dragging is not offered:
// only messages and instructions move a task.
type board struct {
	place
	User    string
	Columns []column
	Total   int
	Next    string
}

// column is one column of the board. Tasks counts all tasks in it, Cards shows some.
type column struct {
	Name, Meaning string
	Tasks         int64 // that stand there, of which the cards are those that changed last
	Cards         []*card
}

// card is a task as the board shows it. LockAt is how many rejects in a row lock it.
type card struct {
	amp.Record
	About  string // what the dispatch says it is
	Holder string // who has the ball
	Due    *time.Time
	LockAt int
}

// columns are the board's, with the statuses that belong to each. Every status has a column.
var columns = []struct {
	name, meaning string
	statuses      []string
}{
	{"Held", "waits for a person", []string{amp.HoldLocked, amp.HoldSuspended, amp.HoldAdmin}},
	{"To do", "not begun", []string{string(amp.Planning), string(amp.Queued), string(amp.Dispatched)}},
	{"Working", "the executor's turn", []string{string(amp.Executing), string(amp.Rework)}},
	{
		"In review", "reported, and looked at",
		[]string{
			string(amp.Reported), string(amp.Triage), string(amp.ReviewRequested), string(amp.Reviewing),
			string(amp.VerdictReported),
		},
	},
	{"Done", "completed or ended", []string{string(amp.Completed), string(amp.Approved), string(amp.Terminated)}},
}

// holders are the roles that have the turn at each status.
var holders = map[string]string{
	string(amp.Planning): "coordinator", string(amp.Queued): "coordinator", string(amp.Rework): "coordinator",
	string(amp.Dispatched): "executor", string(amp.Executing): "executor",
	string(amp.Reported): "coordinator", string(amp.Triage): "coordinator", string(amp.ReviewRequested): "reviewer",
	string(amp.Reviewing): "reviewer", string(amp.VerdictReported): "coordinator",
	amp.HoldLocked: "admin", amp.HoldSuspended: "admin", amp.HoldAdmin: "admin",
}

// loadBoard reads the board. The numbers of the columns are counted over all tasks, the cards are
// the most recently changed ones.
func (w *Web) loadBoard(r *Request) (any, error) {
	b := &board{User: r.Query("user")}
	var err error
	if b.place, err = w.place(r); err != nil {
		return nil, err
	}
	// Reading as an operator: a viewer may look at the board, too.
	who, err := task.Reader(r.Context(), r.Who, b.Workspace, task.OverHTTP)
	if err != nil {
		return nil, err
	}
	page, err := w.Tasks.List(r.Context(), who, task.Filter{User: b.User}, r.Query("cursor"), boardRows)
	if b.User != "" && fault.Is(err, fault.NotFound) { // there is no such user
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	b.Total, b.Next = len(page.Tasks), nextPage(r, page.Next)
	for _, c := range columns {
		b.Columns = append(b.Columns, column{Name: c.name, Meaning: c.meaning})
	}
	// The numbers on the columns count all tasks, the cards only those of this page.
	for status, n := range page.Counts {
		b.Columns[columnOf(status)].Tasks += n
	}
	for _, t := range page.Tasks {
		one := newCard(t)
		if one.About, err = w.aboutTask(r, t); err != nil {
			return nil, err
		}
		i := columnOf(t.Status)
		b.Columns[i].Cards = append(b.Columns[i].Cards, one)
	}
	return b, nil
}

// aboutTask is the description in the newest dispatch of a task.
func (w *Web) aboutTask(r *Request, t amp.Record) (string, error) {
	dispatched, err := w.ledger.Entries(r.Context(),
		ledger.Query{Workspace: t.Workspace, Subject: t.TaskID, Kinds: []string{"task.dispatched"}, Newest: true, Limit: 1})
	if err != nil || len(dispatched) == 0 || dispatched[0].Body == nil {
		return "", err
	}
	var body struct {
		Record taskMessage `json:"record"`
	}
	err = wire.UnmarshalPart(dispatched[0].Body, &body)
	return body.Record.Payload.Description, err
}

// columnOf is the column of a status. An unknown one goes to "Held", where people look.
func columnOf(status string) int {
	for i, c := range columns {
		if slices.Contains(c.statuses, status) {
			return i
		}
	}
	return 0
}

// newCard makes the card of a task. Due is its earliest deadline: an ack, or a sign of life.
func newCard(t amp.Record) *card {
	c := &card{Record: t, Holder: holders[t.Status], LockAt: amp.Defaults().LockAt}
	earliest := func(at *time.Time) {
		if at != nil && (c.Due == nil || at.Before(*c.Due)) {
			c.Due = at
		}
	}
	// The countdown on the card is the next thing that would escalate.
	for _, a := range t.Awaiting {
		earliest(a.Due)
	}
	for _, at := range t.Beats {
		earliest(&at)
	}
	return c
}

// Locks are the steps of the meter that leads to a lock: true for each reject in a row so far.
func (c *card) Locks() []bool {
	steps := make([]bool, c.LockAt)
	for i := range steps {
		steps[i] = int64(i) < c.Streak
	}
	return steps
}

// Trouble is what the first open escalation is about.
func (c *card) Trouble() string {
	for _, o := range c.Open {
		return title(strings.ReplaceAll(o.Type, "_", " "))
	}
	return ""
}

// SubtaskIDs are the ids of the subtasks, in order.
func (c *card) SubtaskIDs() []string { return slices.Sorted(maps.Keys(c.Subtasks)) }

// readMessages decodes the messages of a task as far as people see them, oldest first. The admin's
// instructions are shown among them.
func readMessages(stored []amp.Stored) (all []taskMessage) {
	for _, one := range stored {
		m := taskMessage{At: one.ReceivedAt, Seq: one.Seq, Acked: one.Acked}
		if err := wire.UnmarshalPart(one.Message, &m); err != nil {
			continue // a message that was erased
		}
		// Instructions have no type and no receiver of their own.
		if m.Type == "" && m.Action != "" { // what the admin said is no message, and stands among them
			m.Type, m.To = "instruction", "everybody"
		}
		all = append(all, m)
	}
	return all
}

// taskMessage is one of the five messages, or an instruction, as far as people see it.
type taskMessage struct {
	At    time.Time `json:"-"`
	Seq   int64     `json:"-"`
	Acked bool      `json:"-"`

	MsgID   string      `json:"msg_id"`
	Type    string      `json:"type"`
	From    string      `json:"from"`
	To      string      `json:"to"`
	Payload taskPayload `json:"payload"`
	Action  string      `json:"action"` // of an instruction, with its note
	Note    string      `json:"note"`
}

// taskPayload has the members of all five payloads that are shown.
type taskPayload struct {
	Description string   `json:"description"`
	Criteria    []string `json:"acceptance_criteria"`
	Completion  string   `json:"completion_status"`
	Commit      string   `json:"commit_hash"`
	Diff        struct {
		Files          []string `json:"files_changed"`
		Added, Removed float64
	} `json:"diff_summary"`
	Assessment struct {
		Met   []*bool  `json:"criteria_met"`
		Notes []string `json:"notes"`
	} `json:"self_assessment"`
	Notes    string `json:"coordinator_notes"`
	DiffURL  string `json:"diff_url"`
	Decision string `json:"decision"`
	Results  []struct {
		Criterion string `json:"criterion"`
		Passed    *bool  `json:"passed"`
		Evidence  string `json:"evidence"`
	} `json:"criteria_results"`
	Issues []struct {
		Severity    string `json:"severity"`
		File        string `json:"file"`
		Description string `json:"description"`
		Fix         string `json:"suggested_fix"`
	} `json:"issues"`
	Confidence float64 `json:"confidence"`
	Severity   string  `json:"severity"`
	Note       string  `json:"note"` // of what was decided about a plan
}

// Say is the message in one line.
func (m taskMessage) Say() string {
	p := m.Payload
	if m.Action != "" {
		return strings.TrimSuffix(strings.ReplaceAll(m.Action, "_", " ")+": "+m.Note, ": ")
	}
	switch amp.Type(m.Type) {
	case amp.TypeResult:
		return strings.TrimSpace(fmt.Sprintf("%s, %s in %s", p.Completion, plural(len(p.Diff.Files), "file"),
			cmp.Or(p.Commit, "no commit")))
	case amp.TypeRequest:
		return cmp.Or(p.Notes, "asks for a review")
	case amp.TypeDecision:
		return strings.TrimSuffix("The plan is "+p.Decision+": "+p.Note, ": ")
	case amp.TypeVerdict:
		text := fmt.Sprintf("%s, %.0f %% sure", p.Decision, 100*p.Confidence)
		if len(p.Issues) > 0 {
			text += ": " + p.Issues[0].Description
		}
		return text
	}
	return p.Description
}

// aboutOf is the description in the newest dispatch among the messages.
func aboutOf(messages []taskMessage) (about string) {
	for _, m := range messages {
		if amp.Type(m.Type) == amp.TypeDispatch {
			about = m.Payload.Description
		}
	}
	return about
}

// taskView is one task: its messages in lanes by role, the matrix of criteria, who plays which
// role, and in one sentence why it is stuck.
type taskView struct {
	*card
	Lanes    []string
	Messages []taskMessage
	Criteria []criterion
	Seats    []seat
	Stuck    string
	Actions  []string
	Older    bool              // there are messages before those that are shown
	Handoffs []handoff.Handoff // that are for it
}

// maxSaid is how many messages a page shows, the newest.
const maxSaid = 60

// criterion is a row of the matrix: what the executor claims, and what the reviewer found. Unknown
// is an answer of its own, and the one that reviewers should look at.
type criterion struct {
	Text                string
	Claimed, Found      string // yes, no, unknown, or "" while nothing was said
	ClaimNote, Evidence string
}

// mark is an answer to a criterion in one word; nil means "could not be verified".
func mark(met *bool) string {
	switch {
	case met == nil:
		return "unknown"
	case *met:
		return "yes"
	}
	return "no"
}

// seat is who plays a role in the task.
type seat struct {
	Role, Agent string
	Lost        bool
}

// PageTitle is the task's id.
func (t *taskView) PageTitle() string { return t.TaskID }

// loadTask reads a task with its messages.
func (w *Web) loadTask(r *Request) (any, error) {
	who, err := task.Reader(r.Context(), r.Who, r.PathValue("workspace"), task.OverHTTP)
	if err != nil {
		return nil, err
	}
	found, err := w.Tasks.Show(r.Context(), who, r.PathValue("id"), true)
	if err != nil {
		return nil, err
	}
	t := &taskView{
		card: newCard(found), Lanes: []string{"admin", "coordinator", "executor", "reviewer"},
		Messages: readMessages(found.Messages), Actions: taskOrders,
	}
	// The matrix and the description need all messages, so they are cut afterwards.
	t.Older = len(t.Messages) > maxSaid
	t.About, t.Criteria, t.Stuck = aboutOf(t.Messages), matrix(t.Record.Criteria, t.Messages), t.stuck(w.Now())
	t.Messages = t.Messages[max(0, len(t.Messages)-maxSaid):]
	var ids []string
	for _, s := range t.Record.Seats {
		ids = append(ids, s.Agent)
	}
	// Seats hold ids; an agent that was removed has no name any more.
	names, err := w.Roster.AgentNames(r.Context(), ids)
	if err != nil {
		return nil, err
	}
	for _, role := range amp.AgentRoles {
		if s, ok := t.Record.Seats[role]; ok {
			t.Seats = append(t.Seats, seat{string(role), cmp.Or(names[s.Agent], s.Agent), s.Lost})
		}
	}
	t.Handoffs, err = w.handoffsFor(r.Context(), found.Workspace, found.TaskID)
	return t, err
}

// matrix is the last answer to each criterion. A new result clears what the reviewer found, since
// that was about another result.
func matrix(texts []string, messages []taskMessage) []criterion {
	rows := make([]criterion, len(texts))
	for i, text := range texts {
		rows[i].Text = text
	}
	for _, m := range messages {
		for i := range rows {
			row := &rows[i]
			switch p := m.Payload; {
			case amp.Type(m.Type) == amp.TypeResult && i < len(p.Assessment.Met):
				row.Claimed, row.ClaimNote = mark(p.Assessment.Met[i]), ""
				row.Found, row.Evidence = "", "" // it was about another result
				if i < len(p.Assessment.Notes) {
					row.ClaimNote = p.Assessment.Notes[i]
				}
			case amp.Type(m.Type) == amp.TypeVerdict && i < len(p.Results):
				row.Found, row.Evidence = mark(p.Results[i].Passed), p.Results[i].Evidence
			}
		}
	}
	return rows
}

// stuck says in one sentence why nothing happens, or what has to happen next.
func (t *taskView) stuck(now time.Time) string {
	// An open escalation outweighs everything else: without an answer nothing moves.
	for _, o := range t.Open {
		return fmt.Sprintf("Stuck: the %s has raised %s (%s), and a person has to answer it.", o.By,
			strings.ReplaceAll(o.Type, "_", " "), o.Severity)
	}
	for _, a := range t.Awaiting {
		if a.Late {
			return fmt.Sprintf("Stuck: the %s has not acknowledged its message in time.", a.To)
		}
	}
	for _, role := range slices.Sorted(maps.Keys(t.Beats)) {
		if now.After(t.Beats[role]) {
			return fmt.Sprintf("Stuck: the %s gave no sign of life in time.", role)
		}
	}
	return t.Waits
}

// Lane reports whether a message belongs in a column of the timeline. The server speaks where the
// admin does.
func (m taskMessage) Lane(role string) bool {
	return m.From == role || m.From == string(amp.System) && role == string(amp.Admin)
}

// taskOrders are the instructions that the page offers. The task refuses what is not possible now,
// with a reason.
var taskOrders = []string{
	"resume", "suspend", "terminate", "approve_plan", "reject_plan", "uphold_verdict",
	"override_verdict", "reassign",
}

// instruct sends an instruction of the admin. A resume answers the escalations that the page
// showed (TSK-17), which the form names.
func (w *Web) instruct(r *Request) (Result, error) {
	workspace, id := r.PathValue("workspace"), r.PathValue("id")
	to := Result{
		To:    address.Task.At(workspace, id),
		Flash: "Told: " + strings.ReplaceAll(r.Field("action"), "_", " ") + ".",
	}
	who, err := task.Speaker(r.Context(), r.Who, workspace, task.OverHTTP)
	if err != nil {
		return to, err
	}
	// The server fills in ids, time and actor, as for any short instruction.
	order := map[string]any{"action": r.Field("action"), "channel": "dashboard"}
	for _, name := range []string{"note", "target", "new_decision"} {
		if value := r.Field(name); value != "" {
			order[name] = value
		}
	}
	// The form carries the escalations that the page showed, so nothing unread is answered.
	if r.Field("action") == "resume" {
		order["escalation_refs"], order["reset_reject_count"] = r.PostForm["ref"], true
	}
	text, err := wire.Marshal(order)
	if err != nil {
		return to, err
	}
	_, refused, err := w.Tasks.Send(r.Context(), who, task.Document{Kind: amp.InInstruction, About: id, Raw: text})
	if err == nil && refused != nil {
		err = whyRefused(refused)
	}
	return to, err
}

// whyRefused turns a refusal of a task into an error for people.
func whyRefused(refused *task.ErrorRecord) error {
	var why []string
	for _, p := range refused.Errors {
		why = append(why, strings.TrimSpace(p.Detail+" "+p.Expected))
	}
	return fault.New(fault.Conflict, "The task refuses this: %s", strings.Join(why, " "))
}
