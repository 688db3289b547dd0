package gate

import (
	"strings"

	"signalbox/internal/wire"
)

// Artifact is something that an agent has attached, read for people. Nothing of it is left out: what
// its type does not say is in Rest, and what has no known form is shown as JSON.
type Artifact struct {
	Type  string // text, markdown, json, diff, image or link
	Title string
	Text  string   // the content; JSON as it was written
	Rest  wire.Raw // further members, nil if there are none
}

// artifactTypes are the types that agents give, with the one that each stands for.
var artifactTypes = map[string]string{
	"text": "text", "plain": "text", "log": "text", "code": "text", "markdown": "markdown", "md": "markdown",
	"json": "json", "diff": "diff", "patch": "diff", "image": "image", "url": "link", "link": "link",
}

// Lines is all of the artifact as text, for where there is nothing else.
func (a Artifact) Lines() string {
	text := a.Text
	if a.Type == "json" {
		text = wire.Pretty(text)
	}
	if a.Rest != nil {
		text += "\n" + wire.Pretty(string(a.Rest))
	}
	return text
}

// NewArtifact shows bytes under a name: a JSON object as it is, anything else as text.
func NewArtifact(name string, bytes []byte) wire.Raw {
	kind, content := "json", wire.Raw(bytes)
	if content.Kind() != '{' || !content.IsValid() {
		kind, content = "text", wire.AppendText(nil, string(bytes))
	}
	out := append([]byte(`{"type":"`+kind+`","name":`), wire.AppendText(nil, name)...)
	return append(append(append(out, `,"content":`...), content...), '}')
}

// ReadArtifact finds out what an artifact is.
func ReadArtifact(raw wire.Raw) Artifact {
	if text, ok := wire.Text(raw); ok {
		return Artifact{Type: "text", Text: text}
	}
	unknown := Artifact{Type: "json", Text: string(raw)}
	members, err := wire.Members(raw)
	if err != nil {
		return unknown
	}
	// take is the text of the first of these members that has one.
	take := func(names ...string) string {
		for _, name := range names {
			if text, ok := wire.Text(members[name]); ok {
				delete(members, name)
				if text != "" {
					return text
				}
			}
		}
		return ""
	}
	a := Artifact{Type: artifactTypes[strings.ToLower(take("type"))], Title: take("title", "name")}
	// Some agents put the address of an image or a link into "url".
	a.Text = take("content", "url")
	if content := members["content"]; a.Type == "json" && a.Text == "" && len(content) > 0 {
		a.Text = string(content)
		delete(members, "content")
	}
	if a.Type == "" || a.Text == "" {
		unknown.Title = a.Title
		return unknown
	}
	if len(members) > 0 {
		a.Rest, _ = wire.Marshal(members) // which were read from JSON
	}
	return a
}
