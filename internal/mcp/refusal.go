package mcp

import (
	"slices"
	"strings"

	"signalbox/internal/task"
	"signalbox/internal/task/amp"
)

// refused is why a document was not accepted, for the model that gave the arguments: in terms of those, and without
// what only the error log needs.
type refused struct {
	Status  string    `json:"status"` // refused, or waits_for_approval
	Message string    `json:"message"`
	TaskID  *string   `json:"task_id"`
	MsgID   *string   `json:"msg_id,omitempty"` // of a dispatch that is kept
	Errors  []problem `json:"errors"`
	Gate    string    `json:"gate_id,omitempty"`
	Raised  *string   `json:"escalation,omitempty"` // that the server has raised because of it
}

// problem is one thing that is wrong.
type problem struct {
	Code     amp.Code `json:"code"`
	Argument string   `json:"argument,omitempty"` // such as subtasks/0/description
	Detail   string   `json:"detail,omitempty"`
	Expected string   `json:"expected,omitempty"`
	Example  any      `json:"example,omitempty"`
}

// refuse is the outcome of a document that was refused. A plan that waits for a person is no failure: a model would
// send it again.
func refuse(t tool, wrong *task.ErrorRecord) (outcome, error) {
	out := refused{
		Status: "refused", Message: "It was not accepted. errors say why; call the tool again when that is mended.",
		TaskID: wrong.TaskID, Errors: []problem{}, Gate: wrong.Gate, Raised: wrong.Escalation,
	}
	kept := false
	for _, p := range wrong.Errors {
		kept = kept || p.Code == amp.PlanNotApproved
		// The ids of documents are ours; what is wrong with them follows from something else.
		if (p.Pointer == "/msg_id" || p.Pointer == "/ack_id") && len(wrong.Errors) > 1 {
			continue
		}
		out.Errors = append(out.Errors, t.explain(p))
	}
	if kept {
		out.Status, out.MsgID = "waits_for_approval", wrong.MsgID
		out.Message = "A person has to approve this plan first. The dispatch is kept and goes out by itself: do not send " +
			"it again. Wait for the decision with amp_wait."
	}
	result, err := answer(out, nil)
	result.refused = !kept
	return result, err
}

// explain says a problem in terms of the tool's arguments, with what the description of the argument says.
func (t tool) explain(p amp.Problem) problem {
	out := problem{p.Code, "", p.Detail, p.Expected, p.Example}
	path := strings.Split(strings.TrimPrefix(strings.TrimPrefix(p.Pointer, "/payload"), "/"), "/")
	if path[0] == "ack_of" {
		path[0] = "msg_id"
	}
	out.Argument = strings.Join(path, "/")
	field := object{"properties": t.fields}
	for _, name := range path {
		if items, ok := field["items"].(object); ok && strings.Trim(name, "0123456789") == "" {
			field = items
			continue
		}
		fields, _ := field["properties"].(object)
		if field, _ = fields[name].(object); field == nil {
			return out
		}
	}
	about, _ := field["description"].(string)
	if out.Expected == "" || strings.Contains(out.Expected, "text of the form ") {
		out.Expected = about
	} else {
		out.Expected += "; " + about
	}
	if field["enum"] != nil && slices.Contains(field["enum"].([]string), "unverified") {
		out.Expected = "yes, no or unverified; " + about
	}
	return out
}
