package hook

import (
	"os"
	"path/filepath"
	"strings"

	"signalbox/client/ahp"
)

// Installation is our hooks in a file of settings.
type Installation struct {
	Tool *Tool
	File string
	// Open says that the CLI goes on if their program is gone: an earlier version has installed them.
	Open bool
}

// Installed finds our hooks in the settings of this person, and of the project in a folder.
func Installed(home, project string, getenv func(string) string) (all []Installation) {
	for _, t := range Tools {
		for _, folder := range []string{"", project} {
			file := t.File(folder, home, getenv)
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			root, err := t.read(text)
			if err == nil && t.find(text, root) != nil {
				all = append(all, Installation{t, file, t.isOpen(file, text, root)})
			}
		}
	}
	return all
}

// isOpen reports whether one of our hooks that asks does not end with a denial when its program fails.
func (t *Tool) isOpen(file string, text []byte, root node) bool {
	if t.delegate {
		script, err := os.ReadFile(filepath.Join(filepath.Dir(file), DelegateFile))
		return err != nil || !strings.HasSuffix(strings.TrimSpace(string(script)), denial)
	}
	hooks, _ := root.member("hooks")
	for _, e := range t.events {
		list, _ := hooks.member(e.name)
		for _, group := range list.items {
			handlers, _ := group.value.member("hooks")
			for _, h := range handlers.items {
				command, _ := h.value.member("command")
				if asks := e.becomes == ahp.PreAction || e.becomes == ahp.PrePrompt; asks && t.isOurs(command.text(text)) &&
					!strings.HasSuffix(command.text(text), denial) {
					return true
				}
			}
		}
	}
	return false
}
