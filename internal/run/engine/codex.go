package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// codex is OpenAI's Codex CLI.
func codex() *Engine {
	return &Engine{
		Name:  "codex",
		needs: []string{"OPENAI_*", "CODEX_*"},
		meter: &Meter{Provider: "openai", Key: "OPENAI_API_KEY", Base: "OPENAI_BASE_URL"},
		late:  "says what it has used only at the end of a turn",
		label: "codex exec", title: "Codex", Install: "npm install -g @openai/codex",
		args: codexArgs, permit: codexPermit, cannot: codexCannot, ownModes: true,
		line:    func(token string) string { return "codex resume " + token },
		pattern: regexp.MustCompile("(?im)^\\s*`?codex\\s+resume\\s+([^`\\s]+)`?\\s*$"),
		start:   func() translator { return &codexStream{} },
	}
}

// codexArgs turns notifications off, since they would start a program of the person's
// configuration. The dash at the end makes codex read the prompt from standard input.
func codexArgs(j Job) []string {
	sandbox := option("--sandbox", j.Settings.Mode)
	if j.Settings.AllowAll {
		sandbox = []string{"--dangerously-bypass-approvals-and-sandbox"}
	}
	return slices.Concat([]string{"-c", "notify=[]"}, codexMeter(j.Metered), option("--model", j.model()),
		[]string{"exec", "--json", "--skip-git-repo-check", "--color=never"}, j.permissions(sandbox),
		j.sessionOption([]string{"resume", "--last"}, "resume"), []string{"-"})
}

// codexMeter makes codex call its models at an address of ours. The secret is in a variable, since everybody on the
// machine sees the arguments. Tried with 0.166.0.
func codexMeter(m *Metered) (args []string) {
	if m == nil {
		return nil
	}
	provider := "model_providers." + ownProvider
	for _, setting := range []string{
		"model_provider=" + strconv.Quote(ownProvider), provider + `.name="Signalbox"`, provider + `.wire_api="responses"`,
		provider + ".base_url=" + strconv.Quote(m.URL), provider + ".env_key=" + strconv.Quote(m.Variable),
	} {
		args = append(args, "-c", setting)
	}
	return args
}

// ownProvider is the name under which a CLI knows us as a provider of models.
const ownProvider = "signalbox"

// codexStream translates `codex exec --json`.
type codexStream struct {
	// turns counts the turns, which are numbered from 0 in their actions.
	turns  int
	did    int  // what it has begun to do
	answer bool // the answer is the final one, not the last thing said
}

// begin has no more to tell than the model that was asked for: codex does not name its
// own.
func (c *codexStream) begin(s *Stream) { s.beginWithModel() }

// end takes a silent exit for success if there was a session: codex may leave with its
// work done and without the end of the turn (RUN-25).
func (c *codexStream) end(s *Stream) (bool, string) {
	if s.session == "" {
		return false, "codex exec finished but no session_id/thread_id was captured"
	}
	return true, ""
}

// line takes one line. A new turn starts the answer again.
func (c *codexStream) line(s *Stream, v value) {
	switch v.get("type").str() {
	case "thread.started":
		s.setSession(v.get("thread_id").str())
		c.begin(s)
	case "turn.started":
		s.setAnswer("")
		c.answer = false
		s.emitBegun(&Action{ID: fmt.Sprintf("turn_%d", c.turns), Kind: Turn, Title: "turn started", Detail: map[string]any{}})
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
		s.complete(true, "")
	case "turn.failed":
		s.complete(false, or(v.get("error").get("message").str(), "codex turn failed"))
	}
}

// count takes the usage at the end of a turn, which is that of the whole session (RUN-47). Only a session that this
// run has begun is this run's. Cached tokens are part of the input; see Usage.Apart.
func (c *codexStream) count(s *Stream, usage value) {
	var t Tokens
	var some bool
	t.Input, some = usage.get("input_tokens").integer()
	t.Output, _ = usage.get("output_tokens").integer()
	t.CacheRead, _ = usage.get("cached_input_tokens").integer()
	t.CacheWrite, _ = usage.get("cache_write_input_tokens").integer()
	t.Reasoning, _ = usage.get("reasoning_output_tokens").integer()
	s.usage.Turns = int64(c.turns)
	if !some {
		return
	}
	// A model is called once for each thing that it does, and to end the turn.
	s.usage.Calls = int64(c.did + c.turns)
	s.counted, s.usage.Session = true, &Total{Tokens: t.Bounded(mostTokens)}
	if s.job.Resume == (Resume{Engine: s.job.Resume.Engine}) {
		s.setTokens(map[string]Tokens{"": s.usage.Session.Tokens})
	}
}

// reconnecting matches the beginning only: newer versions put the reason behind it.
var reconnecting = regexp.MustCompile(`^Reconnecting\.\.\.(?: (\d+)/(\d+))?`)

// problem shows an error of the stream. Codex tries again by itself, so the run goes
// on; a reconnect is one action that is updated with each attempt.
func (c *codexStream) problem(s *Stream, message string) {
	m := reconnecting.FindStringSubmatch(message)
	if m == nil {
		s.emitWarning(or(message, "codex error"))
		return
	}
	phase, detail := Updated, map[string]any{}
	// The first attempt begins the action, and later ones update it. Older versions do not
	// count.
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

// item takes a part of a turn in one of its phases. exit_code, result and error are
// optional in today's streams, so a part that has only begun is shown too.
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
		c.did++
		s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Begun})
	case Updated:
		s.emitUpdated(a)
	default:
		s.emitDone(a, ok)
	}
}

// command describes a command. It has succeeded if it completed and did not exit with
// another code than 0.
func (c *codexStream) command(s *Stream, a *Action, v value, phase Phase) bool {
	a.Kind, a.Title = Command, relativeCommand(v.get("command").str(), s.job.Dir)
	if phase != Done {
		return true
	}
	status := v.get("status").str()
	a.Detail["status"] = status
	a.Detail["exit_code"] = nil
	// exit_code is optional in today's streams; without it the status alone decides.
	exit, known := v.get("exit_code").integer()
	if known {
		a.Detail["exit_code"] = exit
	}
	if output := v.get("aggregated_output").str(); output != "" {
		a.Detail["output_preview"] = preview(output)
	}
	return status == "completed" && exit == 0
}

// tool describes a call of an MCP server. The result is summed up, since it may be
// large.
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

// change describes files that were changed.
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

// todo sums up the list of tasks: how many are done, and the next.
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

// message takes what the agent says, and reports whether it is shown as an action:
// commentary is. The answer is the one that codex calls final, or else the last one
// without a phase.
func (c *codexStream) message(s *Stream, a *Action, v value, phase Phase) bool {
	text, of := v.get("text").str(), v.get("phase").str()
	if of == "commentary" {
		a.Kind, a.Title, a.Detail["phase"] = Note, text, of
		return true
	}
	// A final answer is not replaced by a later message without a phase.
	if final := of == "final_answer"; phase == Done && (final || !c.answer) {
		s.setAnswer(text)
		c.answer = final
	}
	return false
}

// warn shows an item that is an error. The run goes on.
func (c *codexStream) warn(s *Stream, a *Action, message string) {
	no := false
	a.Kind, a.Title, a.Detail["message"] = Warning, message, message
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Done, OK: &no, Message: message, Level: "warning"})
}
