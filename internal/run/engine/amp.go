package engine

import (
	"regexp"
	"slices"
	"strings"
)

// amp is Sourcegraph's Amp. Its stream is that of `amp --stream-json`, read from builds
// of 2026.
func amp() *Engine {
	return &Engine{
		Name:  "amp",
		needs: []string{"AMP_*"},
		label: "amp", title: "amp", Install: "npm install -g @ampcode/cli", AllowAll: true,
		args: ampArgs, permit: ampPermit,
		line:    func(token string) string { return "amp threads continue " + token },
		pattern: regexp.MustCompile("(?im)^\\s*`?amp\\s+threads\\s+continue\\s+(T-[A-Za-z0-9-]+)`?\\s*$"),
		start:   func() translator { return &ampStream{} },
	}
}

// ampArgs has -x last and without a value, so that amp reads the prompt from standard
// input (RUN-17). Amp's own document puts the prompt after --stream-json, which today's
// build takes for an unknown command.
func ampArgs(j Job) []string {
	stream := []string{"--stream-json"}
	if j.Settings.StreamInput {
		stream = append(stream, "--stream-json-input")
	}
	return slices.Concat(j.sessionOption([]string{"threads", "continue", "--last"}, "threads", "continue"),
		j.permissions(j.allowAllOption("--dangerously-allow-all")), option("--mode", or(j.Override, j.Settings.Mode)),
		stream, []string{"-x"})
}

// ampStream translates `amp --stream-json`.
type ampStream struct {
	noResult
	init bool // there was one
}

// line takes one line. The session is learned from any line, but started waits for
// init, which has what people want to see beside it.
func (a *ampStream) line(s *Stream, v value) {
	var kind, subtype, session, parent, message value
	v.each(func(name []byte, m value) {
		switch string(name) {
		case "type":
			kind = m
		case "subtype":
			subtype = m
		case "session_id":
			session = m
		case "parent_tool_use_id":
			parent = m
		case "message":
			message = m
		}
	})
	what := kind.str()
	// Lines of other types do not count, not even for the session: amp's stream has no
	// others today.
	switch what {
	case "system", "assistant", "user", "result":
	default:
		return
	}
	s.setSession(session.str())
	if what == "system" && subtype.is("init") {
		a.init = true
	}
	if a.init {
		a.begin(s)
	}
	switch what {
	case "assistant":
		a.assistant(s, message, parent.str())
	case "user":
		message.get("content").items(func(block value) { a.result(s, block, parent.str()) })
	case "result":
		a.complete(s, v, subtype.str())
	}
}

// begin titles the run after the configured model. That is only a label: amp chooses
// models by its mode.
func (a *ampStream) begin(s *Stream) {
	title, meta := or(s.job.Settings.Model, s.engine.title), map[string]any{}
	if model := or(s.job.Override, or(s.job.Settings.Mode, s.job.Settings.Model)); model != "" {
		meta["model"] = model
	}
	s.begin(title, meta)
}

// assistant takes what the model said: its usage, and blocks of text and tool calls in
// order. Other blocks, such as thinking, are not shown.
func (a *ampStream) assistant(s *Stream, message value, parent string) {
	a.count(s, message.get("usage"))
	message.get("content").items(func(block value) {
		switch block.get("type").str() {
		case "text":
			// RUN-8.
			if parent == "" { // what a nested agent says is not the answer
				s.appendAnswer(block.get("text").str())
			}
		case "tool_use":
			a.use(s, block, parent)
		}
	})
}

// count adds the usage of one message. Amp's result has none, so the messages are added
// up; a value that is not an integer is ignored (RUN-14).
func (a *ampStream) count(s *Stream, usage value) {
	var t Tokens
	some := false
	usage.each(func(name []byte, m value) {
		n, ok := m.integer()
		if !ok {
			return
		}
		switch string(name) {
		case "input_tokens":
			t.Input, some = n, true
		case "output_tokens":
			t.Output, some = n, true
		case "cache_creation_input_tokens":
			t.CacheWrite, some = n, true
		case "cache_read_input_tokens":
			t.CacheRead, some = n, true
		}
	})
	if some {
		s.usage.Calls++
		s.addTokens("", t)
	}
}

// use starts the action of a tool call. Without an id nothing could end it, so it is
// left out.
func (a *ampStream) use(s *Stream, block value, parent string) {
	var id, name, input value
	block.each(func(n []byte, m value) {
		switch string(n) {
		case "id":
			id = m
		case "name":
			name = m
		case "input":
			input = m
		}
	})
	if id.str() == "" {
		return
	}
	s.emitBegun(s.toolAction(id.str(), name, input, parent))
}

// toolAction is a tool call as the streams of amp and gemini have it.
func (s *Stream) toolAction(id string, name, input value, parent string) *Action {
	c := call{name: "tool", input: input.object(), dir: s.job.Dir, paths: plainPaths}
	// The vectors of amp expect that only file_path and path are read.
	if s.engine.Name != "amp" {
		c.paths = allPaths
	}
	if name.truthy() {
		c.name = name.shown()
	}
	kind, title := c.describe()
	detail := map[string]any{"tool_name": c.name, "input": c.input.raw(), "tool_id": id}
	if parent != "" {
		detail["parent_tool_use_id"] = parent
	}
	addChange(detail, kind, c)
	return &Action{ID: id, Kind: kind, Title: title, Detail: detail}
}

// addChange names the file that a call changes, with the path exactly as the tool was
// given it.
func addChange(detail map[string]any, kind Kind, c call) {
	if path := c.path(); kind == FileChange && path != "" {
		detail["changes"] = []map[string]any{{"path": path, "kind": "update"}}
	}
}

// result ends the action of a tool result. A result without a known call is ignored.
func (a *ampStream) result(s *Stream, block value, parent string) {
	var kind, id, failed, content value
	block.each(func(n []byte, m value) {
		switch string(n) {
		case "type":
			kind = m
		case "tool_use_id":
			id = m
		case "is_error":
			failed = m
		case "content":
			content = m
		}
	})
	if !kind.is("tool_result") {
		return
	}
	action := s.closeAction(id.str())
	if action == nil {
		return
	}
	if parent != "" {
		action.Detail["parent_tool_use_id"] = parent
	}
	if output := outputText(content); output != "" {
		action.Detail["output_preview"] = preview(output)
	}
	s.emitDone(action, !failed.truthy())
}

// outputText is the text in a tool's result: a string, or the texts of its blocks in
// lines.
func outputText(content value) string {
	if text, ok := content.text(); ok {
		return text
	}
	var parts []string
	content.items(func(block value) {
		if block.get("type").is("text") {
			text := block.get("text")
			if text.is("") && !text.truthy() {
				parts = append(parts, "")
				return
			}
			parts = append(parts, text.shown())
		}
	})
	return strings.Join(parts, "\n")
}

// complete takes the result. Its text is the answer if the agent has said nothing (RUN-8), or why the run has failed; a
// failure without a reason gets one (RUN-7).
func (a *ampStream) complete(s *Stream, v value, subtype string) {
	if cost, ok := v.get("total_cost_usd").number(); ok {
		s.usage.CostUSD = &cost
	}
	s.usage.DurationMS, _ = v.get("duration_ms").integer()
	s.usage.Turns, _ = v.get("num_turns").integer()
	failed := string(v.get("is_error")) == "true"
	problem := or(v.get("error").str(), v.get("result").str())
	if failed && problem == "" {
		problem = "amp run failed"
		if subtype != "" {
			problem += " (" + subtype + ")"
		}
	}
	if !failed && len(s.answer) == 0 {
		s.setAnswer(v.get("result").str())
	}
	s.complete(!failed, problem)
}
