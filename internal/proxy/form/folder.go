package form

import (
	"bytes"
	"regexp"
	"strings"

	"signalbox/internal/wire"
)

// The words before the working directory, as CLIs tell it their model: Claude Code (2.1.197) in a line of its
// system prompt, Codex (0.130) in a message of its own.
const (
	lineMark = "orking directory: "
	tagMark  = "<cwd>"
)

// toldFolder is a line with the working directory.
var toldFolder = regexp.MustCompile(`^[ \t-]*(?:Primary w|W)` + lineMark + `(/.*?)\s*$|` + tagMark + `(/[^<]*)</cwd>`)

// FolderOf is the working directory that a CLI tells its model, so that rules can tell what is outside of
// it; empty if it is not told, or told in two ways. The system prompt is the CLI's own. Of the messages
// only those count that are neither the model's nor the result of a tool, which may hold the words of
// anybody; in those of Anthropic's form the two cannot be told apart, so none counts.
func FolderOf(f *Form, said Said) (folder string) {
	texts := Texts(said.System)
	told := bytes.Contains(said.Listed, []byte(lineMark)) || bytes.Contains(said.Listed, []byte(tagMark[1:]))
	if told && f != Messages {
		var messages []struct {
			Role    string   `json:"role"`
			Content wire.Raw `json:"content"`
		}
		_ = wire.UnmarshalPart(said.Listed, &messages) // a text, or something that the provider refuses
		for _, m := range messages {
			if m.Role == "system" || m.Role == "developer" || m.Role == "user" {
				texts = append(texts, Texts(m.Content)...)
			}
		}
	}
	for _, text := range texts {
		for line := range strings.Lines(text) {
			if !strings.Contains(line, lineMark) && !strings.Contains(line, tagMark) {
				continue // most lines; the pattern takes longer
			}
			told := toldFolder.FindStringSubmatch(line)
			switch {
			case told == nil:
			case folder == "":
				folder = told[1] + told[2]
			case folder != told[1]+told[2]:
				return ""
			}
		}
	}
	return folder
}
