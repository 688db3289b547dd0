package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json" // tells settings that were not there (null) from empty ones
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"signalbox/internal/file"
)

// DelegateFile is the name of a program beside Amp's settings. Amp's delegate is a
// program without arguments, so this one carries ours. It also marks the rule in the
// settings as ours.
const DelegateFile = "signalbox-delegate"

// delegateScript is the text of that program. After any other code than 0 and 2 Amp asks at its terminal.
func delegateScript(e Entry) []byte { return []byte("#!/bin/sh\n" + e.orDeny() + "\n") }

// memory is kept beside the settings, so that they can be put back byte for byte:
// comments and layout too.
type memory struct {
	Before []byte `json:"before"` // nil when there were none
	After  string `json:"after"`  // the SHA-256 of what was written
}

// memoryFile is where the memory of a file of settings is kept.
func memoryFile(path string) string { return path + ".signalbox" }

// Install registers the hooks in a file of settings, in place of hooks that an earlier
// install has left. within is how long the CLI waits for a hook. It reports whether
// anything changed.
func (t *Tool) Install(path, command string, within time.Duration) (changed bool, err error) {
	path, text, mode, err := open(path)
	if err != nil {
		return false, err
	}
	before, err := t.withoutHooks(path, text)
	if err != nil {
		return false, err
	}
	program := command
	if t.delegate {
		if command, err = filepath.Abs(filepath.Join(filepath.Dir(path), DelegateFile)); err != nil {
			return false, err
		}
	}
	after, err := t.Add(before, Entry{Command: command, Within: within})
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, err
	}
	if t.delegate {
		script := delegateScript(Entry{Command: program, Within: within})
		known, _ := os.ReadFile(command) // none is another one
		if changed = !bytes.Equal(known, script); changed {
			if err := file.Replace(command, script, 0o700); err != nil {
				return false, err
			}
		}
	}
	// An install that changes nothing writes nothing, and keeps the memory of what was
	// there before the first.
	if bytes.Equal(after, text) {
		return changed, nil
	}
	// The memory is written first: settings are never changed without a way back.
	note, err := json.Marshal(memory{Before: before, After: sum(after)})
	if err == nil {
		err = file.Replace(memoryFile(path), note, 0o600)
	}
	if err != nil {
		return false, err
	}
	return true, file.Replace(path, after, mode)
}

// Uninstall takes the hooks out of a file of settings. If nothing else has changed
// since Install, the file is what it was, byte for byte; a file that Install has made
// is removed.
func (t *Tool) Uninstall(path string) (changed bool, err error) {
	path, text, mode, err := open(path)
	if err != nil || text == nil {
		return false, err
	}
	before, err := t.withoutHooks(path, text)
	if err != nil {
		return false, err
	}
	switch {
	case before == nil:
		changed, err = true, os.Remove(path)
	case !bytes.Equal(before, text):
		changed, err = true, file.Replace(path, before, mode)
	}
	if err != nil {
		return false, err
	}
	// They go last: if something failed before, uninstall can be tried again.
	leftovers := []string{memoryFile(path)}
	if t.delegate {
		leftovers = append(leftovers, filepath.Join(filepath.Dir(path), DelegateFile))
	}
	for _, name := range leftovers {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return changed, err
		}
	}
	return changed, nil
}

// withoutHooks are the settings without our hooks: those that memory has, if they have not
// changed since, else the text with our hooks cut out. It is nil if there were none.
func (t *Tool) withoutHooks(path string, text []byte) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	note, err := os.ReadFile(memoryFile(path))
	var m memory
	if err == nil && json.Unmarshal(note, &m) == nil && m.After == sum(text) {
		return m.Before, nil
	}
	return t.Remove(text)
}

// open reads settings. It follows a link to where they are, so that a link into a
// dotfiles folder stays a link. The text is nil if there are none, and mode is the one
// to write them with.
func open(given string) (path string, text []byte, mode fs.FileMode, err error) {
	if path, err = filepath.EvalSymlinks(given); errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Lstat(given); e == nil {
			return "", nil, 0, fmt.Errorf("%s is a link to nothing", given)
		}
		return given, nil, 0o600, nil
	}
	if err != nil {
		return "", nil, 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", nil, 0, err
	}
	if text, err = os.ReadFile(path); text == nil {
		text = []byte{}
	}
	return path, text, info.Mode().Perm(), err
}

// sum is the SHA-256 of a text, in hexadecimal.
func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}
