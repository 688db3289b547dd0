package bridge

import (
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/run/engine"
)

// order is what a message asks for.
type order struct {
	cancel bool
	engine string // "" when the message names none
	folder string
	prompt string
}

// read understands a message: directives at its beginning, and then the prompt. A
// directive is a word with a slash: an engine, one of the folders by its last name or its
// whole path, or cancel. Telegram adds the bot's name to a word in a group.
func read(text string, folders []string) (o order, directed bool) {
	rest := strings.TrimSpace(text)
	for {
		word, after, _ := strings.Cut(rest, " ")
		if line, more, cut := strings.Cut(word, "\n"); cut {
			word, after = line, more+" "+after
		}
		if !strings.HasPrefix(word, "/") {
			break
		}
		name, _, _ := strings.Cut(word[1:], "@")
		switch folder := find(word, name, folders); {
		case name == "cancel":
			o.cancel = true
		case slices.Contains(engine.Names(), name) && o.engine == "":
			o.engine = name
		case folder != "" && o.folder == "":
			o.folder = folder
		default:
			o.prompt = rest
			return o, directed
		}
		directed, rest = true, strings.TrimSpace(after)
	}
	o.prompt = rest
	return o, directed
}

// find is the folder that a word names.
func find(word, name string, folders []string) string {
	for _, folder := range folders {
		if folder == word || filepath.Base(folder) == name {
			return folder
		}
		if strings.HasPrefix(word, strings.TrimSuffix(folder, "/")+"/") {
			return word // inside of it; whether it may be is looked at when the run is opened
		}
	}
	return ""
}
