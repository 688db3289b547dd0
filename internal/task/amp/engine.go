package amp

// Engine keeps tasks in memory and takes them through Step: the rules without a server. The
// conformance vectors run on it, and so does the replay of a ledger. It is not safe for concurrent
// use.
type Engine struct {
	Policy Policy
	Tasks  map[string]*Task
	Known  map[string]Ref // every message and instruction
}

// NewEngine makes an engine without tasks.
func NewEngine(p Policy) *Engine {
	return &Engine{Policy: p, Tasks: map[string]*Task{}, Known: map[string]Ref{}}
}

// Do takes one input. A refused input changes nothing.
func (e *Engine) Do(in Input, w World) (Outcome, *Refusal) {
	w.Refs = map[string]Ref{}
	for _, id := range in.Refs() {
		if ref, ok := e.Known[id]; ok {
			w.Refs[id] = ref
		}
	}
	w.Taken = func(id string) bool { _, ok := e.Known[id]; return ok }
	next, out, refusal := e.Policy.Step(e.Tasks[in.TaskID], in, w)
	if refusal != nil || out.Duplicate || next == nil {
		return out, refusal
	}
	e.Tasks[in.TaskID] = next
	e.remember(in, out)
	return out, nil
}

// remember notes which messages exist now, and which are acknowledged: what the table task_message
// is for a server.
func (e *Engine) remember(in Input, out Outcome) {
	switch {
	case in.Message != nil:
		e.Known[in.Message.MsgID] = Ref{TaskID: in.TaskID, To: in.Message.To, Hash: in.Hash, Acked: !in.Message.RequiresAck}
	case in.Instruction != nil:
		e.Known[in.Instruction.ID] = Ref{TaskID: in.TaskID, Hash: in.Hash, Acked: true}
	}
	if out.AskPlan && in.Lost.Plan != nil {
		p := in.Lost.Plan
		e.Known[p.MsgID] = Ref{TaskID: in.TaskID, Hash: p.Digest, Agent: p.Agent, Kept: true}
	}
	for _, m := range out.Raised {
		e.Known[m.MsgID] = Ref{TaskID: in.TaskID, To: m.To, Acked: true, Hash: contentHash(m.Raw)}
	}
	for _, m := range out.Decisions {
		e.Known[m.MsgID] = Ref{TaskID: in.TaskID, To: m.To, Hash: contentHash(m.Raw), Agent: m.Agent}
	}
	mark := func(ids []string, acked bool) {
		for _, id := range ids {
			ref := e.Known[id]
			ref.Acked = acked
			e.Known[id] = ref
		}
	}
	mark(out.Acked, true)
	mark(out.Reopened, false)
}

// LostOf is what matters of a refused document; matters is false if nobody has to know. A message
// id that is taken is no reason to raise an alarm: the escalation of that id is stored. The caller
// adds to a plan who sent it, and its gate.
func LostOf(kind Kind, raw []byte, r *Refusal) (taskID string, lost Lost, matters bool) {
	d := documentOf(raw)
	if kind != InMessage {
		return "", Lost{}, false
	}
	payload, _ := d.object["payload"].(map[string]any)
	risk, _ := payload["risk_level"].(string)
	lost = Lost{Layer: r.Layer, Problems: r.Problems, Risk: risk}
	if d.text("type") == string(TypeResult) {
		lost.Subtask, _ = payload["subtask_id"].(string)
	}
	if r.Has(PlanNotApproved) {
		lost.Plan = &Plan{MsgID: d.text("msg_id"), Digest: contentHash(raw)}
	}
	lost.Escalation = d.text("type") == string(TypeEscalation) && !r.Has(MsgIDConflict)
	return d.text("task_id"), lost, lost.Escalation || r.Has(BranchProtected) || r.Has(BranchFrozen) ||
		r.Has(PlanNotApproved)
}
