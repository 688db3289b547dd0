package form

import (
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// part is one part of a message, or a piece of one in a stream.
type part struct {
	Type string   `json:"type"`
	Text wire.Raw `json:"text"`
}

// words is the text of the part, "" if it is of another type than text.
func (p part) words() string {
	if !slices.Contains([]string{"text", "text_delta", "input_text", "output_text"}, p.Type) {
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

// Words are what the model says in a reply beside its calls.
func (f *Form) Words(reply []byte, stream bool) string {
	if !stream {
		return strings.TrimSpace(f.words(reply))
	}
	var all strings.Builder
	var frames Frames
	frames.Push(reply)
	for frame, ok := frames.Next(); ok; frame, ok = frames.Next() {
		if frame.Data != nil {
			all.WriteString(f.words(frame.Data))
		}
	}
	return strings.TrimSpace(all.String())
}

// messageWords are the words in a message, or in an event of its stream.
func messageWords(text []byte) string {
	var m struct {
		Content []part `json:"content"`
		Block   part   `json:"content_block"`
		Delta   part   `json:"delta"`
	}
	_ = wire.UnmarshalPart(text, &m) // the reply was read before; an event of another kind has none
	all := m.Delta.words()
	for _, p := range append(m.Content, m.Block) {
		if p.Type == "text" {
			all += "\n" + p.words()
		}
	}
	return all
}

// completionWords are the words in a completion, or in a chunk of its stream.
func completionWords(text []byte) (all string) {
	type message struct {
		Content wire.Raw `json:"content"`
	}
	var m struct {
		Choices []struct {
			Message message `json:"message"`
			Delta   message `json:"delta"`
		} `json:"choices"`
	}
	_ = wire.UnmarshalPart(text, &m) // as in messageWords
	for _, c := range m.Choices {
		all += strings.Join(Texts(c.Message.Content), "\n") + strings.Join(Texts(c.Delta.Content), "")
	}
	return all
}

// responseWords are the words in a response, or in the event of its stream that completes an item. The
// last event repeats all items, and is left out.
func responseWords(text []byte) (all string) {
	var r struct {
		Type   string `json:"type"`
		Output []item `json:"output"`
		Item   item   `json:"item"`
	}
	_ = wire.UnmarshalPart(text, &r) // as in messageWords
	if r.Type == "response.output_item.done" {
		r.Output = append(r.Output, r.Item)
	}
	for _, o := range r.Output {
		if o.Type == "message" {
			all += "\n" + strings.Join(Texts(o.Content), "\n")
		}
	}
	return all
}
