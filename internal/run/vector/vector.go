// Package vector checks engines against recorded cases: a stream as a CLI wrote it, how
// its process ended, and the events that must come out; beside them cases of command
// lines, resume lines and titles.
//
// The format is that of the folders it is given; what is wrong is told with the place
// where the two differ. It knows the engines and nothing of processes or ledgers.
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

// Outcome is how one case came out; Problem is "" when it is right.
type Outcome struct {
	Name    string
	Problem string
}

// settings are the settings of a case; what is absent has the engine's default.
type settings struct {
	Model    string `json:"model"`
	Mode     string `json:"mode"`
	RunModel string `json:"run_model"`
	AllowAll *bool  `json:"dangerously_allow_all"`
	Stream   bool   `json:"stream_json_input"`
}

// Case is a recorded run.
type Case struct {
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
	Expected struct {
		Events []wire.Raw `json:"events"`
	} `json:"expected"`
	Stream []byte `json:"-"` // what the CLI wrote
}

// Check runs every case in the folder.
func Check(dir string) ([]Outcome, error) {
	cases, err := Load(dir)
	if err != nil {
		return nil, err
	}
	var all []Outcome
	for _, c := range cases {
		all = append(all, Outcome{c.Name, c.check()})
	}
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

// Load reads the recorded runs of a folder.
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
		if c.Input.Engine == "" {
			c.Input.Engine = "amp"
		}
		if c.Stream, err = os.ReadFile(filepath.Join(dir, filepath.Base(c.Input.Stdout))); err != nil {
			return nil, fault.Wrap(err, fault.NotFound, "Cannot read the stream of %s.", file)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

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

func (s settings) job(name string) engine.Job {
	e, err := engine.Find(name)
	allow := err == nil && e.AllowAll
	if s.AllowAll != nil {
		allow = *s.AllowAll
	}
	return engine.Job{
		Override: s.RunModel, PID: os.Getpid(),
		Settings: engine.Settings{Model: s.Model, Mode: s.Mode, AllowAll: allow, StreamInput: s.Stream},
	}
}

// check translates the stream and compares.
func (c *Case) check() string {
	e, err := engine.Find(c.Input.Engine)
	if err != nil {
		return err.Error()
	}
	var events []engine.Event
	s := e.NewStream(c.Job(), func(e engine.Event) { events = append(events, e) })
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
	s.Finish(engine.Exit{Code: c.Input.ExitCode, Stderr: c.Input.Stderr})
	return c.Compare(events)
}

// Compare says how events differ from those that are expected, "" when they do not.
func (c *Case) Compare(events []engine.Event) string {
	for i, event := range events {
		got, err := wire.EncodeData(event)
		if err != nil {
			return err.Error()
		}
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
