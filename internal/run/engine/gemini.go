package engine

import (
	"fmt"
	"regexp"
	"slices"
)

// gemini is Google's Gemini CLI.
func gemini() *Engine {
	return &Engine{
		Name: "gemini",
		needs: []string{
			"GEMINI_*", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT",
			"GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS",
		},
		late:  "says what it has used only at its end",
		label: "gemini", title: "gemini", Install: "npm install -g @google/gemini-cli",
		args: geminiArgs, permit: geminiPermit, cannot: geminiCannot, folder: geminiFolder, ownModes: true,
		line:    func(token string) string { return "gemini --resume " + token },
		pattern: regexp.MustCompile("(?im)^\\s*`?gemini\\s+--resume\\s+([A-Za-z0-9_-]+)`?\\s*$"),
		start:   func() translator { return &geminiStream{} },
	}
}

// geminiArgs has --skip-trust, because a run has no terminal on which somebody could
// trust the folder.
func geminiArgs(j Job) []string {
	mode := j.Settings.Mode
	if j.Settings.AllowAll {
		mode = "yolo"
	}
	return slices.Concat(j.sessionOption([]string{"--resume", "latest"}, "--resume"),
		[]string{"--output-format", "stream-json"}, option("--model", j.model()),
		j.permissions(option("--approval-mode", mode)), []string{"--skip-trust"})
}

// geminiStream translates `gemini --output-format stream-json`.
type geminiStream struct{ noResult }

// begin names the model, which init has told.
func (g *geminiStream) begin(s *Stream) { s.beginWithModel() }

// line takes one line. Text comes in pieces, which are joined.
func (g *geminiStream) line(s *Stream, v value) {
	switch v.get("type").str() {
	case "init":
		s.setSession(v.get("session_id").str())
		s.usage.Model = or(v.get("model").str(), s.usage.Model)
		g.begin(s)
	case "message":
		if v.get("role").is("assistant") {
			s.appendAnswer(v.get("content").str())
		}
	case "tool_use":
		if id := v.get("tool_id").str(); id != "" {
			s.emitBegun(s.toolAction(id, v.get("tool_name"), v.get("parameters"), ""))
		}
	case "tool_result":
		g.result(s, v)
	case "error":
		g.problem(s, v)
	case "result":
		g.complete(s, v)
	}
}

// result ends the action of a tool result.
func (g *geminiStream) result(s *Stream, v value) {
	action := s.closeAction(v.get("tool_id").str())
	if action == nil {
		return
	}
	if output := v.get("output"); output.truthy() {
		action.Detail["output_preview"] = preview(output.shown())
	} else if why := v.get("error").get("message").str(); why != "" {
		action.Detail["error"] = preview(why)
	}
	s.emitDone(action, v.get("status").is("success"))
}

// problem ends the run as failed, unless it is only a warning.
func (g *geminiStream) problem(s *Stream, v value) {
	message := or(v.get("message").str(), "gemini error")
	if v.get("severity").is("warning") {
		s.emitWarning(message)
		return
	}
	s.complete(false, message)
}

// complete takes the result, with the usage of the whole run. The error is used only if
// the status is not success.
func (g *geminiStream) complete(s *Stream, v value) {
	stats := v.get("stats")
	// A result without stats is one without usage, not one that used nothing.
	if t, some := geminiTokens(stats); some {
		models := map[string]Tokens{}
		stats.get("models").each(func(name []byte, m value) {
			if t, some := geminiTokens(m); some {
				models[string(name)] = t
			}
		})
		s.setTokens(models)
		if s.usage.Tokens != t { // they are not all
			s.setTokens(map[string]Tokens{"": t})
		}
		did, _ := stats.get("tool_calls").integer()
		s.usage.Calls = max(did, 0) + 1 // a model is called once for each, and to end the turn
	}
	if cost, ok := stats.get("total_cost_usd").number(); ok {
		s.usage.CostUSD = &cost
	}
	s.usage.DurationMS, _ = stats.get("duration_ms").integer()
	status := v.get("status").shown()
	s.complete(status == "success",
		or(v.get("error").get("message").str(), fmt.Sprintf("gemini result status: %s", status)))
}

// geminiTokens reads the tokens of a run, or of one of its models. What they thought is in the sum alone, and paid
// like what they wrote.
func geminiTokens(stats value) (t Tokens, some bool) {
	var input, output bool
	t.Input, input = stats.get("input_tokens").integer()
	t.Output, output = stats.get("output_tokens").integer()
	t.CacheRead, _ = stats.get("cached").integer()
	if all, ok := stats.get("total_tokens").integer(); ok && all > t.Input+t.Output && t.Input >= 0 && t.Output >= 0 {
		t.Reasoning = all - t.Input - t.Output
		t.Output += t.Reasoning
	}
	return t.Bounded(mostTokens), input || output
}
