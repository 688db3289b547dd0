package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// pi is the pi coding agent. CI and NO_COLOR keep it from drawing on its output.
func pi() *Engine {
	return &Engine{
		Name:  "pi",
		costs: true,
		needs: append([]string{"PI_*"},
			providerVariables...), label: "pi", title: "pi", Install: "npm install -g @mariozechner/pi-coding-agent",
		args: piArgs, permit: piPermit, env: []string{"NO_COLOR=1", "CI=1"},
		line: func(token string) string {
			if strings.ContainsAny(token, " \t") {
				token = `"` + token + `"`
			}
			return "pi --session " + token
		},
		pattern: regexp.MustCompile("(?im)^\\s*`?pi\\s+--session\\s+([^`\\n]*[^`\\s])`?\\s*$"),
		whole:   wholePi,
		start:   func() translator { return &piStream{} },
	}
}

// piArgs leave the choice of the session file to pi; its id is in the first line of the
// stream.
func piArgs(j Job) []string {
	return slices.Concat([]string{"--print", "--mode", "json"}, option("--provider", j.Settings.Mode),
		option("--model", j.model()), j.sessionOption([]string{"--continue"}, "--session"), j.permissions())
}

// piStream translates `pi --print --mode json`.
type piStream struct {
	problem  string
	any      bool
	named    bool // the model was told
	retries  int
	compacts int
}

// begin has the folder and the model that was asked for. The model that pi chose comes
// later, in name.
func (p *piStream) begin(s *Stream) {
	meta := map[string]any{"cwd": s.job.Dir}
	if model := s.job.model(); model != "" {
		meta["model"] = model
	}
	s.begin(s.engine.title, meta)
}

// end tells two failures apart: pi wrote nothing, or it did not finish.
func (p *piStream) end(*Stream) (bool, string) {
	if !p.any {
		return false, "pi exited cleanly (rc=0) but produced no events: a failure at start, " +
			"or a session that could not be loaded"
	}
	return false, "pi finished without an agent_end event"
}

// line takes one line. Any line starts the run. Compaction has two spellings, of older
// and newer versions.
func (p *piStream) line(s *Stream, v value) {
	p.any = true
	kind := v.get("type").str()
	if kind == "session" {
		p.session(s, v.get("id").str())
	} else {
		// A stream without its header is that of the session that was asked for.
		s.setSession(s.job.Resume.Value)
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
		s.emitBegun(&Action{
			ID: fmt.Sprintf("retry_%d", p.retries), Kind: Note, Title: title,
			Detail: map[string]any{"error": v.get("errorMessage").str()},
		})
	case "auto_retry_end":
		p.endNote(s, fmt.Sprintf("retry_%d", p.retries), v.get("success").truthy(), "retry succeeded", "retry failed")
	// Older versions of pi have the first spelling, newer ones the second.
	case "auto_compaction_start", "compaction_start":
		p.compacts++
		s.emitBegun(&Action{
			ID: fmt.Sprintf("compaction_%d", p.compacts), Kind: Note,
			Title: titled("compacting context", v.get("reason").str()), Detail: map[string]any{},
		})
	case "auto_compaction_end", "compaction_end":
		p.endNote(s, fmt.Sprintf("compaction_%d", p.compacts), !v.get("aborted").truthy(), "context compacted",
			"context compaction aborted")
	}
}

// session takes the session's id. A run that was given a file keeps it, so that its session stays the same (RUN-5); one
// that was given the beginning of an id has the whole one from now on.
func (p *piStream) session(s *Stream, id string) {
	want := s.job.Resume.Value
	switch {
	case strings.ContainsAny(want, `/\~`) || strings.HasSuffix(want, ".jsonl"):
		id = want
	case want != "" && strings.HasPrefix(id, want):
		s.job.Resume.Value = id
	}
	s.setSession(id)
}

// use starts the action of a tool call.
func (p *piStream) use(s *Stream, v value) {
	id := v.get("toolCallId").str()
	if id == "" {
		return
	}
	c := call{name: or(v.get("toolName").str(), "tool"), input: v.get("args").object(), dir: s.job.Dir, paths: allPaths}
	kind, title := c.describe()
	a := &Action{ID: id, Kind: kind, Title: title, Detail: map[string]any{"tool_name": c.name, "args": c.input.raw()}}
	addChange(a.Detail, kind, c)
	s.emitBegun(a)
}

// result ends the action of a tool. One without a known call is shown as an action of
// its own.
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
	s.emitDone(a, !failed)
}

// message takes the end of an assistant's message: text, usage and cost are added up.
func (p *piStream) message(s *Stream, message value) {
	if !message.get("role").is("assistant") {
		return
	}
	p.takeMessage(s, message)
	usage := message.get("usage")
	if len(usage) > 0 {
		var t Tokens
		t.Input, _ = usage.get("input").integer()
		t.Output, _ = usage.get("output").integer()
		t.CacheRead, _ = usage.get("cacheRead").integer()
		t.CacheWrite, _ = usage.get("cacheWrite").integer()
		s.addTokens("", t)
		s.usage.Turns++
		s.usage.Calls++
	}
	if cost, ok := usage.get("cost").get("total").number(); ok {
		if s.usage.CostUSD != nil {
			cost += *s.usage.CostUSD
		}
		s.usage.CostUSD = &cost
	}
	p.emitModel(s, message.get("model").str(), message.get("provider").str())
}

// emitModel emits started again once the model is known, if nobody chose one (RUN-3).
func (p *piStream) emitModel(s *Stream, model, provider string) {
	if p.named || model == "" {
		return
	}
	p.named = true
	// A model that somebody chose is in the first started already.
	chosen := s.job.model() != ""
	s.usage.Model = or(s.usage.Model, model)
	if chosen || !s.started {
		return
	}
	meta := map[string]any{"model": model}
	if provider != "" {
		meta["provider"] = provider
	}
	s.emitStarted(s.engine.title, meta)
}

// takeMessage takes the text of a message as the answer, and its error as the outcome. A later
// message that goes well clears the error: pi retries by itself.
func (p *piStream) takeMessage(s *Stream, message value) {
	var text strings.Builder
	message.get("content").items(func(block value) {
		if block.get("type").is("text") {
			text.WriteString(block.get("text").str())
		}
	})
	if said := strings.TrimSpace(text.String()); said != "" {
		s.setAnswer(said)
	}
	p.problem = ""
	if reason := message.get("stopReason").str(); reason == "error" || reason == "aborted" {
		p.problem = or(message.get("errorMessage").str(), "pi run "+reason)
	}
}

// complete takes the end of the run, whose last assistant message has the final text.
func (p *piStream) complete(s *Stream, messages value) {
	var last value
	messages.items(func(m value) {
		if m.get("role").is("assistant") {
			last = m
		}
	})
	if len(last) > 0 {
		p.takeMessage(s, last)
	}
	s.complete(p.problem == "", p.problem)
}

// endNote ends a note of a retry or a compaction.
func (p *piStream) endNote(s *Stream, id string, ok bool, well, badly string) {
	a := s.closeAction(id)
	if a == nil {
		return
	}
	if a.Title = well; !ok {
		a.Title = badly
	}
	s.emitDone(a, ok)
}
