package amp

import "strings"

// What a host of tasks asks of the rules beside Step.

// Rejected is the decision of a verdict that sends a subtask back.
const Rejected = rejected

// Both names are the reason for which the server escalates that a frozen branch has moved; the
// watcher and a refused request must not both raise it.
const (
	whyFrozen = "frozen"
	WhyFrozen = whyFrozen
)

// Refuse is the refusal of a document for one reason, with what would have been right.
func Refuse(layer Layer, code Code, pointer, detail, expected string, example any) *Refusal {
	return refuse(layer, code, pointer, detail).expecting(expected, example)
}

// Clip cuts text from outside to what can be stored and shown: 500 bytes, valid, without NUL.
func Clip(text string) string {
	cut := ""
	if len(text) > 500 {
		text, cut = text[:500], "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD") + cut
}

// Oversize is the refusal of a document that is larger than MaxDocument.
func Oversize() *Refusal { return tooLarge() }

// Members are the members of a document that may be wrong, nil if it is no JSON object.
func Members(raw []byte) map[string]any { return documentOf(raw).object }

// ContentHash is the same for the same JSON, however it is laid out.
func ContentHash(raw []byte) string { return contentHash(raw) }

// TaskOf is the task in a message's id.
func TaskOf(msgID string) string { return taskOf(msgID) }

// IsEscalation reports whether the input is an escalation, which is accepted from anybody at any
// time.
func (in *Input) IsEscalation() bool { return in.Message != nil && in.Message.Escalation != nil }

// Open reports whether an agent holds a seat, or may claim it.
func (s Seat) Open(agent string) bool {
	switch {
	case s.For != "":
		return s.For == agent
	case s.Reassigned:
		return s.Agent != agent
	}
	return s.Agent == "" || s.Lost || s.Agent == agent
}

// Over reports whether the task has ended.
func (t *Task) Over() bool { return t.over() }

// Stops is the hold that keeps a role from going on, nil if none does.
func (t *Task) Stops(role Role) *Hold { return t.stops(role) }

// Find finds the first subtask for which is holds, nil if there is none.
func (t *Task) Find(is func(*Subtask) bool) *Subtask { return t.findSubtask(is) }

// Escalation is an open escalation, nil if there is none with the id.
func (t *Task) Escalation(id string) *Opened { return t.findEscalation(id) }

// Text is the whole state as JSON, to compare two states.
func (t *Task) Text() string { return t.text() }

// Frozen reports whether nobody may change the task's branch. It is so while results wait
// and no subtask is in anybody's hands; a reviewer may make direct fixes, so it is not so during a
// review. Only results for which git was asked have a head to compare with.
func (t *Task) Frozen() bool {
	waits := false
	for _, s := range t.Subtasks {
		switch s.State {
		case Executing, Reviewing, VerdictReported, Dispatched, Rework:
			return false // somebody may, or may have
		case Reported, Triage, ReviewRequested:
			waits = waits || s.Head != ""
		default:
		}
	}
	return waits
}

// Reports says whether a commit is one that the task reported and that is not approved. Hashes may
// be abbreviated on either side. While nothing was reported every commit counts.
func (t *Task) Reports(commit string) bool {
	known := false
	for _, s := range t.Subtasks {
		if s.Commit == "" || s.State == Approved || s.State == Dispatched || s.State == Executing || s.State == Queued {
			continue
		}
		known = true
		if strings.HasPrefix(commit, s.Commit) || strings.HasPrefix(s.Commit, commit) {
			return true
		}
	}
	return !known || commit == ""
}

// Presume takes what an input says of messages of other tasks as given. They were checked when the
// input was accepted, and a bundle does not have them.
func (e *Engine) Presume(in Input) {
	for _, id := range in.Refs() {
		if _, known := e.Known[id]; !known && taskOf(id) != in.TaskID {
			e.Known[id] = Ref{TaskID: taskOf(id), Acked: true}
		}
	}
}
