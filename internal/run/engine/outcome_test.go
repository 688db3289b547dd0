package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/run/engine"
)

// TestOnlyARunThatWasEndedHasAnOutcome, so that recorded streams stay as they are.
func TestOnlyARunThatWasEndedHasAnOutcome(t *testing.T) {
	amp, err := engine.Find("amp")
	if err != nil {
		t.Fatal(err)
	}
	for cause, want := range map[engine.Cause]string{
		"": "", engine.ByPerson: "cancelled", engine.ByBudget: "stopped", engine.ByTime: "stopped", engine.ByPolicy: "stopped",
		"whim": "",
	} {
		if got := cause.Outcome(); got != want {
			t.Errorf("%s: %q", cause, got)
		}
	}
	for _, c := range []struct {
		exit engine.Exit
		want string
	}{
		{engine.Exit{Reason: "enough", Cause: engine.ByPerson}, `"error":"enough","usage":null,"outcome":"cancelled","cause":"person"}`},
		{engine.Exit{Reason: "no such program"}, `"error":"no such program","usage":null}`},
	} {
		var last engine.Event
		s := amp.NewStream(engine.Job{}, func(e engine.Event) { last = e })
		s.Finish(c.exit)
		line, err := last.Line(nil)
		if err != nil || !strings.HasSuffix(string(line), c.want+"\n") {
			t.Errorf("%v %s", err, line)
		}
		var again engine.Event
		if err := json.Unmarshal(line, &again); err != nil || again.Cause != last.Cause || again.Outcome != last.Outcome {
			t.Errorf("%v %+v", err, again)
		}
	}
	// What a success was told meanwhile does not matter.
	var last engine.Event
	s := amp.NewStream(engine.Job{}, func(e engine.Event) { last = e })
	s.Line([]byte(`{"type":"result","session_id":"T-1","result":"done"}`))
	s.Finish(engine.Exit{Reason: "enough", Cause: engine.ByPerson})
	if !*last.OK || last.Cause != "" {
		t.Errorf("%+v", last)
	}
}

// TestClaudeThatStopsAtItsBudgetWasStopped: it was told the budget by us.
func TestClaudeThatStopsAtItsBudgetWasStopped(t *testing.T) {
	claude, err := engine.Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[float64]engine.Cause{0: "", 2: engine.ByBudget} {
		var last engine.Event
		s := claude.NewStream(engine.Job{MaxUSD: most}, func(e engine.Event) { last = e })
		s.Line([]byte(`{"type":"result","subtype":"error_max_budget_usd","is_error":true,"session_id":"s"}`))
		if *last.OK || last.Cause != want {
			t.Errorf("with a budget of %g: %+v", most, last)
		}
	}
}

// TestMalformedLinesAreTold, the first ones each and the others by their number.
func TestMalformedLinesAreTold(t *testing.T) {
	gemini, err := engine.Find("gemini")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	s := gemini.NewStream(engine.Job{}, func(e engine.Event) {
		if e.Action != nil && e.Action.Kind == engine.Warning {
			told = append(told, e.Message)
		}
	})
	line := func(text string, malformed bool) {
		t.Helper()
		if s.Line([]byte(text)) == malformed {
			t.Errorf("%s: malformed should be %v", text, malformed)
		}
		if malformed {
			s.Malformed([]byte(text))
		}
	}
	line("Loaded cached credentials.", false) // told to people, before the stream begins
	line(`{"type":"init"`, true)
	line(`{"type":"init","session_id":"gx12"}`, false)
	line("", false)
	line("   ", false)
	line(`["not", "an", "event"]`, true)
	line(`{"type":"message"} see /srv/secret/plan and https://x.example/?key=1 `+strings.Repeat("x", 1000), true)
	line(`{"type":"something new"}`, false)
	for i := range 30 {
		line(fmt.Sprintf("{%d", i), true)
	}
	s.Line([]byte(`{"type":"result","status":"success"}`))
	s.Line([]byte("after the end"))
	if len(told) != 21 || told[20] != "gemini wrote 13 more lines that are not JSON, which were left out" {
		t.Errorf("%d: %q", len(told), told)
	}
	if told[0] != `gemini wrote a line that is not JSON, which was left out: {"type":"init"` ||
		strings.Contains(told[2], "secret") || len(told[2]) > 300 {
		t.Errorf("%q", told)
	}
}

// TestWhyAnActionHasFailed is read from what the engines say of it.
func TestWhyAnActionHasFailed(t *testing.T) {
	for name, c := range map[string]struct{ lines, want string }{
		"amp": {
			`{"type":"assistant","session_id":"T","message":{"content":[{"type":"tool_use","id":"a","name":"Bash","input":{"cmd":"make"}}]}}
{"type":"user","session_id":"T","message":{"content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":"make: no rule\nto make"}]}}`,
			"make: no rule to make",
		},
		"claude": {
			`{"type":"assistant","session_id":"T","message":{"content":[{"type":"tool_use","id":"a","name":"Bash","input":{"command":"make"}}]}}
{"type":"user","session_id":"T","message":{"content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":"Exit code 2"}]}}`,
			"Exit code 2",
		},
		"codex": {
			`{"type":"thread.started","thread_id":"T"}
{"type":"item.completed","item":{"id":"i","type":"command_execution","command":"make","status":"failed","exit_code":2,"aggregated_output":"no rule"}}`,
			"exit code 2: no rule",
		},
		"gemini": {
			`{"type":"tool_use","tool_id":"a","tool_name":"run_shell_command","parameters":{"command":"make"}}
{"type":"tool_result","tool_id":"a","status":"error","output":"no rule"}`,
			"no rule",
		},
		"opencode": {
			`{"type":"tool_use","sessionID":"ses_1","part":{"callID":"a","tool":"bash","state":{"status":"error","error":"permission denied","input":{}}}}`,
			"permission denied",
		},
		"pi": {
			`{"type":"tool_execution_start","toolCallId":"a","toolName":"bash","args":{"command":"make"}}
{"type":"tool_execution_end","toolCallId":"a","isError":true,"result":{"content":[{"type":"text","text":"no rule"}]}}`,
			"no rule",
		},
	} {
		e, err := engine.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		s := e.NewStream(engine.Job{}, func(e engine.Event) {
			line, _ := e.Line(nil)
			var recorded engine.Event // as a reader of the record has it
			if err := json.Unmarshal(line, &recorded); err != nil || e.Problem() != recorded.Problem() {
				t.Errorf("%v %q %q", err, e.Problem(), recorded.Problem())
			}
			if why := e.Problem(); why != "" {
				said = append(said, why)
			}
		})
		for line := range strings.Lines(c.lines) {
			s.Line([]byte(line))
		}
		if len(said) != 1 || said[0] != c.want {
			t.Errorf("%s: %q", name, said)
		}
	}
}
