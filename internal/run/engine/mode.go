package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/fault"
)

// Mode is what the agent of a run may do, in a word that means the same for every engine (RUN-52). It is stored.
type Mode string

// The modes. Each allows what the one before does, but Supervised, which allows nothing by itself: Signalbox is asked
// before each tool call.
const (
	Read       Mode = "read"       // it reads, and changes nothing
	Edit       Mode = "edit"       // it changes files in its folder, too
	Full       Mode = "full"       // whatever its user may
	Supervised Mode = "supervised" // what rules and people allow
	// Own is the CLI's own word, from runs.ENGINE.mode. It cannot be asked for.
	Own Mode = "own"
)

// Modes are those that people can ask for.
var Modes = []Mode{Read, Edit, Full, Supervised}

// DefaultMode is for runs of which nobody has said more.
const DefaultMode = Edit

// ParseMode reads a mode.
func ParseMode(text string) (Mode, error) {
	if !slices.Contains(Modes, Mode(text)) {
		return "", fault.New(fault.InvalidPayload, "mode should be read, edit, full or supervised, and is %.40q.", text).About("mode")
	}
	return Mode(text), nil
}

// Meaning is what a mode allows, for the person who starts a run.
func (m Mode) Meaning() string {
	return map[Mode]string{
		Read: "it may read, and change nothing", Edit: "it may read, and change files in its folder",
		Full: "it may do whatever you may", Supervised: "it asks Signalbox before each tool call",
		Own: "as its own settings have it",
	}[m]
}

// ModeOf is the mode of a run: the one that was asked for, that of the settings, or the default. Settings of before, in
// the words of a CLI, hold while no mode is named.
func (e *Engine) ModeOf(asked Mode, s Settings) Mode {
	switch {
	case asked != "":
		return asked
	case s.Permissions != "":
		return s.Permissions
	case s.AllowAll:
		return Full
	case s.Mode != "" && e.ownModes:
		return Own
	}
	return DefaultMode
}

// May is why a job cannot have its mode in its folder, on this machine and as this user, nil if it can.
func (e *Engine) May(j Job) error {
	if e.cannot != nil {
		if why := e.cannot(j); why != "" {
			return fault.New(fault.InvalidRequest, "%s cannot run in the mode %s here: %s.", e.Name, j.Mode, why).About("mode")
		}
	}
	return nil
}

// Folder is where the folder of a run for Permit.Dir is to be made, "" for that of temporary files.
func (e *Engine) Folder(m Mode) string {
	if e.folder == nil {
		return ""
	}
	return e.folder(m)
}

// Permit is a run that is to be held to a mode.
type Permit struct {
	Mode    Mode
	Job     Job
	Dir     string   // a folder of this run alone, for what the CLI is to read
	Program string   // Signalbox
	Reach   []string // how its hooks reach the process that watches the run
}

// Permission is what holds a CLI to a mode.
type Permission struct {
	Args []string // for Job.Guard
	Env  []string
	Home string // a folder in Permit.Dir that the CLI changes while it runs, "" for none
}

// Permit makes what holds the CLI to a mode. Nothing in the person's own settings changes.
func (e *Engine) Permit(p Permit) (Permission, error) {
	p.Job.Mode = p.Mode
	if err := e.May(p.Job); err != nil {
		return Permission{}, err
	}
	return e.permit(p)
}

// hook is the command that a CLI runs before a tool call of a supervised run.
func (p *Permit) hook(name string) string {
	words := []string{quote(p.Program), "hook", name}
	for _, word := range p.Reach {
		words = append(words, quote(word))
	}
	return strings.Join(words, " ")
}

// permitChange is the command that says whether a tool may change a file in a run of the mode edit.
func (p *Permit) permitChange() string {
	return quote(p.Program) + " runs permit --dir " + quote(p.Job.Dir)
}

// write writes a file for the CLI.
func (p *Permit) write(name, text string, mode os.FileMode) (path string, err error) {
	path = filepath.Join(p.Dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		return "", cannotWrite(err, path)
	}
	return path, nil
}

// permissions are the arguments about what the CLI may do: those of the run's mode, or those of its own settings.
func (j Job) permissions(own ...[]string) []string {
	if j.Mode == "" || j.Mode == Own {
		return slices.Concat(own...)
	}
	return j.Guard
}

// Exceeds is what an event shows to be done although a mode does not allow it, "" if nothing: a CLI that does not do as
// it was told. Commands of codex run in its sandbox, whatever they are.
func (e Event) Exceeds(m Mode) string {
	if m != Read && m != Edit || e.Type != Acted || e.Phase != Done || e.OK == nil || !*e.OK || e.Action == nil {
		return ""
	}
	switch {
	case e.Action.Kind == Command && e.Engine != "codex", e.Action.Kind == FileChange && m == Read:
		return string(e.Action.Kind) + " (" + e.Action.ID + ")"
	}
	return ""
}
