package amp

// Engine keeps tasks in memory and takes them through Step. It is what the rules do
// without a server, for conformance vectors and for replaying what a ledger holds.
type Engine struct {
	Policy Policy
	Tasks  map[string]*Task
	Known  map[string]Ref // every message and instruction
}

// NewEngine makes an engine that knows nothing yet.
func NewEngine(p Policy) *Engine {
	return &Engine{Policy: p, Tasks: map[string]*Task{}, Known: map[string]Ref{}}
}

// Do takes an input. What is refused changes nothing.
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
	e.learn(in, out)
	return out, nil
}

// learn remembers which messages there are, and which are acknowledged.
func (e *Engine) learn(in Input, out Outcome) {
	switch {
	case in.Message != nil:
		e.Known[in.Message.MsgID] = Ref{TaskID: in.TaskID, To: in.Message.To, Hash: in.Hash, Acked: !in.Message.RequiresAck}
	case in.Instruction != nil:
		e.Known[in.Instruction.ID] = Ref{TaskID: in.TaskID, Hash: in.Hash, Acked: true}
	}
	for _, m := range out.Raised {
		e.Known[m.MsgID] = Ref{TaskID: in.TaskID, To: m.To, Acked: true, Hash: contentHash(m.Raw)}
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

// LostOf is what matters of a document that was refused; false if nobody has to know.
func LostOf(kind Kind, raw []byte, r *Refusal) (taskID string, lost Lost, matters bool) {
	d := documentOf(raw)
	if kind != InMessage {
		return "", Lost{}, false
	}
	payload, _ := d.object["payload"].(map[string]any)
	risk, _ := payload["risk_level"].(string)
	lost = Lost{Layer: r.Layer, Problems: r.Problems, Risk: risk}
	lost.Escalation = d.text("type") == string(TypeEscalation) && !r.Has(MsgIDConflict)
	return d.text("task_id"), lost, lost.Escalation || r.Has(BranchProtected) || r.Has(BranchFrozen) ||
		r.Has(PlanNotApproved)
}
