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
)

// DelegateFile is a program beside Amp's settings: a delegate is a program without
// arguments.
const DelegateFile = "signalbox-delegate"

// memory is what is kept beside settings, so that they can be put back byte for byte.
type memory struct {
	Before []byte `json:"before"` // nil when there were none
	After  string `json:"after"`  // the SHA-256 of what was written
}

func memoryFile(file string) string { return file + ".signalbox" }

// Install registers the hooks in a file of settings. It reports whether anything changed.
func (t *Tool) Install(file, command string, within time.Duration) (changed bool, err error) {
	file, text, mode, err := open(file)
	if err != nil {
		return false, err
	}
	before, err := t.original(file, text)
	if err != nil {
		return false, err
	}
	program := command
	if t.delegate {
		if command, err = filepath.Abs(filepath.Join(filepath.Dir(file), DelegateFile)); err != nil {
			return false, err
		}
	}
	after, err := t.Add(before, Entry{Command: command, Within: within})
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, err
	}
	if t.delegate {
		script := []byte("#!/bin/sh\nexec " + program + "\n")
		known, _ := os.ReadFile(command) // none is another one
		if changed = !bytes.Equal(known, script); changed {
			if err := write(command, script, 0o700); err != nil {
				return false, err
			}
		}
	}
	if bytes.Equal(after, text) {
		return changed, nil
	}
	// What it was comes first: settings are never changed without it.
	note, err := json.Marshal(memory{Before: before, After: sum(after)})
	if err == nil {
		err = write(memoryFile(file), note, 0o600)
	}
	if err != nil {
		return false, err
	}
	return true, write(file, after, mode)
}

// Uninstall takes the hooks out of a file of settings. If nothing else has changed since
// they were put there, it is what it was, byte for byte.
func (t *Tool) Uninstall(file string) (changed bool, err error) {
	file, text, mode, err := open(file)
	if err != nil || text == nil {
		return false, err
	}
	before, err := t.original(file, text)
	if err != nil {
		return false, err
	}
	switch {
	case before == nil:
		changed, err = true, os.Remove(file)
	case !bytes.Equal(before, text):
		changed, err = true, write(file, before, mode)
	}
	if err != nil {
		return false, err
	}
	leftovers := []string{memoryFile(file)}
	if t.delegate {
		leftovers = append(leftovers, filepath.Join(filepath.Dir(file), DelegateFile))
	}
	for _, name := range leftovers {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return changed, err
		}
	}
	return changed, nil
}

// original is what settings are without our hooks, nil for none at all.
func (t *Tool) original(file string, text []byte) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	note, err := os.ReadFile(memoryFile(file))
	var m memory
	if err == nil && json.Unmarshal(note, &m) == nil && m.After == sum(text) {
		return m.Before, nil
	}
	return t.Remove(text)
}

// open reads settings, following a link to where they are. The text is nil when there are
// none.
func open(file string) (path string, text []byte, mode fs.FileMode, err error) {
	if path, err = filepath.EvalSymlinks(file); errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Lstat(file); e == nil {
			return "", nil, 0, fmt.Errorf("%s is a link to nothing", file)
		}
		return file, nil, 0o600, nil
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

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// write puts a file there, whole or not at all.
func write(path string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".signalbox-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // when it was not moved
	_, err = f.Write(text)
	for _, step := range []func() error{func() error { return f.Chmod(mode) }, f.Sync, f.Close} {
		if e := step(); err == nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
