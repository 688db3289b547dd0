package amp

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Fill adds to a payload what its sender need not say, because the task says it or because nothing is a right value:
// ids and times, which agents get wrong, and empty lists. What is there is left as it is, also if it is wrong: the
// rules say so better. about is the task as it stands, zero for a new one.
func Fill(t Type, taskID string, payload map[string]any, about Record, now time.Time) {
	switch t {
	case TypeDispatch:
		each(payload, "subtasks", func(i int, subtask map[string]any) {
			absent(subtask, "subtask_id", fmt.Sprintf("%s-S%d", taskID, i+1))
		})
	case TypeResult:
		// Without one that is under way the first is as good: the rules say what state it is in.
		ids := slices.Sorted(maps.Keys(about.Subtasks))
		at := slices.IndexFunc(ids, func(id string) bool { return about.Subtasks[id].State == Executing })
		if len(ids) > 0 {
			absent(payload, "subtask_id", ids[max(at, 0)])
		}
		absent(payload, "work_log", []any{})
		each(payload, "work_log", func(_ int, done map[string]any) {
			absent(done, "timestamp", now.UTC().Format(time.RFC3339Nano))
			absent(done, "file", nil)
			absent(done, "detail", "")
		})
		if own, ok := payload["self_assessment"].(map[string]any); ok {
			met, _ := own["criteria_met"].([]any)
			notes := []any{}
			for range met { // each criterion has one, of which nothing need be said
				notes = append(notes, "")
			}
			absent(own, "notes", notes)
		}
	case TypeVerdict:
		each(payload, "criteria_results", func(i int, judged map[string]any) {
			if i < len(about.Criteria) {
				absent(judged, "criterion", about.Criteria[i])
			}
		})
		each(payload, "issues", func(_ int, issue map[string]any) {
			absent(issue, "file", "")
			absent(issue, "line", 0)
			absent(issue, "suggested_fix", "")
		})
	default:
	}
}

// absent sets a member that is not there.
func absent(in map[string]any, name string, value any) {
	if _, given := in[name]; !given {
		in[name] = value
	}
}

// each calls fn with the objects of a list.
func each(in map[string]any, name string, fn func(i int, one map[string]any)) {
	list, _ := in[name].([]any)
	for i := range list {
		if one, ok := list[i].(map[string]any); ok {
			fn(i, one)
		}
	}
}
