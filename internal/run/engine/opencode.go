package engine

import (
	"regexp"
	"slices"
)

// opencode is the OpenCode CLI.
func opencode() *Engine {
	return &Engine{
		Name:  "opencode",
		costs: true,
		needs: append([]string{"OPENCODE_*"},
			providerVariables...), label: "opencode", title: "opencode", Install: "npm install -g opencode-ai",
		args: opencodeArgs, permit: opencodePermit, cannot: opencodeCannot,
		line:    func(token string) string { return "opencode --session " + token },
		pattern: regexp.MustCompile("(?im)^\\s*`?opencode(?:\\s+run)?\\s+(?:--session|-s)\\s+(ses_[A-Za-z0-9]+)`?\\s*$"),
		start:   func() translator { return &opencodeStream{} },
	}
}

// opencodeArgs leave the prompt to standard input. Without --auto, opencode rejects
// what needs permission. The title of a new session is its prompt: for another opencode
// calls a model, and does not say what that took.
func opencodeArgs(j Job) []string {
	session := j.sessionOption([]string{"--continue"}, "--session")
	if session == nil {
		session = []string{"--title="}
	}
	return slices.Concat([]string{"run", "--format", "json"}, session,
		option("--model", j.model()), j.agentOption(), j.permissions(j.allowAllOption("--auto")))
}

// agentOption is the agent of opencode that was configured. One that is held to a mode is named with it.
func (j Job) agentOption() []string {
	if j.Mode == Read || j.Mode == Edit {
		return nil
	}
	return option("--agent", j.Settings.Mode)
}

// opencodeStream translates `opencode run --format json`.
type opencodeStream struct {
	stepped bool   // a step was finished
	text    string // the id of the last text
	apart   bool   // what is said next is not part of that text
}

// begin names the model that was asked for.
func (o *opencodeStream) begin(s *Stream) { s.beginWithModel() }

// end takes a silent exit for success if a step was finished (RUN-25).
func (o *opencodeStream) end(s *Stream) (bool, string) {
	if o.stepped {
		return true, ""
	}
	return noResult{}.end(s)
}

// line takes one line. An unknown type is a warning (RUN-11), as readers of opencode's
// streams know it.
func (o *opencodeStream) line(s *Stream, v value) {
	s.setSession(v.get("sessionID").str())
	part := v.get("part")
	switch kind := v.get("type").str(); kind {
	case "":
	case "step_start":
		o.begin(s)
		o.apart = true
	case "tool_use":
		o.tool(s, part)
	case "text":
		o.say(s, part)
	case "reasoning":
		if text := part.get("text").str(); text != "" {
			s.emitDone(&Action{
				ID: or(part.get("id").str(), "opencode.reasoning"), Kind: Note, Title: text,
				Detail: map[string]any{},
			}, true)
		}
	case "step_finish":
		o.step(s, part)
	case "error":
		problem := v.get("error")
		message := or(problem.get("data").get("message").str(),
			or(problem.get("message").str(), or(problem.get("name").str(), "opencode error")))
		s.complete(false, message)
	default:
		s.emitWarning("opencode emitted unsupported event: " + kind)
	}
}

// say takes a text. Texts of different ids, or of different steps, are paragraphs of their own.
func (o *opencodeStream) say(s *Stream, part value) {
	text, id := part.get("text").str(), part.get("id").str()
	if text == "" {
		return
	}
	if len(s.answer) > 0 && (o.apart || id != o.text) {
		s.appendAnswer("\n\n")
	}
	o.text, o.apart = id, false
	s.appendAnswer(text)
}

// tool takes a tool call. opencode reports finished calls only, so most actions are one
// event.
func (o *opencodeStream) tool(s *Stream, part value) {
	id := or(part.get("callID").str(), part.get("id").str())
	if id == "" {
		return
	}
	state := part.get("state")
	c := call{
		name: or(part.get("tool").str(), "tool"), input: state.get("input").object(), dir: s.job.Dir,
		paths: allPaths,
	}
	kind, title := c.describe()
	// opencode titles its calls itself, often with a path.
	if own := state.get("title").str(); own != "" {
		title = relative(own, s.job.Dir)
	}
	a := &Action{
		ID: id, Kind: kind, Title: title,
		Detail: map[string]any{"name": c.name, "input": c.input.raw(), "callID": id},
	}
	addChange(a.Detail, kind, c)
	switch state.get("status").str() {
	case "completed":
		exit, known := state.get("metadata").get("exit").integer()
		a.Detail["output_preview"], a.Detail["exit_code"] = preview(state.get("output").str()), nil
		if known {
			a.Detail["exit_code"] = exit
		}
		s.closeAction(id)
		s.emitDone(a, exit == 0)
	case "error":
		why := state.get("error").shown()
		a.Detail["error"], a.Detail["exit_code"] = why, nil
		no := false
		s.closeAction(id)
		s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Done, OK: &no, Message: why})
	default:
		s.emitBegun(a)
	}
}

// step takes the end of a step: its cost and tokens are added up. The reason stop ends
// the run.
func (o *opencodeStream) step(s *Stream, part value) {
	o.stepped = true
	s.usage.Turns++
	s.usage.Calls++
	// A cost of 0 is left out, so that the price table is asked (RUN-31).
	if cost, ok := part.get("cost").number(); ok && cost > 0 {
		if s.usage.CostUSD != nil {
			cost += *s.usage.CostUSD
		}
		s.usage.CostUSD = &cost
	}
	tokens := part.get("tokens")
	var t Tokens
	t.Input, _ = tokens.get("input").integer()
	t.Output, _ = tokens.get("output").integer()
	t.Reasoning, _ = tokens.get("reasoning").integer()
	t.CacheRead, _ = tokens.get("cache").get("read").integer()
	t.CacheWrite, _ = tokens.get("cache").get("write").integer()
	if t != (Tokens{}) {
		s.addTokens("", t)
	}
	if part.get("reason").is("stop") {
		s.complete(true, "")
	}
}
