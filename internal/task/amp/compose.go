package amp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"signalbox/internal/wire"
)

// receiver is whom a message goes to. Type and sender leave no choice.
func receiver(t Type, from Role) Role {
	switch {
	case t == TypeDispatch && from == Admin:
		return Coordinator
	case t == TypeDispatch:
		return Executor
	case t == TypeRequest:
		return Reviewer
	case t == TypeEscalation:
		return Admin
	}
	return Coordinator
}

// Compose puts a payload into its envelope: id, time and receiver follow from the rest. With a
// generation that is not 0 the message is refused once the sender's lease is over. Two messages of
// one type and task in the same millisecond would get the same id, and the second would be refused
// as a conflict.
func Compose(t Type, from Role, taskID string, payload []byte, generation int64, now time.Time) ([]byte, error) {
	m := Message{
		MsgID: fmt.Sprintf("%s-%s-%013d", t, taskID, now.UnixMilli()), Version: Version, Type: t, From: from,
		To: receiver(t, from), TaskID: taskID,
		Timestamp: now.UTC().Format(time.RFC3339Nano), RequiresAck: t != TypeEscalation, Payload: payload,
	}
	if generation > 0 {
		g := whole(generation)
		m.Generation = &g
	}
	return wire.Marshal(&m)
}

// EscalationOf is the payload of an escalation as a party raises it. The zero Record stands for a
// task that does not exist.
func EscalationOf(from Role, kind, severity, description string, about Record) ([]byte, error) {
	e := Escalation{
		Type: kind, Severity: severity, TriggeredBy: from, Description: description, Affected: []string{},
		Snapshot: Snapshot{Status: about.Status, RejectCount: about.Count, Last: about.Last}, Suspended: severity != "info",
	}
	if e.Snapshot.Status == "" {
		e.Snapshot.Status = "unknown"
	}
	if about.Last != nil {
		e.Affected = append(e.Affected, *about.Last)
	}
	return wire.Marshal(e)
}

// Review is what is asked of a reviewer beyond what the task says. Everything has a default: the first subtask that
// waits, all of it, and the repository itself as the place of the diff.
type Review struct{ Subtask, Scope, Diff, Notes string }

// RequestOf is the payload of the request for a review. References and the count of rejects come from the task, since
// agents get them wrong.
func RequestOf(t Record, a Review) ([]byte, error) {
	for _, id := range slices.Sorted(maps.Keys(t.Subtasks)) {
		s := t.Subtasks[id]
		waits := s.State == Reported || s.State == Triage
		if !waits || s.Result == nil || a.Subtask != "" && a.Subtask != id {
			continue
		}
		r := map[string]any{
			"original_dispatch_ref": s.Dispatch, "task_result_ref": *s.Result, "review_scope": cmp.Or(a.Scope, "full"),
			"diff_url": cmp.Or(a.Diff, t.Repo), "reject_count": t.Count,
		}
		if a.Notes != "" {
			r["coordinator_notes"] = a.Notes
		}
		if len(t.CI) > 0 {
			r["ci_status"] = t.CI
		}
		return wire.Marshal(r)
	}
	if a.Subtask != "" {
		return nil, fmt.Errorf("the subtask %.40q of %s has no result that waits for a review", a.Subtask, t.TaskID)
	}
	return nil, fmt.Errorf("no subtask of %s has a result that waits for a review", t.TaskID)
}
