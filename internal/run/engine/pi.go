package engine

import (
	"fmt"
	"regexp"
	"strings"
)

func pi() *Engine {
	return &Engine{
		Name: "pi", label: "pi", title: "pi", Install: "npm install -g @mariozechner/pi-coding-agent",
		args: piArgs, env: []string{"NO_COLOR=1", "CI=1"},
		line: func(token string) string {
			if strings.ContainsAny(token, " \t") {
				token = `"` + token + `"`
			}
			return "pi --session " + token
		},
		pattern: regexp.MustCompile("(?im)^\\s*`?pi\\s+--session\\s+([^`\\n]*[^`\\s])`?\\s*$"),
		start:   func() translator { return &piStream{} },
	}
}

func piArgs(j Job) []string {
	args := []string{"--print", "--mode", "json"}
	if j.Settings.Mode != "" {
		args = append(args, "--provider", j.Settings.Mode)
	}
	if model := j.model(); model != "" {
		args = append(args, "--model", model)
	}
	switch {
	case j.Resume.Latest:
		args = append(args, "--continue")
	case j.Resume.Value != "":
		args = append(args, "--session", j.Resume.Value)
	}
	return args
}

// piStream translates `pi --print --mode json`.
type piStream struct {
	problem  string
	any      bool
	named    bool // the model was told
	retries  int
	compacts int
}

func (p *piStream) begin(s *Stream) {
	meta := map[string]any{"cwd": s.job.Dir}
	if model := s.job.model(); model != "" {
		meta["model"] = model
	}
	s.begin(s.engine.title, meta)
}

func (p *piStream) end(*Stream) (bool, string) {
	if !p.any {
		return false, "pi exited cleanly (rc=0) but produced no events: a failure at start, " +
			"or a session that could not be loaded"
	}
	return false, "pi finished without an agent_end event"
}

func (p *piStream) line(s *Stream, v value) {
	p.any = true
	kind := v.get("type").str()
	if kind == "session" {
		p.session(s, v.get("id").str())
	} else {
		s.learn(s.job.Resume.Value)
	}
	p.begin(s)
	switch kind {
	case "tool_execution_start":
		p.use(s, v)
	case "tool_execution_end":
		p.result(s, v)
	case "message_end":
		p.message(s, v.get("message"))
	case "agent_end":
		p.complete(s, v.get("messages"))
	case "auto_retry_start":
		p.retries++
		title := fmt.Sprintf("retrying provider (attempt %s/%s)", v.get("attempt"), v.get("maxAttempts"))
		s.act(&Action{
			ID: fmt.Sprintf("retry_%d", p.retries), Kind: Note, Title: title,
			Detail: map[string]any{"error": v.get("errorMessage").str()},
		})
	case "auto_retry_end":
		p.ended(s, fmt.Sprintf("retry_%d", p.retries), v.get("success").truthy(), "retry succeeded", "retry failed")
	case "auto_compaction_start", "compaction_start":
		p.compacts++
		s.act(&Action{
			ID: fmt.Sprintf("compaction_%d", p.compacts), Kind: Note,
			Title: titled("compacting context", v.get("reason").str()), Detail: map[string]any{},
		})
	case "auto_compaction_end", "compaction_end":
		p.ended(s, fmt.Sprintf("compaction_%d", p.compacts), !v.get("aborted").truthy(), "context compacted",
			"context compaction aborted")
	}
}

// session takes the session's short id: pi takes it for the whole one. A run that was
// given a file, or the beginning of an id, keeps what it was given.
func (p *piStream) session(s *Stream, id string) {
	if want := s.job.Resume.Value; want != "" && (strings.ContainsAny(want, `/\~`) || strings.HasPrefix(id, want)) {
		s.learn(want)
		return
	}
	short, _, found := strings.Cut(id, "-")
	if !found {
		short = first(id, 8)
	}
	s.learn(short)
}

func (p *piStream) use(s *Stream, v value) {
	id := v.get("toolCallId").str()
	if id == "" {
		return
	}
	c := call{name: or(v.get("toolName").str(), "tool"), input: v.get("args").object(), dir: s.job.Dir, paths: allPaths}
	kind, title := c.describe()
	a := &Action{ID: id, Kind: kind, Title: title, Detail: map[string]any{"tool_name": c.name, "args": c.input.raw()}}
	addChange(a.Detail, kind, c)
	s.act(a)
}

func (p *piStream) result(s *Stream, v value) {
	id := v.get("toolCallId").str()
	if id == "" {
		return
	}
	a := s.closeAction(id)
	if a == nil {
		a = &Action{ID: id, Kind: Tool, Title: or(v.get("toolName").str(), "tool"), Detail: map[string]any{}}
	}
	if output := outputText(v.get("result").get("content")); output != "" {
		a.Detail["output_preview"] = preview(output)
	}
	failed := v.get("isError").truthy()
	a.Detail["is_error"] = failed
	s.done(a, !failed)
}

func (p *piStream) message(s *Stream, message value) {
	if !message.get("role").is("assistant") {
		return
	}
	p.say(s, message)
	usage := message.get("usage")
	if len(usage) > 0 {
		var t Tokens
		t.Input, _ = usage.get("input").integer()
		t.Output, _ = usage.get("output").integer()
		t.CacheRead, _ = usage.get("cacheRead").integer()
		t.CacheWrite, _ = usage.get("cacheWrite").integer()
		s.count(t)
		s.usage.Turns++
	}
	if cost, ok := usage.get("cost").get("total").number(); ok {
		if s.usage.CostUSD != nil {
			cost += *s.usage.CostUSD
		}
		s.usage.CostUSD = &cost
	}
	p.name(s, message.get("model").str(), message.get("provider").str())
}

// name tells the model once it is known, where nobody chose one.
func (p *piStream) name(s *Stream, model, provider string) {
	if p.named || model == "" {
		return
	}
	p.named = true
	chosen := s.job.model() != ""
	s.usage.Model = or(s.usage.Model, model)
	if chosen || !s.started {
		return
	}
	meta := map[string]any{"model": model}
	if provider != "" {
		meta["provider"] = provider
	}
	s.supplement(s.engine.title, meta)
}

// say takes the text of a message for the answer, and its error for the outcome.
func (p *piStream) say(s *Stream, message value) {
	var text strings.Builder
	message.get("content").items(func(block value) {
		if block.get("type").is("text") {
			text.WriteString(block.get("text").str())
		}
	})
	if said := strings.TrimSpace(text.String()); said != "" {
		s.reset(said)
	}
	p.problem = ""
	if reason := message.get("stopReason").str(); reason == "error" || reason == "aborted" {
		p.problem = or(message.get("errorMessage").str(), "pi run "+reason)
	}
}

func (p *piStream) complete(s *Stream, messages value) {
	var last value
	messages.items(func(m value) {
		if m.get("role").is("assistant") {
			last = m
		}
	})
	if len(last) > 0 {
		p.say(s, last)
	}
	s.complete(p.problem == "", "", p.problem)
}

// ended closes a note that was opened.
func (p *piStream) ended(s *Stream, id string, ok bool, well, badly string) {
	a := s.closeAction(id)
	if a == nil {
		return
	}
	if a.Title = well; !ok {
		a.Title = badly
	}
	s.done(a, ok)
}
