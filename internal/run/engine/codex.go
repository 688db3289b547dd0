package engine

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

func codex() *Engine {
	return &Engine{
		Name: "codex", label: "codex exec", title: "Codex", Install: "npm install -g @openai/codex",
		args: codexArgs,
		// Tried with 0.166.0: the flag for that runs what .codex/hooks.json of the folder says.
		unguarded: "it takes hooks for one run only together with whatever hooks the folder brings, which nobody has " +
			"reviewed; `signalbox hook install codex` supervises all of its sessions instead",
		line:    func(token string) string { return "codex resume " + token },
		pattern: regexp.MustCompile("(?im)^\\s*`?codex\\s+resume\\s+([^`\\s]+)`?\\s*$"),
		start:   func() translator { return &codexStream{} },
	}
}

func codexArgs(j Job) []string {
	args := []string{"-c", "notify=[]"}
	if model := j.model(); model != "" {
		args = append(args, "--model", model)
	}
	args = append(args, "exec", "--json", "--skip-git-repo-check", "--color=never")
	switch {
	case j.allowAll():
		args = append(args, "--dangerously-bypass-approvals-and-sandbox")
	case j.Settings.Mode != "":
		args = append(args, "--sandbox", j.Settings.Mode)
	}
	switch {
	case j.Resume.Latest:
		args = append(args, "resume", "--last")
	case j.Resume.Value != "":
		args = append(args, "resume", j.Resume.Value)
	}
	return append(args, "-")
}

// codexStream translates `codex exec --json`.
type codexStream struct {
	turns  int
	answer bool // the answer is the final one, not the last thing said
}

func (c *codexStream) begin(s *Stream) {
	meta := map[string]any{}
	if s.usage.Model != "" {
		meta["model"] = s.usage.Model
	}
	s.begin(s.engine.title, meta)
}

// end: codex may leave without saying that the turn is over, with its work done.
func (c *codexStream) end(s *Stream) (bool, string) {
	if s.session == "" {
		return false, "codex exec finished but no session_id/thread_id was captured"
	}
	return true, ""
}

func (c *codexStream) line(s *Stream, v value) {
	switch v.get("type").str() {
	case "thread.started":
		s.learn(v.get("thread_id").str())
		c.begin(s)
	case "turn.started":
		s.reset("")
		c.answer = false
		s.act(&Action{ID: fmt.Sprintf("turn_%d", c.turns), Kind: Turn, Title: "turn started", Detail: map[string]any{}})
		c.turns++
	case "item.started":
		c.item(s, v.get("item"), Begun)
	case "item.updated":
		c.item(s, v.get("item"), Updated)
	case "item.completed":
		c.item(s, v.get("item"), Done)
	case "error":
		c.problem(s, v.get("message").str())
	case "turn.completed":
		c.count(s, v.get("usage"))
		s.complete(true, "", "")
	case "turn.failed":
		s.complete(false, "", or(v.get("error").get("message").str(), "codex turn failed"))
	}
}

func (c *codexStream) count(s *Stream, usage value) {
	var t Tokens
	var some bool
	t.Input, some = usage.get("input_tokens").integer()
	t.Output, _ = usage.get("output_tokens").integer()
	t.CacheRead, _ = usage.get("cached_input_tokens").integer()
	t.CacheWrite, _ = usage.get("cache_write_input_tokens").integer()
	t.Reasoning, _ = usage.get("reasoning_output_tokens").integer()
	s.usage.Turns = int64(c.turns)
	if some {
		s.count(t)
	}
}

var reconnecting = regexp.MustCompile(`^Reconnecting\.\.\.(?: (\d+)/(\d+))?`)

// problem is an error of the stream. Codex tries again by itself, so the run goes on.
func (c *codexStream) problem(s *Stream, message string) {
	m := reconnecting.FindStringSubmatch(message)
	if m == nil {
		s.note(or(message, "codex error"))
		return
	}
	phase, detail := Updated, map[string]any{}
	if m[1] != "" {
		attempt, _ := strconv.Atoi(m[1])
		most, _ := strconv.Atoi(m[2])
		detail["attempt"], detail["max"] = attempt, most
		if attempt <= 1 {
			phase = Begun
		}
	}
	s.emit(Event{
		Type: Acted, Engine: s.engine.Name, Phase: phase, Level: "info",
		Action: &Action{ID: "codex.reconnect", Kind: Note, Title: message, Detail: detail},
	})
}

// item is a part of a turn.
func (c *codexStream) item(s *Stream, v value, phase Phase) {
	a := &Action{ID: v.get("id").str(), Detail: map[string]any{}}
	if a.ID == "" {
		return
	}
	ok := true
	switch v.get("type").str() {
	case "command_execution":
		ok = c.command(s, a, v, phase)
	case "mcp_tool_call":
		ok = c.tool(a, v)
	case "file_change":
		if phase != Done {
			return
		}
		ok = c.change(a, v)
	case "web_search":
		a.Kind, a.Title = WebSearch, or(v.get("query").str(), "search")
		a.Detail["query"] = v.get("query").str()
	case "todo_list":
		c.todo(a, v)
	case "reasoning":
		a.Kind, a.Title = Note, v.get("text").str()
	case "agent_message":
		if !c.message(s, a, v, phase) {
			return
		}
	case "error":
		if phase == Done {
			c.warn(s, a, v.get("message").str())
		}
		return
	default:
		return
	}
	switch phase {
	case Begun:
		s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Begun})
	case Updated:
		s.update(a)
	default:
		s.done(a, ok)
	}
}

func (c *codexStream) command(s *Stream, a *Action, v value, phase Phase) bool {
	a.Kind, a.Title = Command, relativeCommand(v.get("command").str(), s.job.Dir)
	if phase != Done {
		return true
	}
	status := v.get("status").str()
	a.Detail["status"] = status
	a.Detail["exit_code"] = nil
	exit, known := v.get("exit_code").integer()
	if known {
		a.Detail["exit_code"] = exit
	}
	if output := v.get("aggregated_output").str(); output != "" {
		a.Detail["output_preview"] = preview(output)
	}
	return status == "completed" && exit == 0
}

func (c *codexStream) tool(a *Action, v value) bool {
	server, tool, status := v.get("server").str(), v.get("tool").str(), v.get("status").str()
	a.Kind, a.Title = Tool, server+"."+tool
	a.Detail["server"], a.Detail["tool"], a.Detail["status"] = server, tool, status
	if args := v.get("arguments"); len(args) > 0 {
		a.Detail["arguments"] = args.raw()
	}
	problem := v.get("error")
	if message := problem.get("message").str(); message != "" {
		a.Detail["error_message"] = message
	}
	if result := v.get("result"); result.truthy() {
		blocks := 0
		result.get("content").items(func(value) { blocks++ })
		a.Detail["result_summary"] = map[string]any{
			"content_blocks": blocks,
			"has_structured": result.get("structured_content").truthy(),
		}
	}
	return status == "completed" && !problem.truthy()
}

func (c *codexStream) change(a *Action, v value) bool {
	var paths []string
	v.get("changes").items(func(change value) { paths = append(paths, change.get("path").str()) })
	a.Kind, a.Title = FileChange, or(strings.Join(paths, ", "), "files")
	if changes := v.get("changes"); len(changes) > 0 {
		a.Detail["changes"] = changes.raw()
	}
	a.Detail["status"] = v.get("status").str()
	return v.get("status").is("completed")
}

func (c *codexStream) todo(a *Action, v value) {
	done, total, next := 0, 0, ""
	v.get("items").items(func(item value) {
		total++
		if item.get("completed").truthy() {
			done++
		} else if next == "" {
			next = item.get("text").str()
		}
	})
	a.Kind, a.Title = Note, fmt.Sprintf("todo %d/%d: %s", done, total, or(next, "done"))
	a.Detail["done"], a.Detail["total"] = done, total
}

// message is what the agent says; whether it is shown as an action. The answer is the
// final one, or the last that does not say what it is.
func (c *codexStream) message(s *Stream, a *Action, v value, phase Phase) bool {
	text, of := v.get("text").str(), v.get("phase").str()
	if of == "commentary" {
		a.Kind, a.Title, a.Detail["phase"] = Note, text, of
		return true
	}
	if final := of == "final_answer"; phase == Done && (final || !c.answer) {
		s.reset(text)
		c.answer = final
	}
	return false
}

func (c *codexStream) warn(s *Stream, a *Action, message string) {
	no := false
	a.Kind, a.Title, a.Detail["message"] = Warning, message, message
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Done, OK: &no, Message: message, Level: "warning"})
}
