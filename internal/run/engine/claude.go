package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// claude is Anthropic's Claude Code, in print mode.
func claude() *Engine {
	return &Engine{
		Name:  "claude",
		needs: []string{"ANTHROPIC_*", "CLAUDE_*"},
		costs: true,
		meter: &Meter{
			Provider: "anthropic", Key: "ANTHROPIC_API_KEY", Token: "ANTHROPIC_AUTH_TOKEN", Base: "ANTHROPIC_BASE_URL",
			Headers: "ANTHROPIC_CUSTOM_HEADERS",
		},
		label: "Claude Code", title: "claude", Install: "npm install -g @anthropic-ai/claude-code",
		args: claudeArgs, permit: claudePermit, cannot: claudeCannot, ownModes: true,
		line:    func(token string) string { return "claude --resume " + token },
		pattern: regexp.MustCompile("(?im)^\\s*`?claude\\s+(?:--resume|-r)\\s+([^`\\s]+)`?\\s*$"),
		start:   func() translator { return &claudeStream{} },
	}
}

// claudeArgs has no --input-format: with it, claude would expect messages of JSON on
// standard input instead of the prompt. Partial messages have the tokens that a message took; whole ones are written
// before the model has counted them (RUN-29).
func claudeArgs(j Job) []string {
	var most string
	if j.MaxUSD > 0 {
		most = strconv.FormatFloat(j.MaxUSD, 'f', -1, 64)
	}
	return slices.Concat([]string{"-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"},
		j.sessionOption([]string{"--continue"}, "--resume"), option("--model", j.model()),
		j.permissions(option("--permission-mode", j.Settings.Mode), j.allowAllOption("--dangerously-skip-permissions")),
		option("--max-budget-usd", most))
}

// claudeStream translates `claude -p --output-format stream-json --verbose`.
type claudeStream struct {
	noResult
	title    string
	meta     map[string]any
	thoughts int
	limits   int
	asked    int
	// recent are the messages that were counted last, the newest at the end. A message comes in one line for each of its
	// blocks, between those of subagents.
	recent  []claudeMessage
	current string // the message of the agent itself whose parts are being written
}

// claudeMessage is what was counted of a message.
type claudeMessage struct {
	id, model string
	tokens    Tokens
}

// maxRecent is how many messages may be written at the same time, by an agent and its subagents.
const maxRecent = 64

// begin has what init has told, or only the engine's name if there was none.
func (c *claudeStream) begin(s *Stream) { s.begin(or(c.title, s.engine.title), c.meta) }

// line takes one line. Most of the forty types of messages are not news for anybody.
func (c *claudeStream) line(s *Stream, v value) {
	s.setSession(v.get("session_id").str())
	switch v.get("type").str() {
	case "system":
		if v.get("subtype").is("init") {
			c.init(s, v)
		}
	case "assistant":
		c.assistant(s, v.get("message"), v.get("parent_tool_use_id").str())
	case "stream_event":
		if v.get("parent_tool_use_id").str() == "" {
			c.part(s, v.get("event"))
		}
	case "user":
		v.get("message").get("content").items(func(block value) { c.result(s, block) })
	case "rate_limit_event":
		c.limit(s, v.get("rate_limit_info"))
	case "control_request":
		c.control(s, v)
	case "result":
		c.complete(s, v)
	}
}

// init takes what the run works with. There is an init in every turn, and the first
// counts.
func (c *claudeStream) init(s *Stream, v value) {
	if s.started {
		return // there is one in every turn
	}
	c.meta = map[string]any{}
	for _, name := range []string{
		"cwd", "model", "tools", "permissionMode", "output_style", "apiKeySource",
		"mcp_servers",
	} {
		if m := v.get(name); len(m) > 0 {
			c.meta[name] = m.raw()
		}
	}
	c.title = v.get("model").str()
	s.usage.Model = or(c.title, s.usage.Model)
	c.begin(s)
}

// assistant takes what the model said. A later text replaces the answer: the last one
// says what came of the work, and the result repeats it.
func (c *claudeStream) assistant(s *Stream, message value, parent string) {
	c.count(s, message)
	message.get("content").items(func(block value) {
		switch block.get("type").str() {
		case "text":
			if text := block.get("text").str(); text != "" && parent == "" {
				s.setAnswer(text)
			}
		case "thinking":
			c.think(s, block, parent)
		case "tool_use", "server_tool_use":
			if id := block.get("id").str(); id != "" {
				s.emitBegun(c.use(s, id, block, parent))
			}
		}
	})
}

// count adds up while the run goes on. The lines of a message repeat its usage, and the
// last one is right, so only the change since the line before is added (RUN-29). The
// result has the sum, and replaces it.
func (c *claudeStream) count(s *Stream, message value) {
	if usage := message.get("usage"); len(usage) > 0 {
		c.countAs(s, message.get("id").str(), message.get("model").str(), claudeTokens(usage))
	}
}

// countAs counts what a message has taken by now.
func (c *claudeStream) countAs(s *Stream, id, model string, now Tokens) {
	i := slices.IndexFunc(c.recent, func(m claudeMessage) bool { return m.id == id && id != "" })
	if i < 0 {
		c.recent = append(c.recent[max(0, len(c.recent)-maxRecent+1):], claudeMessage{id: id, model: model})
		i = len(c.recent) - 1
		s.usage.Calls++
	}
	m := &c.recent[i]
	now.raise(m.tokens)
	more := now
	more.add(m.tokens, -1)
	m.tokens = now
	s.addTokens(m.model, more)
}

// part takes a part of a message of the agent itself. What the message took in all comes with the last one; parts of
// subagents' messages are not written.
func (c *claudeStream) part(s *Stream, event value) {
	switch event.get("type").str() {
	case "message_start":
		message := event.get("message")
		c.current = message.get("id").str()
		c.count(s, message)
	case "message_delta":
		i := slices.IndexFunc(c.recent, func(m claudeMessage) bool { return m.id == c.current && c.current != "" })
		if usage := event.get("usage"); i >= 0 && len(usage) > 0 {
			c.countAs(s, c.current, c.recent[i].model, claudeTokens(usage))
		}
	}
}

// claudeTokens reads usage as Anthropic's API has it.
func claudeTokens(usage value) (t Tokens) {
	t.Input, _ = usage.get("input_tokens").integer()
	t.Output, _ = usage.get("output_tokens").integer()
	t.CacheRead, _ = usage.get("cache_read_input_tokens").integer()
	t.CacheWrite, _ = usage.get("cache_creation_input_tokens").integer()
	t.CacheWrite1h, _ = usage.get("cache_creation").get("ephemeral_1h_input_tokens").integer()
	return t
}

// think shows a thought as a note. A redacted thought has no text and is left out.
func (c *claudeStream) think(s *Stream, block value, parent string) {
	text := block.get("thinking").str()
	if text == "" {
		return
	}
	c.thoughts++
	detail := map[string]any{}
	if parent != "" {
		detail["parent_tool_use_id"] = parent
	}
	s.emitDone(&Action{ID: fmt.Sprintf("claude.thinking.%d", c.thoughts), Kind: Note, Title: text, Detail: detail}, true)
}

// use is the action of a tool call. Its detail has the names that readers of claude's
// streams know.
func (c *claudeStream) use(s *Stream, id string, block value, parent string) *Action {
	t := call{name: "tool", input: block.get("input").object(), dir: s.job.Dir, paths: allPaths}
	if name := block.get("name"); name.truthy() {
		t.name = name.shown()
	}
	kind, title := t.describe()
	detail := map[string]any{"name": t.name, "input": t.input.raw()}
	if parent != "" {
		detail["parent_tool_use_id"] = parent
	}
	addChange(detail, kind, t)
	return &Action{ID: id, Kind: kind, Title: title, Detail: detail}
}

// result ends the action of a tool result. One without a known call is shown as an
// action of its own, so that nothing that happened is lost.
func (c *claudeStream) result(s *Stream, block value) {
	switch block.get("type").str() {
	case "tool_result", "advisor_tool_result":
	default:
		return
	}
	id := block.get("tool_use_id").str()
	if id == "" {
		return
	}
	action := s.closeAction(id)
	if action == nil {
		action = &Action{ID: id, Kind: Tool, Title: "tool result", Detail: map[string]any{}}
	}
	output, failed := outputText(block.get("content")), block.get("is_error").truthy()
	action.Detail["tool_use_id"] = id
	action.Detail["result_preview"] = preview(output)
	action.Detail["result_len"] = utf8.RuneCountInString(output)
	action.Detail["is_error"] = failed
	s.emitDone(action, !failed)
}

// limit shows a rate limit that holds the run up, or soon will. claude also reports
// that all is well, which is not shown.
func (c *claudeStream) limit(s *Stream, info value) {
	status := info.get("status").str()
	if status == "allowed" || status == "" {
		return
	}
	c.limits++
	title := "rate limit: " + status
	if kind := info.get("rateLimitType").str(); kind != "" {
		title += " (" + kind + ")"
	}
	yes := status != "rejected"
	s.emit(Event{
		Type: Acted, Engine: s.engine.Name, Phase: Done, OK: &yes, Level: "info",
		Action: &Action{
			ID: fmt.Sprintf("rate_limit_%d", c.limits), Kind: Note, Title: title,
			Detail: map[string]any{"info": info.raw()},
		},
	})
}

// control shows that the CLI asks for permission on its own stream. Nobody answers it
// there: the run was not started for that, so people should see why it hangs.
func (c *claudeStream) control(s *Stream, v value) {
	request := v.get("request")
	if !request.get("subtype").is("can_use_tool") {
		return
	}
	c.asked++
	s.emitBegun(&Action{
		ID: fmt.Sprintf("claude.control.%d", c.asked), Kind: Warning,
		Title: "asks for permission: " + request.get("tool_name").shown(),
		Detail: map[string]any{
			"request_id": v.get("request_id").str(), "tool_name": request.get("tool_name").str(),
			"input": request.get("input").object().raw(),
		},
	})
}

// complete takes the result. It may fail with the subtype success, such as "Not logged
// in", so is_error counts.
func (c *claudeStream) complete(s *Stream, v value) {
	s.usage.DurationMS, _ = v.get("duration_ms").integer()
	s.usage.Turns, _ = v.get("num_turns").integer()
	c.takeUsage(s, v)
	text, subtype := v.get("result").str(), v.get("subtype").str()
	// A subtype that begins with error is a failure, whatever is_error says.
	if failed := v.get("is_error").truthy() || strings.HasPrefix(subtype, "error"); failed {
		if subtype == "error_max_budget_usd" && s.job.MaxUSD > 0 {
			s.cause = ByBudget
		}
		s.complete(false, s.message(c.problem(v, text, subtype), Exit{}))
		return
	}
	if text != "" {
		s.setAnswer(text)
	}
	s.complete(true, "")
}

// takeUsage takes what the result says was used. Its usage is that of the agent itself, without subagents. modelUsage
// and total_cost_usd have these; since 2.1.198 or later they are those of the whole session, and then
// model_usage_since_last_result has those of this run (RUN-47).
func (c *claudeStream) takeUsage(s *Stream, v value) {
	var total *float64
	if cost, ok := v.get("total_cost_usd").number(); ok {
		total = &cost
	}
	if own, cost := c.byModel(s, v.get("model_usage_since_last_result")); len(own) > 0 {
		s.setTokens(own)
		s.usage.CostUSD = &cost
		return
	}
	all, _ := c.byModel(s, v.get("modelUsage"))
	if len(all) == 0 { // an old version: nobody says of which model, and there was no sum of a session
		s.usage.CostUSD = total
		if usage := v.get("usage"); len(usage) > 0 && usage[0] == '{' {
			s.setTokens(map[string]Tokens{"": claudeTokens(usage)})
		}
		return
	}
	s.counted = true
	s.usage.Session = &Total{CostUSD: total, Models: all}
	for _, t := range all {
		s.usage.Session.Tokens.add(t, 1)
	}
}

// byModel reads the tokens of each model, with what they cost together. Older versions do not tell how long a cache is
// kept, which the stream has.
func (c *claudeStream) byModel(s *Stream, all value) (models map[string]Tokens, cost float64) {
	models = map[string]Tokens{}
	all.each(func(name []byte, m value) {
		var t Tokens
		t.Input, _ = m.get("inputTokens").integer()
		t.Output, _ = m.get("outputTokens").integer()
		t.CacheRead, _ = m.get("cacheReadInputTokens").integer()
		t.CacheWrite, _ = m.get("cacheCreationInputTokens").integer()
		var told bool
		if t.CacheWrite1h, told = m.get("cacheCreationEphemeral1hInputTokens").integer(); !told {
			t.CacheWrite1h = s.models[string(name)].CacheWrite1h
		}
		one, _ := m.get("costUSD").number()
		cost += max(one, 0)
		if t = t.Bounded(mostTokens); t != (Tokens{}) {
			models[string(name)] = t
		}
	})
	return models, cost
}

// problem is why a run failed: the result's text, its errors, or its subtype.
func (c *claudeStream) problem(v value, text, subtype string) string {
	var all []string
	v.get("errors").items(func(e value) { all = append(all, e.shown()) })
	switch {
	case text != "":
		return text
	case len(all) > 0:
		return strings.Join(all, "\n")
	}
	return fmt.Sprintf("Claude Code run failed (%s)", or(subtype, "error"))
}
