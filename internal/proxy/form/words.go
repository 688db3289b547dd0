package form

import (
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// part is one part of a message.
type part struct {
	Type string   `json:"type"`
	Text wire.Raw `json:"text"`
}

// words is the text of the part, "" if it is of another type than text.
func (p part) words() string {
	if !slices.Contains([]string{"text", "input_text", "output_text"}, p.Type) {
		return ""
	}
	text, _ := wire.Text(p.Text)
	return text
}

// Texts are the texts of a message: one text, or those of its parts. Results of tools, pictures and
// files are none.
func Texts(content wire.Raw) (all []string) {
	if text, ok := wire.Text(content); ok {
		return []string{text}
	}
	var parts []part
	_ = wire.UnmarshalPart(content, &parts) // what is neither has no text
	for _, p := range parts {
		if text := p.words(); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// Asked is the last message of a person in the messages or the input of a request, "" if there is
// none. Results of tools come back in messages of the user, too: a message counts if it has text
// beside them. What clients add by themselves does not count; see isAdded.
func Asked(listed wire.Raw) string {
	if text, ok := wire.Text(listed); ok {
		return text
	}
	var messages []struct {
		Type    string   `json:"type"`
		Role    string   `json:"role"`
		Content wire.Raw `json:"content"`
	}
	_ = wire.UnmarshalPart(listed, &messages) // what cannot be read the provider refuses
	for _, m := range slices.Backward(messages) {
		if m.Role != "user" || m.Type != "" && m.Type != "message" {
			continue
		}
		if texts := slices.DeleteFunc(Texts(m.Content), isAdded); len(texts) > 0 {
			return strings.Join(texts, "\n")
		}
	}
	return ""
}

// isAdded reports whether a text is one that a CLI has added to what a person wrote. Claude Code and
// Codex write these as one element: <system-reminder>…</system-reminder>.
func isAdded(text string) bool {
	text = strings.TrimSpace(text)
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "<"), ">")
	end := "</" + name + ">"
	return text == "" || text[0] == '<' && strings.HasSuffix(text, end) && strings.Count(text, end) == 1
}

// Words are what the model says in a reply that is no stream, beside its calls.
func Words(reply []byte) string {
	var r struct {
		Content []part `json:"content"` // of a message
		Choices []struct {
			Message struct {
				Content wire.Raw `json:"content"`
			} `json:"message"`
		} `json:"choices"` // of a completion
		Output []struct {
			Type    string   `json:"type"`
			Content wire.Raw `json:"content"`
		} `json:"output"` // of a response
	}
	_ = wire.UnmarshalPart(reply, &r) // it was read before
	var all []string
	for _, p := range r.Content {
		all = append(all, p.words())
	}
	for _, c := range r.Choices {
		all = append(all, Texts(c.Message.Content)...)
	}
	for _, o := range r.Output {
		if o.Type == "message" {
			all = append(all, Texts(o.Content)...)
		}
	}
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "\n")
}
