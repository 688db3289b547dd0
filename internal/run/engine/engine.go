package engine

import (
	"regexp"
	"slices"
	"sync"
	"time"

	"signalbox/internal/fault"
)

// Settings are the configuration of an engine, from runs.ENGINE.*.
type Settings struct {
	// Command is looked up in PATH if it is a name, and used as it is if it is a path.
	Command     string // the program, found in the path when it is a name
	Model       string
	Mode        string
	Permissions Mode // of its runs, "" for the default
	AllowAll    bool // every tool call is allowed without asking
	StreamInput bool
	Env         []string // names of variables that a run of a server gets beside those that it needs
	Sandbox     bool     // its runs are in a sandbox
	Hosts       []string // what they may call from there beside the hosts of its provider
	// How long it may take until it says something, be silent, and take in all; nil is what all engines have.
	StartTimeout, IdleTimeout, TotalTimeout *time.Duration
}

// Job is one run of an engine: what is asked, where, and under which settings. It does
// not change once a stream was made from it, but for the PID.
type Job struct {
	Prompt   string
	Resume   Resume // the session to go on with; the zero value begins a new one
	Dir      string // where the agent works; titles are relative to it
	Settings Settings
	// Override beats Settings.Model. For amp it is the mode, since amp has no flag for a
	// model.
	Override string  // the model, or amp's mode, for this run alone
	MaxUSD   float64 // what it may cost, for a CLI that can stop by itself; 0 is no limit
	// Mode is what it may do; "" is what its own settings say, as for recorded streams.
	Mode  Mode
	Guard []string // the arguments that hold the CLI to the mode, from Engine.Permit
	// Sandboxed says that the CLI works in a sandbox of ours.
	Sandboxed bool
	PID       int // of the process, for those who watch it
	// Metered leads the calls of models elsewhere, for an engine whose arguments can say so.
	Metered *Metered
}

// model is the model that the run is to use, "" for the CLI's own choice.
func (j Job) model() string {
	if j.Override != "" {
		return j.Override
	}
	return j.Settings.Model
}

// Engine is an agent CLI: how it is called, and how its stream is read. There is one
// value per CLI, made once and never changed.
type Engine struct {
	Name    string
	Install string // what to install when the program is not there
	// AllowAll is true for engines whose own document runs them so (RUN-18).
	AllowAll bool   // the default of Settings.AllowAll
	label    string // its name in messages about its process
	title    string // the title of a run that has no better one
	args     func(Job) []string
	stdin    func(Job) string // nil is the prompt
	env      []string
	needs    []string // the names of its variables, see Listed
	meter    *Meter   // how its calls of models can be led through the proxy, nil if they cannot
	costs    bool     // it says what each call costs, or stops by itself at a cost
	late     string   // why a budget cannot be kept by what it writes, "" if it can
	permit   func(Permit) (Permission, error)
	cannot   func(Job) string          // why the CLI cannot be held to the mode of a job here, nil for never
	folder   func(Mode) string         // see Folder
	ownModes bool                      // its setting mode is a word about permissions
	line     func(token string) string // the resume line
	// whole is the whole id of a session that was given by its beginning, nil where ids are always whole.
	whole   func(Job) (string, error)
	pattern *regexp.Regexp
	start   func() translator
}

// translator turns the lines of one engine into events of a stream. Each run has its
// own, and one goroutine calls it. It emits through the methods of Stream, which keep
// the rules that all engines share.
type translator interface {
	line(s *Stream, v value)
	// begin emits started with what is known by now, if it is not out yet and the session
	// is known.
	begin(s *Stream)
	// end decides how a stream ends whose process exited with 0 and wrote no result
	// (RUN-25).
	end(s *Stream) (ok bool, problem string)
}

// All are the engines, in the order in which a text is searched for their resume lines.
func All() []*Engine { return slices.Clone(all()) }

// all makes the engines once. Compiling their patterns takes longer than looking up a
// run.
var all = sync.OnceValue(func() []*Engine { return []*Engine{amp(), claude(), codex(), gemini(), opencode(), pi()} })

// Names are the names of the engines.
func Names() (names []string) {
	for _, e := range all() {
		names = append(names, e.Name)
	}
	return names
}

// Find is the engine with the name. The error names the nearest one.
func Find(name string) (*Engine, error) {
	i := slices.IndexFunc(all(), func(e *Engine) bool { return e.Name == name })
	if i < 0 {
		return nil, fault.New(fault.InvalidRequest, "There is no engine %q. %s", name,
			fault.DidYouMean(name, Names())).About("engine")
	}
	return all()[i], nil
}

// Command is the program of a job: the configured one, or the engine's name, to be
// found in PATH.
func (e *Engine) Command(j Job) string {
	if j.Settings.Command != "" {
		return j.Settings.Command
	}
	return e.Name
}

// Whole is the session that a job goes on with, by its whole id. The error names the sessions that the beginning of an
// id fits, if there are several.
func (e *Engine) Whole(j Job) (Resume, error) {
	if e.whole == nil || j.Resume.Value == "" {
		return j.Resume, nil
	}
	id, err := e.whole(j)
	if err != nil {
		return j.Resume, err
	}
	return Resume{Engine: e.Name, Value: id}, nil
}

// Args are the arguments of the program. The prompt is not among them (RUN-17).
func (e *Engine) Args(j Job) []string { return e.args(j) }

// Input is what the program reads from standard input.
func (e *Engine) Input(j Job) string {
	if e.stdin != nil {
		return e.stdin(j)
	}
	return j.Prompt
}

// Env is what the program's environment has beside ours.
func (e *Engine) Env() []string { return e.env }
