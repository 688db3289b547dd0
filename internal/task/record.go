package task

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/gate"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// recorded is the body of every entry about a task. An entry with an Input is something that
// happened: a document, a deadline, a look at git. The entries without one follow from it and are
// in the same transaction: implicit acks and the server's own escalations.
//
// Such an entry holds everything that its step depended on (Now, Agent, AskPlan, PlanOK, Git) and
// the task that it led to, so Replay can run the step again and compare. The JSON names are stored
// for ever; fields are only added.
type recorded struct {
	behalf.Of // on whose behalf the task is
	// What happened, and everything the step depended on. Empty in entries that follow from another.
	Input   amp.Kind `json:"input,omitzero"`
	Now     int64    `json:"now,omitzero"`
	By      amp.Role `json:"by,omitzero"`
	Agent   string   `json:"agent,omitzero"` // its id
	AskPlan bool     `json:"ask_plan,omitzero"`
	PlanOK  bool     `json:"plan_ok,omitzero"`
	Release string   `json:"release,omitzero"` // the gate that has approved the dispatch, which was kept
	Under   string   `json:"under,omitzero"`   // the handoff under which its sender acted
	Rules   int      `json:"rules,omitzero"`   // the version of the rules; see rulesByCommit
	// After is the entry that says how the task stood before, so that none can be left out. Entries of before there was
	// this member have none, and nor does the first of a task.
	After  int64         `json:"after,omitzero"`
	Git    *amp.GitFacts `json:"git,omitzero"`
	Build  *amp.Build    `json:"build,omitzero"`
	Lost   *amp.Lost     `json:"lost,omitzero"`
	Moved  *amp.Finding  `json:"moved,omitzero"`
	Unsent *amp.Unsent   `json:"unsent,omitzero"`
	// Successor is the id of the agent to which the admin has given a role.
	Successor string `json:"successor,omitzero"`
	// What the step led to beside the task, for the apply function.
	Warnings []amp.Problem `json:"warnings,omitempty"`
	Acked    []string      `json:"acked,omitempty"`
	Reopened []string      `json:"reopened,omitempty"`
	Closed   []amp.Closed  `json:"closed,omitempty"`
	Gates    []GateLink    `json:"gates,omitempty"`
	// How plans stand now, and for how many microseconds the approval of one that is kept will be good.
	Plans   []amp.PlanChange `json:"plans,omitempty"`
	GoodFor int64            `json:"good_for,omitzero"`
	// How the task stood before, so that the apply function need not read it.
	HadDue   bool            `json:"had_due,omitzero"` // something was due before
	Was      string          `json:"was,omitzero"`     // the status before, "" for a new task
	Decision *rulebook.Plain `json:"decision,omitzero"`
	Task     *amp.Task       `json:"task,omitzero"`   // as it stands afterwards; see encode
	Record   wire.Raw        `json:"record,omitzero"` // as it came; see encode

	// row and state save the apply function from decoding what was just encoded. Both are nil when
	// the entry was read from the ledger.
	row   *messageRow
	state []byte // the task, encoded
}

// The versions of the rules. Entries of version 0.1 have none: there an approval covered a risk, and an ack of anybody
// was good.
const (
	rulesByContent = 1 // an approval is of one dispatch
	rulesByClaim   = 2 // an ack claims the work, and executor and reviewer are two
	rulesByCommit  = 3 // what is said of commits is verified, unverified or failed, and what was reviewed completes
)

// GateLink says what a gate is about: the msg_id of an escalation or of a dispatch that is kept, or
// AboutPlan.
type GateLink struct {
	Gate  string `json:"gate"`
	About string `json:"about"`
}

// AboutPlan is what the gate of a plan was about in version 0.1. No msg_id looks like it.
const AboutPlan = "plan"

// encode writes the body with the document byte for byte. An encoder would reorder and reformat
// it, and then its sender's bytes could not be proved. The task is encoded once, for the body and
// for the row of its table.
func (b *recorded) encode() (ledger.Body, error) {
	rest := *b
	rest.Task, rest.Record = nil, nil
	text, err := wire.Marshal(&rest)
	if err == nil && b.Task != nil {
		b.state, err = wire.Marshal(b.Task)
	}
	if err != nil {
		return ledger.Body{}, err
	}
	return ledger.Body{
		Value: b,
		JSON:  wire.Splice(text, wire.Member{Name: "task", Value: b.state}, wire.Member{Name: "record", Value: b.Record}),
	}, nil
}

// refused is the body of task.refused: one line of the error log. The names are those of the
// protocol's error_log_entry schema.
type refused struct {
	Record     string        `json:"record"`
	ErrorID    string        `json:"error_id"`
	ReceivedAt time.Time     `json:"received_at"`
	Principal  string        `json:"principal"`
	Transport  string        `json:"transport"`
	SHA256     string        `json:"raw_sha256"`
	Raw        string        `json:"raw"`
	MsgID      *string       `json:"msg_id"`
	TaskID     *string       `json:"task_id"`
	Layer      amp.Layer     `json:"layer"`
	Errors     []amp.Problem `json:"errors"`
	Escalation *string       `json:"escalation_ref"`
	Warnings   []amp.Problem `json:"x_warnings,omitempty"`
	Gate       string        `json:"x_gate,omitempty"` // that decides about the dispatch, which is kept
	behalf.Of                // on whose behalf it was, or its task is
}

// ErrorRecord is what a sender hears of a document that was refused, and what GET /amp/errors
// lists.
type ErrorRecord refused

// Status is the HTTP status of the refusal, which follows from its layer and codes.
func (e *ErrorRecord) Status() int {
	return (&amp.Refusal{Layer: e.Layer, Problems: e.Errors}).Status()
}

// maxRaw is how many bytes of a refused document are kept. A refused document may be up to 1 MiB
// of anything; its SHA-256 identifies the rest.
const maxRaw = 4096

// newRefused makes the record of a refusal from a document that may be anything, even binary. All
// text from outside is cut and made valid, because PostgreSQL stores neither broken UTF-8 nor NUL.
func newRefused(p Party, raw []byte, r *amp.Refusal, now time.Time) refused {
	members := amp.Members(raw)
	sum := sha256.Sum256(raw)
	out := refused{
		Record: "error", ErrorID: id.New("error"), ReceivedAt: now, Principal: p.Identity.Actor(), Transport: p.Transport,
		SHA256: hex.EncodeToString(sum[:]), Layer: r.Layer,
	}
	for _, p := range r.Problems {
		p.Pointer, p.Detail, p.Expected = amp.Clip(p.Pointer), amp.Clip(p.Detail), amp.Clip(p.Expected)
		out.Errors = append(out.Errors, p)
	}
	// The cut may split a character, hence ToValidUTF8 after it.
	shown := behalf.Cut(raw)
	shown = shown[:min(len(shown), maxRaw)]
	out.Raw = strings.ReplaceAll(strings.ToValidUTF8(string(shown), "\uFFFD"), "\x00", "\uFFFD")
	if text, _ := members["msg_id"].(string); len(text) <= maxID && text != "" {
		out.MsgID = &text
	}
	if text, _ := members["task_id"].(string); isTaskID(text) {
		out.TaskID = &text
	}
	return out
}

// maxID is the longest msg_id that a refusal repeats. Valid ids are far shorter.
const maxID = 200

// isTaskID reports whether text has the form T-YYYY-NNN, with three to six digits (TSK-10). It
// stands here, and not in a schema, because a refused document has not passed one.
func isTaskID(text string) bool {
	year, number, ok := strings.Cut(strings.TrimPrefix(text, "T-"), "-")
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	return ok && strings.HasPrefix(text, "T-") && len(year) == 4 && len(number) >= 3 && len(number) <= 6 && digits(year) &&
		digits(number)
}

// work is one input on its way through a transaction: what came, what was found out before, and
// what the transaction has read.
type work struct {
	tasks  *Tasks
	tx     *ledger.Tx
	party  Party
	in     amp.Input
	world  amp.World
	before *amp.Task
	after  int64 // the entry that says how it stood before
	hooks  map[amp.Role]Webhook
	plan   *PlanAnswer     // how the dispatch stands, if it was kept before
	rule   *policy.Verdict // what the policy says of a dispatch, nil if it was not asked
	gate   *gate.Gate      // that has approved the dispatch, if it was kept and goes out now

	decision rulebook.Decision // of the policy, about a dispatch

	named  behalf.Named  // for whom the document says it is
	called string        // the id of the user that it names, "" if there is none
	behalf roster.Behalf // for whom its sender acts
	under  string        // the handoff under which it acts, "" for none
	within string        // the one to a process in which it acts as another agent, "" for none
	token  *amp.Refusal  // of a sender who shows a token that is not valid here, nil for others
	run    string        // the run in which it acts, "" for none

	handing handing // what becomes of the handoff of the task
	opened  string  // the handoff that was opened
}

// load reads the task and, with one statement, the messages that the input refers to and the webhooks.
// The ledger's transaction is serial: every round trip in it is waited for by all other writers.
func (w *work) load() error {
	w.world.Now = w.tx.Now().UnixMicro()
	w.world.Refs, w.hooks = map[string]amp.Ref{}, map[amp.Role]Webhook{}
	w.world.Taken = w.idTaken
	var err error
	if w.before, w.after, err = provenTask(w.tx.Prover(), w.party.Workspace, w.in.TaskID); err != nil {
		return err
	}
	text := "SELECT 2, role, url, '', FALSE, generation FROM task_hook WHERE workspace = $1"
	args := []any{w.party.Workspace}
	if refs := w.in.Refs(); len(refs) > 0 {
		marks := store.Marks(2, len(refs))
		text += " UNION ALL SELECT 1, msg_id, task_id, receiver || ' ' || hash || ' ' || agent, acked, 0 FROM " +
			"task_message WHERE workspace = $1 AND msg_id IN (" + marks + ")" +
			" UNION ALL SELECT 3, msg_id, task_id, gate || ' ' || digest || ' ' || agent || ' ' || state, FALSE, 0 FROM " +
			"task_plan WHERE workspace = $1 AND msg_id IN (" + marks + ")"
		for _, one := range refs {
			args = append(args, one)
		}
	}
	if err := store.Each(w.tx.Query, w.loadRow, text, args...); err != nil {
		return err
	}
	return w.provePlan()
}

// loadRow takes one row of load's UNION; the first column says which part it belongs to.
func (w *work) loadRow(scan func(...any) error) error {
	var what, number int64
	var first, second, third string
	var acked bool
	if err := scan(&what, &first, &second, &third, &acked, &number); err != nil {
		return err
	}
	switch what {
	case 1:
		part := strings.SplitN(third, " ", 3)
		w.world.Refs[first] = amp.Ref{
			TaskID: second, To: amp.Role(part[0]), Acked: acked, Hash: part[1], Agent: part[2],
		}
	case 3:
		part := strings.SplitN(third, " ", 4)
		if w.in.Message != nil && first == w.in.Message.MsgID {
			w.plan = &PlanAnswer{Gate: part[0], State: amp.PlanState(part[3])}
		}
		if _, sent := w.world.Refs[first]; !sent {
			w.world.Refs[first] = amp.Ref{TaskID: second, Hash: part[1], Agent: part[2], Kept: true}
		}
	default:
		w.hooks[amp.Role(first)] = Webhook{URL: second, Generation: int(number)}
	}
	return nil
}

// idTaken reports whether a message has the id. An error counts as "free": a database that is
// broken fails the commit anyway, and the primary key refuses a second row.
func (w *work) idTaken(msgID string) bool {
	var one int
	return w.tx.QueryRow("SELECT 1 FROM task_message WHERE workspace = $1 AND msg_id = $2",
		[]any{w.party.Workspace, msgID}, &one) == nil
}

// trace is the ledger trace that ties together everything about a task, gates and deliveries
// included. Bundle collects by it, and Verify checks it.
func (w *work) trace() string { return "task:" + w.party.Workspace + ":" + w.in.TaskID }

// record writes what a step has led to. The order matters: the entry of the input comes first,
// then what follows from it, then the gates that it names (their rows need the ids that the entry
// holds), then deliveries, the handoff to the executor, and last the gates that are settled.
func (w *work) record(next *amp.Task, out amp.Outcome, decision *rulebook.Plain) error {
	kind, actor := kindNoted, "system"
	main := &recorded{
		Input: w.in.Kind, Now: w.world.Now, By: w.in.From, Agent: w.world.Agent, AskPlan: w.world.AskPlan,
		PlanOK: w.world.PlanOK, Git: w.world.Git, Rules: rulesByCommit, Successor: w.world.Successor,
		Build: w.in.Build, Lost: w.in.Lost, Moved: w.in.Moved, Unsent: w.in.Unsent, Warnings: out.Warnings,
		Acked: out.Acked, Reopened: out.Reopened, Closed: out.Closed, Plans: out.Plans, Task: next, Decision: decision,
		Record: w.in.Raw, row: new(messageRow), Under: w.under, After: w.after,
	}
	if w.gate != nil {
		main.Release = w.gate.ID
	}
	// The apply function needs to know whether a timer may have to be cleared, and which status count
	// goes down, without reading the row.
	if w.before != nil {
		main.HadDue, main.Was = w.before.Due() > 0, w.before.Status()
	}
	switch w.in.Kind {
	case amp.InMessage:
		m := w.in.Message
		kind = kinds[m.Type]
		main.row = &messageRow{
			MsgID: m.MsgID, Type: string(m.Type), To: string(m.To), RequiresAck: m.RequiresAck,
			hash: w.in.Hash,
		}
	case amp.InAck:
		kind = kindAcked
	case amp.InHeartbeat:
		kind = kindHeard
	case amp.InInstruction:
		kind = kindInstructed
		main.row = &messageRow{MsgID: w.in.Instruction.ID, Type: "admin_instruction", hash: w.in.Hash}
	case amp.InRefusal:
		if out.AskPlan {
			kind, main.GoodFor = kindKept, w.window().Microseconds()
		}
	default:
	}
	// What has no document is the server's own doing.
	if w.in.Raw != nil {
		actor = w.party.Identity.Actor()
	}
	openings, err := w.openings(next, out)
	if err != nil {
		return err
	}
	for _, o := range openings {
		main.Gates = append(main.Gates, o.link)
	}
	if err := w.append(kind, actor, main); err != nil {
		return err
	}
	if err := w.recordConsequences(out); err != nil {
		return err
	}
	for _, o := range openings {
		o.due.Open(w.tx, o.link.Gate, w.party.Workspace, w.trace())
	}
	if err := w.queueWebhooks(next, out); err != nil {
		return err
	}
	if w.opened, err = w.handOn(context.Background(), next); err != nil {
		return err
	}
	return w.settleGates(out)
}

// recordConsequences appends what the server adds: implicit acks (TSK-51), decisions about plans for
// their coordinators, and escalations.
func (w *work) recordConsequences(out amp.Outcome) error {
	for i := range out.Acks {
		raw, err := wire.Marshal(&out.Acks[i])
		if err != nil {
			return err
		}
		if err := w.append(kindAcked, "system", &recorded{Record: raw, row: new(messageRow)}); err != nil {
			return err
		}
	}
	for _, m := range out.Decisions {
		row := &messageRow{
			MsgID: m.MsgID, Type: string(m.Type), To: string(m.To), RequiresAck: true, agent: m.Agent,
			hash: amp.ContentHash(m.Raw),
		}
		if err := w.append(kindTold, "system", &recorded{By: amp.System, Record: m.Raw, row: row}); err != nil {
			return err
		}
	}
	for _, m := range out.Raised {
		row := &messageRow{MsgID: m.MsgID, Type: string(m.Type), To: string(m.To), hash: amp.ContentHash(m.Raw)}
		if err := w.append(kindEscalated, "system", &recorded{By: amp.System, Record: m.Raw, row: row}); err != nil {
			return err
		}
	}
	return nil
}

// append appends one entry about the task. All entries of a task have its id as subject and the
// same trace.
func (w *work) append(kind, actor string, b *recorded) error {
	b.Of = w.of()
	body, err := b.encode()
	if err != nil {
		return err
	}
	w.tx.Append(ledger.Event{
		Workspace: w.party.Workspace, Kind: kind, Actor: actor, Subject: w.in.TaskID,
		Trace: w.trace(), Body: body,
	})
	return nil
}

// takeFound takes an input that the server has found by itself: a deadline, a check, a moved
// branch. It runs in the caller's transaction. A task that is gone is not an error, since timers
// may fire late. A step that changes nothing leaves no entry, so a timer that fires twice leaves
// one.
func (s *Tasks) takeFound(tx *ledger.Tx, workspace string, in amp.Input, facts *amp.GitFacts) error {
	w := &work{tasks: s, tx: tx, party: Party{Workspace: workspace, Role: amp.System}, in: in}
	w.world.Git = facts
	if err := w.load(); err != nil {
		return err
	}
	if w.before == nil && in.Kind != amp.InRefusal {
		return nil
	}
	next, out, refusal := s.Policy.Step(w.before, in, w.world)
	if refusal != nil {
		return errors.New(refusal.String())
	}
	if next == nil || next == w.before || len(out.Raised) == 0 && in.Kind == amp.InTick {
		return nil
	}
	return w.record(next, out, nil)
}
