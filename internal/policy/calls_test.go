package policy_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/policy"
)

// callGroup is a group of calls in testdata/calls.yaml that get the same verdict.
type callGroup struct {
	Name  string
	Then  policy.Action
	Rule  string
	Cwd   string
	Shell []string
	Calls []toolCall
}

type toolCall struct {
	Tool      string
	Toolset   string
	Arguments map[string]any
}

func callGroups(tb testing.TB) (groups []callGroup) {
	tb.Helper()
	text, err := os.ReadFile("testdata/calls.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &groups)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return groups
}

// clients are how agents say that a shell text is to be run.
var clients = map[string]func(text string) toolCall{
	"Claude Code": func(text string) toolCall {
		return toolCall{
			Tool:      "Bash",
			Arguments: map[string]any{"command": text, "description": "List files", "timeout": 1000},
		}
	},
	"Codex hook": func(text string) toolCall { return toolCall{Tool: "Bash", Arguments: map[string]any{"command": text}} },
	"Codex shell": func(text string) toolCall {
		return toolCall{
			Tool:      "shell",
			Arguments: map[string]any{"command": []any{"bash", "-lc", text}, "workdir": "/srv/app"},
		}
	},
	"Codex exec_command": func(text string) toolCall {
		return toolCall{Tool: "exec_command", Arguments: map[string]any{"cmd": text, "yield_time_ms": 1000}}
	},
	"Gemini CLI": func(text string) toolCall {
		return toolCall{Tool: "run_shell_command", Arguments: map[string]any{"command": text, "description": "x"}}
	},
	"Amp":      func(text string) toolCall { return toolCall{Tool: "Bash", Arguments: map[string]any{"cmd": text}} },
	"opencode": func(text string) toolCall { return toolCall{Tool: "bash", Arguments: map[string]any{"command": text}} },
	"MCP": func(text string) toolCall {
		return toolCall{Tool: "mcp__shell__execute_command", Arguments: map[string]any{"command": text}}
	},
	"a tool that nobody knows": func(text string) toolCall {
		return toolCall{Tool: "do_it", Toolset: "box", Arguments: map[string]any{"command": text}}
	},
	"OpenAI local_shell": func(text string) toolCall {
		return toolCall{Tool: "local_shell", Arguments: map[string]any{
			"action": map[string]any{"type": "exec", "command": []any{"sh", "-c", text}, "working_directory": "/srv/app"},
		}}
	},
	"OpenAI shell": func(text string) toolCall {
		return toolCall{Tool: "shell", Arguments: map[string]any{"action": map[string]any{"commands": []any{text}}}}
	},
}

// TestOneVerdictWhateverTheToolIsCalled puts every call of testdata/calls.yaml to the default policy,
// each shell text as each client says it, at both points where tools are called.
func TestOneVerdictWhateverTheToolIsCalled(t *testing.T) {
	p := parse(t, string(policy.Default()))
	for _, g := range callGroups(t) {
		t.Run(strings.ReplaceAll(g.Name, " ", "-"), func(t *testing.T) {
			if g.Cwd == "" {
				g.Cwd = "/srv/app"
			}
			check := func(what string, c toolCall) bool {
				for _, point := range []policy.Point{policy.OnAction, policy.OnToolCall} {
					e := policy.Event{Point: point, Tool: c.Tool, Toolset: c.Toolset, Arguments: c.Arguments, CWD: g.Cwd}
					v := p.Decide(t.Context(), policy.Input{Event: &e})
					if v.Action != g.Then || !named(g.Rule, v.Rule) {
						f := e.Facts()
						t.Errorf("%s at %s: %s by %s (%s), want %s by %s\ndeletes %q writes %q reads %q hosts %q opaque %q\n%+v",
							what, point, v.Action, v.Rule, v.Reason, g.Then, g.Rule, f.Deletes, f.Writes, f.Reads, f.Hosts, f.Opaque,
							f.Commands)
						return false
					}
				}
				return true
			}
			for _, text := range g.Shell {
				for name, call := range clients {
					if !check(fmt.Sprintf("%s: %q", name, text), call(text)) {
						break // the others say the same
					}
				}
			}
			for _, c := range g.Calls {
				check(fmt.Sprintf("%s %v", c.Tool, c.Arguments), c)
			}
		})
	}
}

// named reports whether a rule is the one that a group names; its name may end with a *.
func named(want, got string) bool {
	begin, open := strings.CutSuffix(want, "*")
	return want == "" || want == got || (open && strings.HasPrefix(got, begin))
}
