package form

import (
	"strings"

	"signalbox/internal/policy"
)

// Prompt is event.text: all text that a request gives to the model, from system prompt,
// instructions, messages and input, one piece per line. It is the whole conversation each time.
func Prompt(body []byte) string {
	var parts struct {
		System       any `json:"system"`
		Instructions any `json:"instructions"`
		Messages     any `json:"messages"`
		Input        any `json:"input"`
		Prompt       any `json:"prompt"`
	}
	if policy.DecodeData(body, &parts) != nil {
		return ""
	}
	var texts []string
	for _, part := range []any{parts.System, parts.Instructions, parts.Messages, parts.Input, parts.Prompt} {
		collectTexts(part, &texts)
	}
	return strings.Join(texts, "\n")
}

// textMembers are the members of messages and content blocks in which text may be, at any depth.
var textMembers = []string{"text", "content", "output", "input", "arguments", "variables", "source", "data"}

// collectTexts adds the texts in a decoded value, in the order of the members in textMembers.
func collectTexts(v any, texts *[]string) {
	switch v := v.(type) {
	case string:
		*texts = append(*texts, v)
	case []any:
		for _, item := range v {
			collectTexts(item, texts)
		}
	case map[string]any:
		if kind, _ := v["type"].(string); kind == "base64" {
			return // a picture or a file
		}
		for _, name := range textMembers {
			collectTexts(v[name], texts)
		}
	}
}

// LastLine is the last line of the text in a request, which is most often what the user asked.
func LastLine(body []byte) string {
	text := strings.TrimSpace(Prompt(body))
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	return text
}
