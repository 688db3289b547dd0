package hook

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/wire"
)

// settings says where a CLI's settings are, and in which form.
type settings struct {
	home     string // the folder in the home folder
	variable string // the environment's name of that folder
	folder   string // the same in a project
	file     string
	comments bool // the CLI takes comments
	second   int  // how the CLI counts time: so many to a second
}

// File is the file with the CLI's settings: in the project's folder, or the person's.
// The environment may move the latter, as it does for the CLI.
func (t *Tool) File(project, home string, getenv func(string) string) string {
	s := t.settings
	switch {
	case project != "":
		return filepath.Join(project, s.folder, s.file)
	case t.delegate && getenv("AMP_SETTINGS_FILE") != "":
		return getenv("AMP_SETTINGS_FILE")
	case s.variable != "" && getenv(s.variable) != "":
		return filepath.Join(getenv(s.variable), s.file)
	}
	return filepath.Join(home, s.home, s.file)
}

// Entry is a hook to register.
type Entry struct {
	Command string        // with its arguments, as a shell takes them
	Within  time.Duration // after which the CLI gives the hook up
}

type (
	// group and handler are one hook as Claude Code, Codex and Gemini CLI have it. Without
	// a matcher it is for every tool.
	group struct {
		Hooks []handler `json:"hooks"`
	}
	handler struct {
		Type    string `json:"type"`
		Name    string `json:"name,omitempty"`
		Command string `json:"command"`
		Timeout int    `json:"timeout"`
		// OnFailure makes a hook that cannot be started a denial, in versions of Claude Code
		// that know it.
		OnFailure string `json:"onFailure,omitempty"`
	}
	// permission is a rule of Amp.
	permission struct {
		Tool   string `json:"tool"`
		Action string `json:"action"`
		To     string `json:"to"`
	}
)

// permissionsKey is the member of Amp's settings with its rules.
const permissionsKey = "amp.permissions"

// Add registers the hooks in a text of settings, nil for none yet. Nothing else in it
// changes.
func (t *Tool) Add(text []byte, e Entry) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{\n}\n")
	}
	root, err := t.read(text)
	if err != nil {
		return nil, err
	}
	s := styleOf(text, root)
	if t.delegate {
		rule := permission{"*", "delegate", e.Command}
		list, there := root.member(permissionsKey)
		switch {
		case !there:
			return s.add(text, root, 0, quote(permissionsKey)+s.colon()+s.render([]permission{rule}, 1)), nil
		case list.kind != '[':
			return nil, fmt.Errorf("%s should be a list, and is not", permissionsKey)
		}
		return s.addFirst(text, list, 1, s.render(rule, 2)), nil
	}
	if _, there := root.member("hooks"); !there {
		text = s.add(text, root, 0, quote("hooks")+s.colon()+"{}")
	}
	for _, event := range t.events {
		if text, err = t.addEvent(text, s, event, e); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// addEvent registers the hook of one event. The text is parsed again, since offsets
// move with every edit.
func (t *Tool) addEvent(text []byte, s style, ev event, e Entry) ([]byte, error) {
	root, err := t.read(text)
	if err != nil {
		return nil, err
	}
	hooks, _ := root.member("hooks")
	if hooks.kind != '{' {
		return nil, fmt.Errorf("hooks should be an object, and is not")
	}
	// The events of a session's end are only reported, so little time is enough.
	within := e.Within
	if ev.becomes == ahp.SessionEnd { // a CLI that ends waits no longer
		within = 3 * time.Second
	}
	// What only reports must not end with 2, which would keep a session from ending.
	command := e.Command
	if ev.becomes == ahp.PreAction || ev.becomes == ahp.PrePrompt {
		command = e.orDeny()
	}
	own := group{Hooks: []handler{{
		Type: "command", Command: command,
		Timeout: int(within.Seconds()) * t.settings.second,
	}}}
	if t.merges {
		own.Hooks[0].Name = "signalbox"
	}
	if t.Name == "claude-code" && (ev.name == "PreToolUse" || ev.name == "UserPromptSubmit") {
		own.Hooks[0].OnFailure = "block"
	}
	list, there := hooks.member(ev.name)
	switch {
	case !there:
		return s.add(text, hooks, 1, quote(ev.name)+s.colon()+s.render([]group{own}, 2)), nil
	case list.kind != '[':
		return nil, fmt.Errorf("hooks.%s should be a list, and is not", ev.name)
	}
	return s.add(text, list, 2, s.render(own, 3)), nil
}

// orDeny is the command with every failure made the exit code that CLIs take for a denial: they go on if a
// program is gone, crashes, or does not answer within their time, so ours has a little less.
func (e Entry) orDeny() string {
	return fmt.Sprintf("timeout -s KILL %d %s%s", int((e.Within - denyMargin).Seconds()), e.Command, denial)
}

// denial ends the command of a hook that asks.
const denial = " || exit 2"

// denyMargin is how long before the CLI's own time a hook is ended.
const denyMargin = 4 * time.Second

// colon is what stands between a name and its value.
func (s style) colon() string {
	if s.newline == "" {
		return ":"
	}
	return ": "
}

// quote is a name as JSON.
func quote(name string) string {
	return string(wire.AppendText(nil, name))
}

// read parses a text of settings, which must be an object.
func (t *Tool) read(text []byte) (node, error) {
	root, err := parse(text, t.settings.comments)
	if err == nil && root.kind != '{' {
		err = fmt.Errorf("it should be a JSON object")
	}
	return root, err
}

// Remove takes our hooks out of a text of settings, and nothing else. Objects and lists
// that are empty without them go too: Install made them.
func (t *Tool) Remove(text []byte) ([]byte, error) {
	for len(bytes.TrimSpace(text)) > 0 {
		root, err := t.read(text)
		if err != nil {
			return nil, err
		}
		path := t.find(text, root)
		if path == nil {
			break
		}
		// Cutting only the hook would leave an empty list behind, which the person has not
		// written.
		// The innermost that holds nothing else.
		for len(path) > 1 && len(path[len(path)-1].in.items) == 1 {
			path = path[:len(path)-1]
		}
		last := path[len(path)-1]
		text = cut(text, last.in, last.index)
	}
	return text, nil
}

// step is one step on the way from the root to a value.
type step struct {
	in    node
	index int
}

// find is the way to one of our hooks, nil if there is none.
func (t *Tool) find(text []byte, root node) []step {
	if t.delegate {
		for i, m := range root.items {
			for j, rule := range m.value.items {
				if to, _ := rule.value.member("to"); m.name == permissionsKey && filepath.Base(to.text(text)) == DelegateFile {
					return []step{{root, i}, {m.value, j}}
				}
			}
		}
		return nil
	}
	h := slices.IndexFunc(root.items, func(i item) bool { return i.name == "hooks" })
	if h < 0 {
		return nil
	}
	hooks := root.items[h].value
	for i, list := range hooks.items {
		for j, one := range list.value.items {
			// The list of a group stands among its other members, such as the matcher.
			handlers, _ := one.value.member("hooks")
			for k, own := range handlers.items {
				if command, _ := own.value.member("command"); t.isOurs(command.text(text)) {
					way := []step{{root, h}, {hooks, i}, {list.value, j}}
					if len(handlers.items) > 1 {
						way = append(way, step{handlers, k})
					}
					return way
				}
			}
		}
	}
	return nil
}

// isOurs reports whether Command made a command for this CLI. The path of the program may
// have changed since.
func (t *Tool) isOurs(command string) bool {
	return strings.Contains(command, " hook "+t.Name+" --data ") || strings.Contains(command, " hook "+t.Name+" --server ")
}

// Command is a call of this program as a hook of the CLI, for a shell. reach says how
// it finds the server, and begins with --data or --server, by which isOurs knows it.
func (t *Tool) Command(program string, reach ...string) string {
	words := []string{shellQuote(program), "hook", t.Name}
	for _, w := range reach {
		words = append(words, shellQuote(w))
	}
	return strings.Join(words, " ")
}

// shellQuote is a word as a POSIX shell reads it back. Plain words stay plain, for
// people who read their settings.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
