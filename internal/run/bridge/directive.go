package bridge

import (
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/run/engine"
)

// order is what a message asks for.
type order struct {
	command string // one of commands, "" for none
	engine  string // "" when the message names none
	folder  string
	mode    engine.Mode // what the agent may do, "" when the message does not say
	prompt  string      // of file the path
}

// The commands. start is what Telegram sends when somebody opens the chat with the bot.
const (
	commandStop = "stop"
	commandRuns = "runs"
	commandNew  = "new"
	commandFile = "file"
	commandHelp = "help"
)

// commands are the words of commands, and what they mean.
var commands = map[string]string{
	"stop": commandStop, "cancel": commandStop, "runs": commandRuns, "new": commandNew, "file": commandFile,
	"help": commandHelp, "start": commandHelp,
}

// parseOrder understands a message: directives at its beginning, then the prompt. A directive
// is a word with a slash: a command, an engine, a folder by its last name or its whole path, or a mode. In groups Telegram
// appends the bot's name to the word. The first word that is
// none begins the prompt, also if it has a slash. directed reports whether there was
// one.
func parseOrder(text string, folders []string) (o order, directed bool) {
	rest := strings.TrimSpace(text)
	for {
		word, after, _ := strings.Cut(rest, " ")
		// A directive may stand on a line of its own.
		if line, more, cut := strings.Cut(word, "\n"); cut {
			word, after = line, more+" "+after
		}
		if !strings.HasPrefix(word, "/") {
			break
		}
		name, _, _ := strings.Cut(word[1:], "@")
		switch folder := findFolder(word, name, folders); {
		case commands[name] != "" && o.command == "":
			o.command = commands[name]
			if o.command == commandFile { // what follows is a path, which may begin with a slash
				o.prompt = strings.TrimSpace(after)
				return o, true
			}
		case slices.Contains(engine.Names(), name) && o.engine == "":
			o.engine = name
		case folder != "" && o.folder == "":
			o.folder = folder
		case slices.Contains(engine.Modes, engine.Mode(name)) && o.mode == "":
			o.mode = engine.Mode(name)
		default:
			o.prompt = rest
			return o, directed
		}
		directed, rest = true, strings.TrimSpace(after)
	}
	o.prompt = rest
	return o, directed
}

// findFolder is the folder that a word names, "" for none. A path inside a folder is returned
// as it is; whether it may be used is checked when the run is opened.
func findFolder(word, name string, folders []string) string {
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
