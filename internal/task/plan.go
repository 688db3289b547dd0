package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// PlanAnswer is how a dispatch stands that was kept until it is approved.
type PlanAnswer struct {
	Gate  string        `json:"gate"`
	State amp.PlanState `json:"state" doc:"waiting, approved, sent, rejected or unsent"`
}

// askedFor is what the approval of a plan is bound to: this coordinator, this task, this content.
func askedFor(workspace, taskID, agent, digest string) gate.Asked {
	return gate.Asked{Agent: agent, Key: Name + ":" + workspace + ":" + taskID, Digest: digest}
}

// keep makes the input keep the dispatch that was refused, byte for byte, under a gate of its own.
func (w *work) keep(raw []byte) {
	w.in.Raw, w.world.Agent = raw, w.party.Identity.ID
	w.in.Lost.Plan.Agent, w.in.Lost.Plan.Gate = w.party.Identity.ID, gate.NewID()
}

// keptAt tells the sender which gate decides about its dispatch.
func (b *refused) keptAt(gateID string) {
	b.Gate = gateID
	b.Errors[0].Detail += " It waits at the gate " + gateID + "."
}

// window is how long an approval is good until its dispatch goes out, zero for as long as it takes.
func (w *work) window() time.Duration {
	if w.rule == nil || w.rule.Gate == nil {
		return 0
	}
	return w.rule.Gate.GoodFor
}

// planGate asks whether a dispatch may go out. It shows all of it, each part by its name and then
// the message itself, under the digest of what will go out.
func (w *work) planGate(plan *amp.Plan) (gate.Prepared, error) {
	var m struct {
		Payload amp.Dispatch `json:"payload"`
	}
	if err := wire.UnmarshalPart(w.in.Raw, &m); err != nil { // it was read before
		return gate.Prepared{}, err
	}
	d := m.Payload
	o := w.newOpening(plan.MsgID, d.Risk)
	o.Project, o.Digest = d.Repo, plan.Digest
	o.Shown = gate.Shown{
		Title: w.in.TaskID + ": approve the plan", Summary: d.Description,
		ProposedAction: fmt.Sprintf("Work on the branch %s of %s.", d.Branch, d.Repo),
		Artifacts:      []wire.Raw{w.in.Raw},
	}
	add := func(name, value string) {
		o.Shown.Facts = append(o.Shown.Facts, gate.Fact{Name: name, Value: value})
	}
	o.Shown.Facts = w.onBehalf()
	add("repository", d.Repo)
	add("branch", d.Branch)
	add("risk", d.Risk)
	for _, s := range d.Subtasks {
		add(s.ID, fmt.Sprintf("%s (about %d lines)", s.Description, s.Lines))
	}
	for _, c := range d.Criteria {
		add("criterion", c)
	}
	for _, f := range d.Forbidden {
		add("forbidden", f)
	}
	if files, _ := d.Files(); files != nil {
		add("files", strings.Join(files, ", "))
	}
	if len(d.Constraints) > 0 {
		add("constraints", string(d.Constraints))
	}
	add("message", plan.MsgID)
	if w.rule != nil && w.rule.Gate != nil {
		o.Rules = gate.RulesOf(w.rule.Gate)
		o.Shown.Rule, o.Shown.Reason = w.rule.Rule, w.rule.Reason
		// A rule can make a plan look worse than its coordinator says, and not better.
		if slices.Index(gate.Risks, w.rule.Gate.Risk) > slices.Index(gate.Risks, o.Risk) {
			o.Risk = w.rule.Gate.Risk
		}
	}
	return gate.Prepare(o)
}

// settlePlans resolves the gates of plans that were decided elsewhere. An operator's instruction is
// a vote, so that it counts for as much as a vote at the gate and for no more.
func (w *work) settlePlans(changes []amp.PlanChange) error {
	for _, c := range changes {
		if c.By == "" || c.Gate == "" {
			continue
		}
		waits, err := w.tasks.core.Gates.Waits(w.tx, c.Gate)
		if err == nil && waits {
			err = w.settlePlan(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *work) settlePlan(c amp.PlanChange) error {
	i := w.in.Instruction
	if i == nil || c.By != i.Action {
		return w.settle(c.Gate, gate.Rejected, c.By) // the task is over
	}
	status, err := w.tasks.core.Gates.Cast(w.tx, w.party.Identity, c.Gate,
		gate.Ballot{Approve: c.State == amp.PlanApproved, Note: i.Note})
	if err == nil && status == gate.Pending {
		err = fault.New(fault.Conflict, "More than one operator has to decide about this plan. Each of you votes at its "+
			"gate, %s.", c.Gate)
	}
	return err
}

// applyPlans keeps the table of plans: one row for each dispatch that was kept, with how it stands.
func applyPlans(tx *store.Tx, e *ledger.Entry, b *recorded) error {
	if e.Kind == kindKept {
		p := b.Lost.Plan
		tx.Exec("INSERT INTO task_plan (workspace, msg_id, task_id, agent, digest, gate, state, seq) "+
			"VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
			e.Workspace, p.MsgID, e.Subject, p.Agent, p.Digest, p.Gate, string(amp.PlanWaiting), e.Seq)
		gate.SetApproval(tx, b.planApproval(e.Workspace, e.Subject), e.At)
		return nil
	}
	for _, c := range b.Plans {
		tx.Exec("UPDATE task_plan SET state = $3 WHERE workspace = $1 AND msg_id = $2", e.Workspace, c.MsgID, string(c.State))
	}
	if b.Release != "" {
		gate.TakeUse(tx, b.Release)
	}
	return nil
}

// planApproval is the approval that a dispatch waits for, as the entry that keeps it says.
func (b *recorded) planApproval(workspace, taskID string) *gate.Approval {
	p := b.Lost.Plan
	return &gate.Approval{
		Asked: askedFor(workspace, taskID, p.Agent, p.Digest), Gate: p.Gate,
		Window: time.Duration(b.GoodFor) * time.Microsecond, Uses: 1,
	}
}

// readApproval reads the approval of a plan from the entries of its task.
func readApproval(p ledger.Prover, _ gate.Asked, by *gate.Gate) (found *gate.Approval, err error) {
	entries, err := p.Entries(ledger.Query{Trace: by.Trace, Kinds: []string{kindKept, kinds[amp.TypeDispatch]}})
	for i := 0; i < len(entries) && err == nil; i++ {
		e, b := &entries[i], new(recorded)
		switch err = e.Decode(b); {
		case err != nil:
		case e.Kind == kindKept && b.Lost.Plan.Gate == by.ID:
			found = b.planApproval(e.Workspace, e.Subject)
		case e.Kind != kindKept && b.Release == by.ID && found != nil:
			found = found.Used()
		}
	}
	return found, err
}

// readDecision reads what a coordinator hears of its plan.
func readDecision(raw []byte) (amp.Decision, error) {
	var m struct {
		Payload amp.Decision `json:"payload"`
	}
	err := wire.UnmarshalPart(raw, &m)
	return m.Payload, err
}

// instructions wakes those who wait for an instruction of the admin.
func instructions(e *ledger.Entry) string {
	if e.Kind == kindInstructed {
		return kindInstructed
	}
	return ""
}

// sendApproved has plans that were approved go out, until ctx ends. Those that have to go out are
// rows, so one that was approved before a crash, or on another node, goes out as well. Nodes that
// try the same one do it once: the second finds it gone.
func (s *Tasks) sendApproved(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.told.Await(ctx, kindInstructed, func(ctx context.Context) (bool, error) { return false, s.sendPlans(ctx) })
		if err != nil {
			s.core.Log.Warn("cannot send approved plans; retrying", "error", err.Error())
			ledger.Pause(ctx, nil, time.Second)
		}
	}
	return nil
}

// approvedPlan is a dispatch that is about to go out.
type approvedPlan struct {
	workspace, taskID, msgID, agent, digest, gate string
	seq                                           int64 // of the entry that keeps it
}

// sendPlans sends every plan that is approved now, the oldest first.
func (s *Tasks) sendPlans(ctx context.Context) error {
	plans, err := store.All(s.core.DB.Reading(ctx), func(scan store.Scan) (p approvedPlan, err error) {
		return p, scan(&p.workspace, &p.taskID, &p.msgID, &p.agent, &p.digest, &p.gate, &p.seq)
	}, "SELECT workspace, task_id, msg_id, agent, digest, gate, seq FROM task_plan WHERE state = 'approved' ORDER BY seq")
	if err != nil || len(plans) == 0 {
		return err
	}
	// Without a policy everything is blocked. That is so for a moment after every start, and no reason
	// to give a plan up.
	if _, inForce := s.core.Book.Policy(); inForce == nil {
		return errors.New("no policy is in force yet")
	}
	for _, p := range plans { // one that fails is not in the way of others
		err = errors.Join(err, s.sendPlan(ctx, p))
	}
	return err
}

// sendPlan sends one dispatch as if it had just arrived: who sent it, the policy, git and the task
// are asked again. If it cannot go out its coordinator hears why. An error leaves it approved.
func (s *Tasks) sendPlan(ctx context.Context, p approvedPlan) error {
	w := work{tasks: s, party: Party{Workspace: p.workspace}, in: amp.Input{TaskID: p.taskID}}
	g, err := s.core.Gates.Get(ctx, p.gate)
	if err != nil {
		return err
	}
	refusal, err := s.readKept(ctx, &w, p, &g)
	if err != nil {
		return err
	}
	release := func(w work, refusal *amp.Refusal) error {
		return s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			w := w // a function may run twice
			w.tx, w.gate = tx, &g
			return w.release(ctx, p, refusal)
		})
	}
	defer s.core.Handoffs.Forget()
	if refusal != nil {
		return release(w, refusal)
	}
	d, err := s.decide(ctx, &w)
	if err != nil {
		return err
	}
	return rulebook.Settle(d, func(d rulebook.Decision) error {
		w := w
		refusal, err := s.askAgain(ctx, &w, d)
		if err != nil {
			return err
		}
		return release(w, refusal)
	})
}

// readKept reads the dispatch, and who has sent it as they stand today. What is not what was
// approved is refused.
func (s *Tasks) readKept(ctx context.Context, w *work, p approvedPlan, g *gate.Gate) (*amp.Refusal, error) {
	e, err := s.core.Ledger.Entry(ctx, p.seq)
	if err != nil {
		return nil, err
	}
	var b recorded
	if err := e.Decode(&b); err != nil {
		return nil, err
	}
	in, refusal := s.Policy.Read(amp.InMessage, b.Record)
	if refusal != nil {
		return refusal, nil
	}
	if in.Hash != p.digest || g.ActionDigest != p.digest || in.Message.MsgID != p.msgID || in.TaskID != p.taskID {
		return amp.Refuse(amp.LayerContext, amp.MsgIDConflict, "", "What was kept is not what was approved.",
			"another dispatch with a new msg_id", nil), nil
	}
	who, err := s.core.Roster.ByID(ctx, p.workspace, p.agent)
	role := amp.Role("")
	if err == nil {
		role, err = RoleOf(who)
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Forbidden) {
		return amp.Refuse(amp.LayerAuth, amp.AuthRole, "/from",
			"The agent that sent it was removed, or has no role any more.",
			"a dispatch from an agent with the role coordinator", nil), nil
	}
	w.in, w.world.Agent, w.named = in, who.ID, named(in.Raw)
	if b.Under != "" { // the token is not kept
		w.named.Claim, w.under = policy.Claim{Token: s.core.Handoffs.Token(b.Under)}, b.Under
	}
	w.within = b.Within
	w.party.Identity, w.party.Role = who, role
	return w.party.maySend(in), err
}

// askAgain heeds what the policy says of the dispatch today, and asks git. That the policy wants a person asked is
// what has happened.
func (s *Tasks) askAgain(ctx context.Context, w *work, d rulebook.Decision) (*amp.Refusal, error) {
	refusal, err := s.heed(ctx, w, d)
	if fault.Is(err, fault.RateLimited) {
		refusal, err = amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "", fault.From(err).Message, "a dispatch later", nil), nil
	}
	if refusal != nil || err != nil {
		return refusal, err
	}
	w.world.Git, w.world.Release = s.lookAtGit(ctx, w), true
	return nil, nil
}

// release takes the dispatch as take does, with the one use that its approval has. refusal is why
// it cannot go out, nil if nothing is known to be in its way.
func (w *work) release(ctx context.Context, p approvedPlan, refusal *amp.Refusal) error {
	if err := w.load(); err != nil {
		return err
	}
	// Another node was faster, or the task has ended.
	if w.before == nil || w.before.FindPlan(p.msgID) == nil {
		return nil
	}
	var next *amp.Task
	var out amp.Outcome
	if refusal == nil {
		if err := w.recheck(); err != nil {
			return err
		}
		next, out, refusal = w.tasks.Policy.Step(w.before, w.in, w.world)
	}
	if refusal == nil {
		var err error
		if refusal, err = w.planHandoff(ctx, next); err != nil {
			return err
		}
	}
	if refusal == nil {
		var err error
		asked := askedFor(p.workspace, p.taskID, p.agent, p.digest)
		used := w.tasks.core.Gates.Use(w.tx, asked, w.gate, func() { err = w.record(next, out, nil) })
		if err != nil || used == nil {
			return errors.Join(err, w.receipt(true, p.taskID+" was dispatched."))
		}
		if !errors.Is(used, gate.ErrSpent) {
			return used
		}
		refusal = amp.Refuse(amp.LayerContext, amp.PlanNotApproved, "/task_id",
			"The approval was too old when the dispatch could go out.", "another dispatch with a new msg_id", nil)
	}
	w.in = amp.Input{
		Kind: amp.InUnsent, TaskID: p.taskID, Unsent: &amp.Unsent{MsgID: p.msgID, Problems: refusal.Problems},
	}
	w.world = amp.World{Now: w.world.Now, Taken: w.world.Taken}
	next, out, _ = w.tasks.Policy.Step(w.before, w.in, w.world)
	if err := w.receipt(false, p.taskID+" was not dispatched: "+refusal.Problems[0].Detail); err != nil {
		return err
	}
	w.gate, w.handing = nil, handing{} // nothing is released
	return w.record(next, out, nil)
}

// receipt tells those who look at the gate what became of the dispatch.
func (w *work) receipt(sent bool, summary string) error {
	return gate.AddReceipt(w.tx, w.gate.ID, "system", gate.Receipt{Succeeded: sent, Summary: summary})
}
