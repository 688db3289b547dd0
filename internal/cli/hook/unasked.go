package hook

import (
	"fmt"
	"strings"
	"sync"

	"signalbox/client/ahp"
	"signalbox/internal/run/engine"
)

// decided is what the hooks of a run were asked about, by the ids of calls, or by tools where a CLI tells no
// ids. It is written before the CLI hears the answer, so it is there before any result.
type decided struct {
	mu     sync.Mutex
	byID   map[string]answered
	byTool map[string]int // calls without a result yet
}

// answered is one call: its tool, and whether it was denied.
type answered struct {
	tool   string
	denied bool
}

// note remembers the answer to a call.
func (d *decided) note(c *Call, out Output) {
	if c.Event.Type != ahp.PreAction {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, _ := c.Event.Metadata["tool_use_id"].(string)
	switch {
	case c.Event.AgentID == "codex": // whose stream has other ids, and kinds instead of names
		if !out.denied {
			d.byTool[string(codexKind(c.name))]++
		}
	case id != "":
		d.byID[id] = answered{c.name, out.denied}
	default:
		d.byTool[c.name]++
	}
}

// codexKind is the kind of action that codex shows for a call of a tool.
func codexKind(tool string) engine.Kind {
	switch {
	case tool == "apply_patch":
		return engine.FileChange
	case strings.HasPrefix(tool, "mcp__"):
		return engine.Tool
	}
	return engine.Command
}

// Unasked says what an event of the run shows to be done without a decision, or against one (RUN-45); "" if
// nothing. Each event is given to it once.
func (d *decided) Unasked(e engine.Event) string {
	if e.Type != engine.Acted || e.Phase != engine.Done || e.Action == nil {
		return ""
	}
	switch e.Action.Kind {
	case engine.Note, engine.Warning, engine.Turn:
		return ""
	}
	id, done := e.Action.ID, e.OK != nil && *e.OK
	if e.Engine == "codex" {
		return d.unaskedByKind(e, done)
	}
	text := func(name string) string { value, _ := e.Action.Detail[name].(string); return value }
	tool := text("name") + text("tool_name") // as Claude Code and opencode have it, or amp, gemini and pi
	d.mu.Lock()
	defer d.mu.Unlock()
	call, known := d.byID[id]
	switch {
	case known && call.denied && done:
		return fmt.Sprintf("%s: %s was denied, and was done all the same (%s)", engine.Unasked, tool, id)
	case known && (tool == "" || call.tool == tool):
		return ""
	case d.byTool[tool] > 0:
		d.byTool[tool]--
		return ""
	case strings.HasPrefix(id, providersID):
		return ""
	// What fails before it begins is asked about by nobody: a tool that does not exist, arguments that do not
	// fit. A command that fails has begun; amp does not tell the two apart.
	case !done && (strings.HasPrefix(text("result_preview"), "<tool_use_error>") || text("tool_name") != "" ||
		e.Engine == "opencode" && text("error") != ""):
		return ""
	}
	return fmt.Sprintf("%s: %s (%s)", engine.Unasked, tool, id)
}

// unaskedByKind is Unasked for codex. A command has run if it has an exit code, whatever became of it; the search of the
// provider runs nothing here.
func (d *decided) unaskedByKind(e engine.Event, done bool) string {
	kind := string(e.Action.Kind)
	if ran := done || e.Action.Detail["exit_code"] != nil; !ran || e.Action.Kind == engine.WebSearch {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byTool[kind] > 0 {
		d.byTool[kind]--
		return ""
	}
	return fmt.Sprintf("%s: %s (%s)", engine.Unasked, kind, e.Action.ID)
}

// providersID begins the ids of calls that the provider of a model runs, and nothing on this machine.
const providersID = "srvtoolu_"
