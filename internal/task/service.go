package task

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Name is the protocol's name in rules (event.protocol) and in gate.Origin.Protocol. It is stored
// in entries, so it never changes.
const Name = "task"

// Protocol describes AMP/1.0 tasks for the server's list of protocols.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Tasks", Migrations: Migrations, Projection: Projection(),
		Readers: Readers(),
	}
}

// Options are what an operator configures. They are read once, when the server starts.
type Options struct {
	Policy amp.Policy
	// RepoRoots are the folders below which repositories are looked at. WatchEvery is how often the
	// repositories of tasks are looked at again; 0 is never.
	RepoRoots  []string
	WatchEvery time.Duration
	RequireGit bool   // claims about commits that nobody can verify are refused
	Mirror     string // the folder of the mirror, "" for none
}

// Tasks is the service: it takes documents, keeps the state of tasks, and answers questions about
// them. It is safe for concurrent use. All state is in the database; the only thing in memory is
// the list of calls that wait for messages.
type Tasks struct {
	Options
	core protocol.Core
	news *ledger.Waiters // calls that wait for messages, by workspace
	told *ledger.Waiters // for instructions, which may have approved a plan
}

// New makes the service. The core's ledger must have Projection among its projections. New
// registers the service with the gates, so it must be called before anything runs.
func New(core protocol.Core, o Options) *Tasks {
	apply := Projection().Apply
	// Every entry about tasks wakes the calls of its workspace, which then read their inboxes. Waking
	// too often costs a query; waking too rarely would lose a message until the next one.
	ours := func(e *ledger.Entry) string {
		if apply[e.Kind] != nil {
			return e.Workspace
		}
		return ""
	}
	s := &Tasks{Options: o, core: core, news: core.Ledger.Waiters(ours), told: core.Ledger.Waiters(instructions)}
	core.Gates.ProveApprovals(Name, readApproval)
	core.Gates.OnResolved(Name, s.applyDecision)
	return s
}

// Party is who sends a document, as their key says. Nothing in it comes from the document.
type Party struct {
	Identity  roster.Identity
	Role      amp.Role
	Workspace string
	Transport string // OverHTTP or OverMCP
	// Claim is what the call itself says of its handoff, beside the document.
	Claim policy.Claim
}

// RoleOf is the role that a caller plays: an operator is the admin, an agent what its label says.
// the role is never taken from the document. A viewer has none, since every role may write.
func RoleOf(who roster.Identity) (amp.Role, error) {
	if who.Kind == roster.HolderOperator {
		if !who.Role.Allows(roster.Operator) {
			return "", fault.New(fault.Forbidden,
				"A viewer may read tasks and not write in them. Ask an admin for the role operator.")
		}
		return amp.Admin, nil
	}
	for _, r := range amp.AgentRoles {
		if who.Labels[roster.RoleLabel] == string(r) {
			return r, nil
		}
	}
	return "", fault.New(fault.Forbidden,
		"This agent has no role in tasks. An operator gives it one: PATCH /ops/agents/%s with "+
			"{\"labels\":{\"%s\":\"executor\"}}, or coordinator, or reviewer.", who.Name, roster.RoleLabel)
}

// Answer is what the sender hears of a document that was accepted: that it is on disk, and how the
// task stands now. A duplicate gets the same form, with today's status.
type Answer struct {
	Status     string `json:"status"` // accepted or duplicate
	TaskID     string `json:"task_id"`
	MsgID      string `json:"msg_id,omitempty"`
	TaskStatus string `json:"task_status"`
	Generation int64  `json:"generation,omitempty"` // of the sender's lease on its role
	// Claim is the x_claim, or the id, of the ack by which the sender's role is held: another than one's own says that
	// another process of the agent has the work.
	Claim       string        `json:"claim,omitempty"`
	Warnings    []amp.Problem `json:"warnings"`
	Escalations []string      `json:"escalations,omitempty"` // that the server has raised
	Plan        *PlanAnswer   `json:"plan,omitempty"`        // of a dispatch that was kept until it is approved
	ReceivedAt  time.Time     `json:"received_at"`
	// Handoff is what the executor was handed with the task.
	Handoff *handoff.Handed `json:"handoff,omitempty"`
}

// Duplicate is the status of a document that was stored before. Clients that lost an
// answer send again, so it is a success.
const Duplicate = "duplicate"

// Take takes one document through all layers. There are three outcomes, and exactly one of them
// holds: the document is recorded with everything that follows from it (Answer); it is refused,
// and the refusal is recorded (ErrorRecord); or nothing has happened (error).
//
// What needs time is done before the transaction: reading the document, asking the policy, and
// looking at git. The transaction then checks against the task as it stands. What git said may be
// out of date by then, by milliseconds; the watcher (watch.go) catches what slips through.
func (s *Tasks) Take(ctx context.Context, p Party, kind amp.Kind, raw []byte) (Answer, *ErrorRecord, error) {
	said := named(raw).Or(behalf.Named{Claim: p.Claim})
	raw = behalf.Cut(raw) // whoever gets the document must not get the token
	in, refusal := s.Policy.Read(kind, raw)
	if refusal == nil {
		refusal = p.maySend(in)
	}
	if refusal == nil {
		refusal = checkNamed(raw)
	}
	refused := rejection{party: p, kind: kind, raw: raw, refusal: refusal, warnings: in.Warnings}
	if refusal != nil {
		return s.recordRefusal(ctx, refused)
	}
	w := work{tasks: s, party: p, in: in, named: said, world: amp.World{Agent: p.Identity.ID}}
	// The admin holds no seat: any operator may write next.
	if p.Role == amp.Admin {
		w.world.Agent = ""
	}
	var answer Answer
	var wrong *ErrorRecord
	var err error
	if refused.refusal, err = s.findUser(ctx, &w); err == nil && refused.refusal == nil {
		refused.refusal, err = s.findSuccessor(ctx, &w)
	}
	if err != nil {
		return answer, nil, err
	}
	if refused.work = &w; refused.refusal != nil {
		return s.recordRefusal(ctx, refused)
	}
	d, err := s.decide(ctx, &w)
	if err != nil {
		return answer, nil, err
	}
	err = rulebook.Settle(d, func(d rulebook.Decision) (err error) {
		answer, wrong, err = s.takeDecided(ctx, w, d, refused)
		return err
	})
	return answer, wrong, err
}

// findSuccessor finds the agent to which the admin gives a role. It has to play that role.
func (s *Tasks) findSuccessor(ctx context.Context, w *work) (*amp.Refusal, error) {
	i := w.in.Instruction
	if i == nil || i.Agent == "" {
		return nil, nil
	}
	expected := "an agent of the workspace that plays the role; `signalbox agents ls` lists them"
	who, err := s.core.Roster.ByID(ctx, w.party.Workspace, i.Agent)
	if fault.Is(err, fault.NotFound) {
		return amp.Refuse(amp.LayerContext, amp.RefUnresolved, "/x_agent", "There is no such agent.", expected, nil), nil
	}
	if err != nil {
		return nil, err
	}
	if i.Action != "reassign" || who.Labels[roster.RoleLabel] != string(i.Target) {
		return amp.Refuse(amp.LayerContext, amp.RefMismatch, "/x_agent", "The role of that agent is not "+string(i.Target)+
			".", expected, nil), nil
	}
	w.world.Successor = who.ID
	return nil, nil
}

// takeDecided takes a document as the policy has decided. refused is its refusal, without the reason. With
// *rulebook.StaleError nothing was written.
func (s *Tasks) takeDecided(ctx context.Context, w work, d rulebook.Decision, refused rejection) (Answer, *ErrorRecord,
	error,
) {
	refusal, err := s.heed(ctx, &w, d)
	if err != nil {
		return Answer{}, nil, err
	}
	if refused.refusal = refusal; refusal != nil {
		return s.recordRefusal(ctx, refused)
	}
	// Git may take seconds. No transaction is open yet, so nobody waits for it.
	w.world.Git = s.lookAtGit(ctx, &w)
	var answer Answer
	var wrong *ErrorRecord
	handed := w.under
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		// The ledger runs a function again when its batch was rolled back, so each run gets its own copy
		// of the work and leaves nothing behind in the caller's.
		w := w // a function may run twice
		w.tx = tx
		if err := w.recheck(); err != nil {
			return err
		}
		answer, wrong, err = w.take(ctx)
		handed = cmp.Or(w.opened, handed)
		return err
	})
	s.core.Handoffs.Forget()
	if w.party.Role == amp.Executor && err == nil && wrong == nil {
		answer.Handoff = s.core.Handoffs.Give(handed)
	}
	// Two nodes may insert the same msg_id in the same moment. The sender's second try finds the
	// first one and gets "duplicate".
	if store.IsUnique(err) {
		return Answer{}, nil,
			fault.Wrap(err, fault.Conflict, "The same message arrived twice at the same moment. Send it again.")
	}
	return answer, wrong, err
}

// maySend refuses a document of another role than the sender's, and what a suspended agent sends.
// Such an agent may still escalate: R-515 forbids silence, and an escalation changes nothing but
// who has to look.
func (p Party) maySend(in amp.Input) *amp.Refusal {
	if refusal := amp.MayPlay(in, p.Role); refusal != nil {
		return refusal
	}
	if p.Identity.Suspended && !in.IsEscalation() {
		return amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "", "This agent is suspended.",
			"nothing until an operator resumes it; an escalation is taken", nil)
	}
	return nil
}

// take runs one step inside the transaction and writes what it leads to. Exactly one of the three
// results is set, as in Take.
func (w *work) take(ctx context.Context) (Answer, *ErrorRecord, error) {
	if err := w.load(); err != nil {
		return Answer{}, nil, err
	}
	// The only place where a document changes a task.
	next, out, refusal := w.tasks.Policy.Step(w.before, w.in, w.world)
	if other := w.checkUser(); refusal == nil && !out.Duplicate {
		refusal = other
	}
	// Who has lost a task has lost what was handed on with it too. That the task is lost says more.
	refusal = cmp.Or(refusal, w.token)
	if refusal == nil && !out.Duplicate || refusal != nil && refusal.Has(amp.PlanNotApproved) {
		// A plan that cannot go out as it is need not be approved.
		other, err := w.planHandoff(ctx, next)
		if err != nil {
			return Answer{}, nil, err
		}
		refusal = cmp.Or(other, refusal)
	}
	if refusal != nil {
		record, err := w.tasks.writeRefusal(w.tx, rejection{
			work: w, party: w.party, kind: w.in.Kind, raw: w.in.Raw, refusal: refusal, warnings: out.Warnings,
			rule: w.rule, decision: w.plain(),
		})
		return Answer{}, record, err
	}
	a := Answer{Status: "accepted", TaskID: w.in.TaskID, Warnings: out.Warnings, ReceivedAt: w.tx.Now()}
	if w.in.Message != nil {
		a.MsgID = w.in.Message.MsgID
	}
	if a.Warnings == nil {
		a.Warnings = []amp.Problem{}
	}
	if next != nil {
		seat := next.Seats[w.party.Role]
		a.TaskStatus, a.Generation, a.Claim = next.Status(), seat.Generation, seat.Claim
	}
	if out.Duplicate {
		a.Status, a.Plan = Duplicate, w.plan
		return a, nil, nil
	}
	for _, m := range out.Raised {
		a.Escalations = append(a.Escalations, m.MsgID)
	}
	return a, nil, w.record(next, out, w.plain())
}

// decide asks the policy about a dispatch (TSK-47). Only dispatches of coordinators are the
// policy's business: everything later in a task is bound by the protocol's own rules, and the
// admin's word is above the policy. For all else the decision is empty.
func (s *Tasks) decide(ctx context.Context, w *work) (d rulebook.Decision, err error) {
	m := w.in.Message
	if m == nil || m.Dispatch == nil || w.party.Role == amp.Admin {
		return d, nil
	}
	e := event(m)
	w.named.Into(&e)
	if e.User == "" {
		t, err := s.knownTask(ctx, w.party.Workspace, m.TaskID)
		if err != nil {
			return d, err
		}
		e.User = taskUser(t)
	}
	return s.core.Book.Decide(ctx, w.party.Identity, e), nil
}

// heed puts into the work what the policy has decided, or returns why the document is refused.
//
// Allow by a rule approves the dispatch; allow by default does not, since nobody has thought about
// this task. Gate has people asked, as its rule says. Block, defer and modify refuse, and are recorded here,
// because the transaction of the task is never reached.
func (s *Tasks) heed(ctx context.Context, w *work, d rulebook.Decision) (*amp.Refusal, error) {
	w.decision = d
	switch d.Action {
	case "": // the policy was not asked
		return nil, nil
	case policy.Allow:
		w.world.PlanOK = d.Rule != policy.DefaultRule
		return nil, nil
	case policy.Gate:
		w.world.AskPlan, w.rule = true, &d.Verdict
		return nil, nil
	}
	m := w.in.Message
	if err := d.Write(ctx, s.core.Ledger, w.party.Identity, m.TaskID, "task:"+w.party.Workspace+":"+m.TaskID); err != nil {
		return nil, err
	}
	if d.Action == policy.Defer {
		return nil, d.Deferred("the same message")
	}
	reason := d.Reason
	if d.Action == policy.Modify {
		reason = "The rule " + d.Rule +
			" would change the message, which is its sender's. An operator should change the policy."
	}
	return amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "", reason,
		"a dispatch that the policy allows, or an escalation", nil), nil
}

// recheck makes the decision exact in the transaction that records it.
func (w *work) recheck() (err error) {
	w.decision, err = w.decision.Recheck(w.tx)
	return err
}

// plain is the record of the decision as the entry of a dispatch has it, nil if the policy was not asked. The entry
// already holds the dispatch, and Readers makes the event from it again.
func (w *work) plain() *rulebook.Plain {
	if w.decision.Action == "" {
		return nil
	}
	plain := rulebook.Plain(w.decision.Record)
	plain.Event = nil
	return &plain
}

// event is what rules see of a dispatch. The risk level is event.priority, because rules of other
// protocols compare that field. The payload is decoded only if a rule reads it (Fill).
func event(m *amp.Message) policy.Event {
	return policy.Event{
		Point: policy.OnTask, Protocol: Name, Kind: string(m.Type), Summary: m.Dispatch.Description, Task: m.TaskID,
		User: named(m.Raw).User, Project: m.Dispatch.Repo, From: string(m.From), To: string(m.To), Priority: m.Dispatch.Risk,
		Fill: func(e *policy.Event) { _ = policy.DecodeData(m.Payload, &e.Payload) },
	}
}

// Readers find the policy's decisions in entries of dispatches, those that are kept included, for
// counters and for replays. The event is built from the stored document again, so it is not stored twice.
func Readers() map[string]rulebook.Reader {
	read := func(e *ledger.Entry) (rulebook.Reading, error) {
		reading, err := rulebook.ReadDecision(e)
		if err != nil || reading.Decision == nil {
			return reading, err
		}
		var b struct {
			behalf.Of
			Was    string   `json:"was"`
			Record wire.Raw `json:"record"`
		}
		if err := wire.UnmarshalPart(e.Body, &b); err != nil {
			return reading, err
		}
		m, _, refusal := amp.ReadMessage(b.Record, amp.Defaults())
		if refusal != nil {
			return reading, errors.New(refusal.String())
		}
		ev := event(m)
		if ev.User == "" && b.Was != "" { // it is for the user of its task
			ev.User = cmp.Or(b.Claimed, b.User)
		}
		reading.Decision.Event = &ev
		return reading, nil
	}
	return map[string]rulebook.Reader{kinds[amp.TypeDispatch]: read, kindKept: read}
}

// rejection is a document that is refused. rule and decision are what the policy said of a
// dispatch, nil where it was not asked.
type rejection struct {
	work     *work // as far as it has come, nil for a document that could not be read
	party    Party
	kind     amp.Kind
	raw      []byte
	refusal  *amp.Refusal
	warnings []amp.Problem
	rule     *policy.Verdict
	decision *rulebook.Plain
}

// seen is what git has shown, if that is why the document is refused. A document that would be refused in any case, as
// one of an agent that does not have the work, says nothing about the task.
func (r *rejection) seen() *amp.GitFacts {
	if r.work == nil || r.work.world.Git == nil {
		return nil
	}
	git := r.work.world.Git
	if len(git.Problems) == 0 || &git.Problems[0] != &r.refusal.Problems[0] {
		return nil
	}
	return git
}

// recordRefusal records a document that was refused before its task was looked at, in a
// transaction of its own.
func (s *Tasks) recordRefusal(ctx context.Context, r rejection) (Answer, *ErrorRecord, error) {
	var record *ErrorRecord
	err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) (err error) {
		record, err = s.writeRefusal(tx, r)
		return err
	})
	return Answer{}, record, err
}

// writeRefusal appends one line of the error log, and draws the consequences of a refusal
// that a person has to know of: a protected branch, a frozen one, a dispatch that
// nobody has approved and that is kept, an escalation that cannot be read (TSK-30). Those
// are steps of the task like any other, so that a replay finds them.
func (s *Tasks) writeRefusal(tx *ledger.Tx, r rejection) (*ErrorRecord, error) {
	p := r.party
	b := newRefused(p, r.raw, r.refusal, tx.Now())
	b.Warnings = r.warnings
	if r.work != nil {
		b.Of = r.work.of()
	}
	subject := ""
	if b.TaskID != nil {
		subject = *b.TaskID
	}
	_, lost, matters := amp.LostOf(r.kind, r.raw, r.refusal)
	seen := r.seen()
	matters = matters || seen != nil
	if matters && p.Role != "" && subject != "" {
		w := &work{
			tasks: s, tx: tx, party: p, rule: r.rule,
			in: amp.Input{Kind: amp.InRefusal, TaskID: subject, Lost: &lost},
		}
		if r.work != nil {
			w.behalf, w.world.User, w.world.Claimed = r.work.behalf, r.work.world.User, r.work.world.Claimed
			w.under, w.within, w.run, w.world.Git = r.work.under, r.work.within, r.work.run, seen
		}
		if lost.Plan != nil {
			w.keep(r.raw)
			b.keptAt(lost.Plan.Gate)
		}
		if err := w.load(); err != nil {
			return nil, err
		}
		if next, out := s.Policy.Refusal(w.before, subject, lost, w.world); next != nil {
			if len(out.Raised) > 0 {
				b.Escalation = &out.Raised[0].MsgID
			}
			if err := w.record(next, out, r.decision); err != nil {
				return nil, err
			}
		}
	}
	// TSK-30: an escalation without a task id has no task to suspend, but somebody must see it.
	if matters && lost.Escalation && subject == "" {
		if err := s.openLost(tx, p, &b); err != nil {
			return nil, err
		}
	}
	body, err := ledger.Encode(&b)
	if err != nil {
		return nil, err
	}
	tx.Append(ledger.Event{
		Workspace: p.Workspace, Kind: kindRefused, Actor: p.Identity.Actor(), Subject: subject,
		Body: body,
	})
	record := ErrorRecord(b)
	return &record, nil
}

// Timers are the handlers of this package's durable timers. A task has at most one timer, for its
// earliest deadline; the step sets the next.
func (s *Tasks) Timers() map[string]clock.Handler {
	return map[string]clock.Handler{dueTimer: func(tx *ledger.Tx, t clock.Timer) error {
		workspace, taskID, _ := strings.Cut(t.Subject, " ")
		return s.takeFound(tx, workspace, amp.Input{Kind: amp.InTick, TaskID: taskID}, nil)
	}}
}
