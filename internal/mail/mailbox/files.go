package mailbox

import (
	"bytes"
	"encoding/json" // the folder is shared with clients that write what wire would refuse
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"signalbox/internal/file"
)

// encode writes JSON. Raw values keep their tokens: no HTML escapes, no reordering, so signatures
// stay verifiable.
func encode(v any, indent string) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return out.Bytes(), err
}

// writeJSON replaces a file with an indented JSON text.
func writeJSON(path string, v any, mode fs.FileMode) error {
	text, err := encode(v, "  ")
	if err != nil {
		return err
	}
	return writeFile(path, text, mode)
}

// writeFile replaces a file as a whole or not at all, durably, and makes the folders above it.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	return put(path, content, mode, file.Replace)
}

// createFile is writeFile for a file that must not exist: the error is fs.ErrExist then, even if
// another process creates it at the same moment.
func createFile(path string, content []byte, mode fs.FileMode) error {
	return put(path, content, mode, file.Create)
}

// put makes the folders above a file, and writes it.
func put(path string, content []byte, mode fs.FileMode, write func(string, []byte, fs.FileMode) error) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = write(path, content, mode)
	}
	if err != nil {
		return unwritable(err, path)
	}
	return nil
}

// object is a JSON object of which we know some members. The others belong to other clients, and are
// written back as they were.
type object map[string]json.RawMessage

// readObject reads a file that must hold an object.
func readObject(path string) (object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errors.New("it holds null, and should hold an object")
	}
	return o, nil
}

// text is the first of the named members that is a text and not empty, "" for none. A member of
// another type is passed over: other clients wrote it.
func (o object) text(names ...string) string {
	for _, name := range names {
		var s string
		if json.Unmarshal(o[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// part is a copy of a member that is an object, empty if there is none. Put it back with set.
func (o object) part(name string) object {
	var p object
	if json.Unmarshal(o[name], &p) != nil || p == nil {
		p = object{}
	}
	return p
}

// set puts a value under each of the names.
//
// Both spellings of a member get the same value, so that no client reads an old one.
func (o object) set(v any, names ...string) {
	raw, err := encode(v, "")
	if err != nil {
		return // cannot happen: values are texts, flags and objects of ours
	}
	for _, name := range names {
		o[name] = bytes.TrimSpace(raw)
	}
}
