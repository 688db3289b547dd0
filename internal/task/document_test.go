package task_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"signalbox/internal/task/amp"
)

// serial makes every document's id another.
var serial atomic.Int64

const taskT = "T-2026-044"

func fromOf(raw []byte) amp.Role {
	var d struct {
		From amp.Role `json:"from"`
	}
	_ = json.Unmarshal(raw, &d)
	return d.From
}

func idOf(raw []byte) string {
	var d struct {
		MsgID string `json:"msg_id"`
	}
	_ = json.Unmarshal(raw, &d)
	return d.MsgID
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

type object = map[string]any

func set(o object, pairs []any) object {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(o, pairs[i].(string))
		} else {
			o[pairs[i].(string)] = pairs[i+1]
		}
	}
	return o
}

func message(id string, t amp.Type, from, to amp.Role, payload object) []byte {
	return encode(object{
		"msg_id": fmt.Sprintf("%s-%s-%013d", t, id, 1_772_116_327_000+serial.Add(1)), "protocol_version": amp.Version,
		"type": t, "from": from, "to": to,
		"task_id": id, "timestamp": "2026-02-26T14:32:07+00:00", "requires_ack": t != amp.TypeEscalation, "payload": payload,
	})
}

// with changes the envelope of a message.
func with(raw []byte, pairs ...any) []byte {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		panic(err)
	}
	return encode(set(o, pairs))
}

func dispatch(id string, subtasks int, pairs ...any) []byte {
	list := []object{}
	for i := range subtasks {
		list = append(list,
			object{"subtask_id": fmt.Sprintf("%s-S%d", id, i+1), "description": "Do it", "estimated_lines": 10})
	}
	return message(id, amp.TypeDispatch, amp.Coordinator, amp.Executor, set(object{
		"description": "Rework the timer", "repo": "/srv/repos/app", "branch": "feature/timer", "subtasks": list,
		"acceptance_criteria": []string{"All tests pass", "No leak"}, "risk_level": "medium",
	}, pairs))
}

func result(id string, subtask int, pairs ...any) []byte {
	return message(id, amp.TypeResult, amp.Executor, amp.Coordinator, set(object{
		"subtask_id": fmt.Sprintf("%s-S%d", id, subtask), "completion_status": "complete",
		"diff_summary":    object{"files_changed": []string{"a.go"}, "lines_added": 1, "lines_removed": 0},
		"self_assessment": object{"criteria_met": []any{true, nil}, "notes": []string{"ran", "cannot tell"}},
		"work_log":        []object{{"timestamp": "2026-02-26T14:28:00Z", "action": "edit", "file": "a.go", "detail": "x"}},
		"commit_hash":     "a3f8d21",
	}, pairs))
}

func request(id, dispatch, result string, count int64, pairs ...any) []byte {
	return message(id, amp.TypeRequest, amp.Coordinator, amp.Reviewer, set(object{
		"original_dispatch_ref": dispatch, "task_result_ref": result, "review_scope": "full",
		"diff_url": "https://git.example.com/compare", "reject_count": count,
	}, pairs))
}

func verdict(id, decision string, confidence float64, pairs ...any) []byte {
	passed := decision != "rejected"
	p := object{
		"decision": decision, "confidence": confidence,
		"criteria_results": []object{
			{"criterion": "All tests pass", "passed": passed, "evidence": "CI"},
			{"criterion": "No leak", "passed": true, "evidence": "run"},
		},
	}
	switch decision {
	case "rejected":
		p["issues"] = []object{{
			"severity": "major", "file": "a.go", "line": 1, "description": "wrong",
			"suggested_fix": "right",
		}}
	case "approved_with_fix":
		p["direct_fixes"] = []object{{"file": "a.go", "change_type": "typo", "diff_lines": 2}}
	}
	return message(id, amp.TypeVerdict, amp.Reviewer, amp.Coordinator, set(p, pairs))
}

func escalation(id string, from amp.Role, severity string) []byte {
	return message(id, amp.TypeEscalation, from, amp.Admin, object{
		"escalation_type": "conflict", "severity": severity, "triggered_by": from, "description": "We cannot agree",
		"affected_msgs":         []string{},
		"system_state_snapshot": object{"task_status": "executing", "reject_count": 0, "last_successful_msg_id": nil},
		"auto_suspended":        severity != "info",
	})
}

func ack(id, of string, from amp.Role, pairs ...any) []byte {
	return encode(set(object{
		"record": "ack", "ack_id": fmt.Sprintf("ack-%s-%013d", id, 1_772_116_327_000+serial.Add(1)),
		"protocol_version": amp.Version, "task_id": id,
		"timestamp": "2026-02-26T14:32:30Z", "ack_of": of, "from": from, "status": "accepted",
	}, pairs))
}

func heartbeat(id string, from amp.Role, pairs ...any) []byte {
	return encode(set(object{
		"record": "heartbeat", "protocol_version": amp.Version, "task_id": id,
		"timestamp": "2026-02-26T14:50:00Z", "from": from,
	}, pairs))
}

func instruct(id, action string, pairs ...any) []byte {
	return encode(set(object{
		"record": "admin_instruction", "instruction_id": fmt.Sprintf("admin-%s-%013d", id, 1_772_116_327_000+serial.Add(1)),
		"protocol_version": amp.Version,
		"task_id":          id, "timestamp": "2026-02-26T15:00:00Z", "from": "admin", "action": action, "channel": "cli",
		"actor": "kim",
	}, pairs))
}
