// Package vector checks engines against recorded cases: a stream as a CLI wrote it, how
// its process ended, and the events that must come out; beside them cases of command
// lines, resume lines and titles.
//
// A folder holds NAME.jsonl with NAME.expected.json, and may hold argv.cases.json,
// resume.cases.json and titles.cases.json. Any implementation of these engines can be
// checked with the same files. A problem is reported with the path at which two events
// differ. The package knows the engines, and nothing of processes or ledgers.
package vector

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// Outcome is the result of one case. Problem is "" if it passed.
type Outcome struct {
	Name    string
	Problem string
}

// settings are the settings of a case. What is absent has the engine's default.
type settings struct {
	Model string `json:"model"`
	Mode  string `json:"mode"`
	// RunModel is the model for this run alone; AllowAll is nil for the engine's default.
	RunModel string `json:"run_model"`
	AllowAll *bool  `json:"dangerously_allow_all"`
	Stream   bool   `json:"stream_json_input"`
}

// Case is a recorded run: what the CLI wrote, how it ended, and the events that must
// come out.
type Case struct {
	// Name is that of the file, without its endings.
	Name  string `json:"-"`
	Input struct {
		Engine   string   `json:"engine"`
		Stdout   string   `json:"stdout"`
		Stderr   []string `json:"stderr"`
		ExitCode int      `json:"exit_code"`
		Resume   *string  `json:"resume"`
		Dir      string   `json:"base_dir"`
		Settings settings `json:"settings"`
	} `json:"input"`
	// Expected are the events, compared member by member; "<pid>" stands for any process
	// id.
	Expected struct {
		Events []wire.Raw `json:"events"`
	} `json:"expected"`
	// Stream is read from the file that Input.Stdout names.
	Stream []byte `json:"-"` // what the CLI wrote
}

// Check runs every case in the folder. The error is about the files; cases that fail
// are outcomes.
func Check(dir string) ([]Outcome, error) {
	cases, err := Load(dir)
	if err != nil {
		return nil, err
	}
	var all []Outcome
	for _, c := range cases {
		all = append(all, Outcome{c.Name, c.check()})
	}
	// Files of other cases are optional.
	for _, more := range []func(string) ([]Outcome, error){checkArgs, checkResume, checkTitles} {
		outcomes, err := more(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, outcomes...)
	}
	if len(all) == 0 {
		return nil, fault.New(fault.NotFound,
			"There are no cases in %s. It should have files such as 001-name.jsonl and 001-name.expected.json.", dir)
	}
	return all, nil
}

// Load reads the recorded runs of a folder, in the order of their names.
func Load(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.expected.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var cases []Case
	for _, file := range files {
		c := Case{Name: strings.TrimSuffix(filepath.Base(file), ".expected.json")}
		if err := read(file, &c); err != nil {
			return nil, err
		}
		// The first vectors were about amp alone and did not name it.
		if c.Input.Engine == "" {
			c.Input.Engine = "amp"
		}
		// Only the base name counts: a case reads no file outside of its folder.
		if c.Stream, err = os.ReadFile(filepath.Join(dir, filepath.Base(c.Input.Stdout))); err != nil {
			return nil, fault.Wrap(err, fault.NotFound, "Cannot read the stream of %s.", file)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// read reads a file of cases. An absent file keeps its error, since some files are
// optional.
func read(file string, v any) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = wire.UnmarshalPart(text, v)
	}
	if err != nil && !os.IsNotExist(err) {
		return fault.Wrap(err, fault.InvalidPayload, "%s is not a file of cases: %v.", file, err)
	}
	return err
}

// Job is the job of a case.
func (c *Case) Job() engine.Job {
	j := c.Input.Settings.job(c.Input.Engine)
	j.Dir = c.Input.Dir
	if c.Input.Resume != nil {
		j.Resume = engine.Resume{Engine: c.Input.Engine, Value: *c.Input.Resume}
	}
	return j
}

// job is a job with the settings. Its PID is any real one: expected events say "<pid>".
func (s settings) job(name string) engine.Job {
	e, err := engine.Find(name)
	// Cases say what differs from the engine's default.
	allow := err == nil && e.AllowAll
	if s.AllowAll != nil {
		allow = *s.AllowAll
	}
	return engine.Job{
		Override: s.RunModel, PID: os.Getpid(),
		Settings: engine.Settings{Model: s.Model, Mode: s.Mode, AllowAll: allow, StreamInput: s.Stream},
	}
}

// check translates the stream as a live one would be, and compares.
func (c *Case) check() string {
	e, err := engine.Find(c.Input.Engine)
	if err != nil {
		return err.Error()
	}
	var events []engine.Event
	s := e.NewStream(c.Job(), func(e engine.Event) { events = append(events, e) })
	// The stream goes through the same reader as a live one, so that long and unterminated
	// lines are covered too.
	for lines := engine.NewLines(bytes.NewReader(c.Stream)); ; {
		line, tooLong, err := lines.Next()
		if err != nil {
			break
		}
		if tooLong {
			s.TooLong()
			continue
		}
		s.Line(line)
	}
	// The process of a recorded run has ended as the case says, with what it wrote to
	// standard error.
	s.Finish(engine.Exit{Code: c.Input.ExitCode, Stderr: c.Input.Stderr})
	return c.Compare(events)
}

// Compare says how events differ from those that are expected, "" if they do not.
func (c *Case) Compare(events []engine.Event) string {
	for i, event := range events {
		got, err := wire.EncodeData(event)
		if err != nil {
			return err.Error()
		}
		// An event too many matters as much as a missing one: readers count on exactly one
		// completed.
		if i >= len(c.Expected.Events) {
			return fmt.Sprintf("event %d should not be there: %.300s", i+1, got)
		}
		if where := differ("", decode(c.Expected.Events[i]), decode(got)); where != "" {
			return fmt.Sprintf("event %d: %s", i+1, where)
		}
	}
	if n := len(events); n < len(c.Expected.Events) {
		return fmt.Sprintf("event %d is missing: %.300s", n+1, c.Expected.Events[n])
	}
	return ""
}
