package hook

import (
	"testing"

	"signalbox/client/ahp"
	"signalbox/internal/run/engine"
)

// TestWhatNobodyWasAskedAboutIsFound: results are compared with the calls that hooks were asked about.
func TestWhatNobodyWasAskedAboutIsFound(t *testing.T) {
	d := decided{byID: map[string]answered{}, byTool: map[string]int{}}
	asked := func(id, tool string, denied bool) {
		d.note(&Call{
			name: tool, Event: ahp.Event{Type: ahp.PreAction, Metadata: payload{}.with("tool_use_id", id)},
		}, Output{denied: denied})
	}
	asked("1", "Bash", false)
	asked("2", "Bash", true)
	asked("3", "Read", false)
	asked("", "shell", false)
	asked("", "shell", true)
	for _, c := range []struct {
		id, tool, member, output string
		ok, fine                 bool
	}{
		{"1", "Bash", "name", "", true, true},
		{"1", "", "name", "", true, true}, // a result whose call was not seen
		{"2", "Bash", "name", "denied", false, true},
		{"2", "Bash", "name", "", true, false},
		{"3", "Bash", "name", "", true, false}, // asked about a harmless one under the same id
		{"4", "Bash", "name", "", true, false},
		{"4", "Bash", "name", "Exit code 1", false, false}, // it has begun
		{"4", "Bash", "name", "<tool_use_error>InputValidationError", false, true},
		{"srvtoolu_1", "web_search", "name", "", true, true},
		{"a", "shell", "tool_name", "", true, true},
		{"b", "shell", "tool_name", "", false, true},
		{"c", "shell", "tool_name", "", true, false},
		{"d", "other", "tool_name", "", true, false},
	} {
		why := d.Unasked(engine.Event{Type: engine.Acted, Phase: engine.Done, OK: &c.ok, Action: &engine.Action{
			ID: c.id, Kind: engine.Tool, Detail: map[string]any{c.member: c.tool, "result_preview": c.output},
		}})
		if (why == "") != c.fine {
			t.Errorf("%+v: %q", c, why)
		}
	}
	yes := true
	if why := d.Unasked(engine.Event{
		Type: engine.Acted, Phase: engine.Done, OK: &yes, Action: &engine.Action{ID: "n", Kind: engine.Note},
	}); why != "" {
		t.Error(why)
	}
}

// TestWhatCodexWasNotAskedAboutIsFound by its kind: codex tells its hooks other ids than its stream.
func TestWhatCodexWasNotAskedAboutIsFound(t *testing.T) {
	d := decided{byID: map[string]answered{}, byTool: map[string]int{}}
	for tool, denied := range map[string]bool{"Bash": false, "apply_patch": false, "mcp__files__read": false, "exec_command": true} {
		d.note(&Call{name: tool, Event: ahp.Event{
			Type: ahp.PreAction, AgentID: "codex", Metadata: payload{}.with("tool_use_id", "call_1"),
		}}, Output{denied: denied})
	}
	for i, c := range []struct {
		kind     engine.Kind
		ok, fine bool
		exit     any
	}{
		{engine.Command, false, true, nil},       // it was denied, or could not begin
		{engine.Command, false, true, int64(3)},  // the one that was allowed
		{engine.Command, false, false, int64(3)}, // another one
		{engine.Command, true, false, int64(0)},
		{engine.FileChange, true, true, nil},
		{engine.FileChange, true, false, nil},
		{engine.Tool, true, true, nil},
		{engine.Tool, true, false, nil},
		{engine.WebSearch, true, true, nil}, // the provider's
	} {
		why := d.Unasked(engine.Event{
			Type: engine.Acted, Engine: "codex", Phase: engine.Done, OK: &c.ok,
			Action: &engine.Action{ID: "item_1", Kind: c.kind, Detail: map[string]any{"exit_code": c.exit}},
		})
		if (why == "") != c.fine {
			t.Errorf("%d %+v: %q", i, c, why)
		}
	}
}
