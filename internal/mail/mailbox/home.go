package mailbox

import (
	"bytes"
	"encoding/json" // the folder is shared with clients that write what wire would refuse
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"signalbox/internal/fault"
	"signalbox/internal/file"
)

// Where is which agent's folder is meant. Empty fields are completed by FromEnvironment, and then
// by what exists.
type Where struct {
	Dir   string // the agent's own folder (AMP_DIR)
	Root  string // the folder of all agents, ~/.agent-messaging by default
	Agent string // a name or an id (CLAUDE_AGENT_NAME, CLAUDE_AGENT_ID)
}

// FromEnvironment completes fields that flags left empty, with the variables that the bash clients
// use. A flag for one thing turns off the variables for the others: --agent wins over AMP_DIR.
func (w Where) FromEnvironment() (Where, error) {
	if w.Dir == "" && w.Agent == "" {
		w.Dir = os.Getenv("AMP_DIR")
	}
	for _, name := range []string{"CLAUDE_AGENT_ID", "CLAUDE_AGENT_NAME"} {
		if w.Dir == "" && w.Agent == "" {
			w.Agent = os.Getenv(name)
		}
	}
	if w.Root == "" && w.Dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return w, fault.Wrap(err, fault.InvalidConfig,
				"There is no home folder. Say with --dir where the agent's folder is.")
		}
		w.Root = filepath.Join(home, ".agent-messaging")
	}
	return w, nil
}

// nameForm is the form of a name, which becomes a folder.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// checkName refuses a name that cannot be registered or would lead out of the folder.
func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return fault.New(fault.InvalidField,
			"An agent's name should be 1 to 63 letters, digits, hyphens and underscores, such as \"my-agent\", and is %.80q.",
			name)
	}
	return nil
}

// The names in the root folder of several agents. indexFile maps names to folders.
const (
	configFile = "config.json"
	agentsDir  = "agents"
	indexFile  = ".index.json"
)

// find is the folder of the agent, "" if it does not exist. By name or id it looks in the index,
// then for a folder of that name, then at the single agent of the root.
//
// Names are compared without case, since addresses are lower case and people are not.
func (w Where) find() (string, error) {
	if w.Dir != "" {
		return existing(w.Dir), nil
	}
	if w.Agent == "" {
		return w.findOnly()
	}
	if err := checkName(w.Agent); err != nil {
		return "", err
	}
	index, err := w.index()
	if err != nil {
		return "", err
	}
	// The index first: generation B may have a folder with the name of an agent that it renamed.
	for _, folder := range []string{index[w.Agent], index[strings.ToLower(w.Agent)], w.Agent, strings.ToLower(w.Agent)} {
		// The index is a file that others write; a value such as "../x" must not be followed.
		if nameForm.MatchString(folder) && existing(filepath.Join(w.Root, agentsDir, folder)) != "" {
			return filepath.Join(w.Root, agentsDir, folder), nil
		}
	}
	if c, err := readConfig(w.Root); err == nil && (strings.EqualFold(c.Agent.Name, w.Agent) || c.Agent.ID == w.Agent) {
		return w.Root, nil
	}
	return "", nil
}

// findOnly is the folder of the only agent, "" for none. With several it is an error that lists them:
// guessing would send mail in another agent's name.
func (w Where) findOnly() (string, error) {
	var found, names []string
	if existing(w.Root) != "" {
		found = append(found, w.Root)
	}
	entries, err := os.ReadDir(filepath.Join(w.Root, agentsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", unreadable(err, w.Root)
	}
	for _, e := range entries {
		if dir := filepath.Join(w.Root, agentsDir, e.Name()); existing(dir) != "" {
			found = append(found, dir)
		}
	}
	if len(found) < 2 {
		return strings.Join(found, ""), nil
	}
	for _, dir := range found {
		if c, err := readConfig(dir); err == nil {
			names = append(names, c.Agent.Name)
		}
	}
	slices.Sort(names)
	return "", fault.New(fault.InvalidRequest,
		"There are several agents in %s: %s. Say which with --agent or CLAUDE_AGENT_NAME.", w.Root, strings.Join(names, ", "))
}

// newFolder is the folder for a new agent: the root for the first one, and below agents for every
// other, by id if there is an index and by name if there is none. It adds the agent to the index.
func (w Where) newFolder(name, id string) (dir string, err error) {
	agents := filepath.Join(w.Root, agentsDir)
	switch {
	case w.Dir != "":
		return w.Dir, nil
	case existing(w.Root) == "" && !isDir(agents):
		return w.Root, nil
	}
	index, err := w.index()
	if err != nil {
		return "", err
	}
	// Generation A knows no index and looks for a folder with the agent's name.
	if index == nil && isDir(agents) { // older clients look for the name
		return filepath.Join(agents, name), nil
	}
	if index == nil {
		index = map[string]string{}
	}
	index[name] = id
	return filepath.Join(agents, id), writeJSON(filepath.Join(agents, indexFile), index, 0o644)
}

// index maps names to folders, as generation B of the bash clients keeps it; nil if there is none.
func (w Where) index() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(w.Root, agentsDir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(err, w.Root)
	}
	var index map[string]string
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, unreadable(err, filepath.Join(w.Root, agentsDir, indexFile))
	}
	return index, nil
}

// existing is dir if it is the folder of an agent, else "".
func existing(dir string) string {
	if info, err := os.Stat(filepath.Join(dir, configFile)); err == nil && info.Mode().IsRegular() {
		return dir
	}
	return ""
}

func isDir(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

func newAgentID() string { return uuid.NewString() }

// unreadable is an error about a file that cannot be read or understood, with what to do about it.
func unreadable(err error, path string) error {
	return fault.Wrap(err, fault.InvalidConfig,
		"Cannot read %s. Repair it, or say with --dir where the agent's folder is.", path)
}

// unwritable is an error about a file that cannot be written: a full disk, or missing rights.
func unwritable(err error, path string) error {
	return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s.", path)
}

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
