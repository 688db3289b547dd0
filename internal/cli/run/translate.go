package run

import (
	"bufio"
	"errors"
	"os"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/run/engine"
)

// newTranslate translates a stream on standard input. It needs no server and no
// configuration, so that any program may use it.
func newTranslate(a *command.App) *command.Command {
	c := &command.Command{
		Use:     "translate --engine NAME",
		Short:   "Translate the stream of an agent CLI on standard input into events on standard output",
		Example: "  amp --stream-json -x < prompt.txt | signalbox runs translate --engine amp",
		Args:    command.Exactly(0, "no arguments: the stream is standard input"),
	}
	var name, dir, resume string
	var job engine.Job
	c.Flags().StringVar(&name, "engine", "", "the engine: "+strings.Join(engine.Names(), ", "))
	c.Flags().StringVar(&dir, "cwd", "", "the folder that titles are relative to (default: the current one)")
	c.Flags().StringVar(&resume, "resume", "", "the session that the run was asked to resume")
	c.Flags().StringVar(&job.Settings.Model, "model", "", "the model that was configured")
	c.Flags().StringVar(&job.Settings.Mode, "mode", "", "the mode that was configured")
	c.RunE = func(*command.Command, []string) error {
		e, err := engine.Find(name)
		if err != nil {
			return command.Usage("%s", fault.From(err).Message)
		}
		if job.Dir = dir; dir == "" {
			job.Dir, _ = os.Getwd()
		}
		// There is no process; ours stands in, since started always has one.
		job.PID = os.Getpid()
		if resume != "" {
			if job.Resume, err = e.ReadResume(resume); err != nil {
				return command.Usage("%s", fault.From(err).Message)
			}
		}
		return translate(a, e, job)
	}
	return c
}

// translate writes the events of a stream as lines of JSON. They are flushed when no
// more input is waiting, so that a live stream is not delayed and a recorded one is
// fast. The end of the input counts as an exit with 0. Lines that are no JSON are told on standard error.
func translate(a *command.App, e *engine.Engine, job engine.Job) error {
	out := bufio.NewWriterSize(a.Out.Exactly(), 64<<10)
	var line []byte
	var failed error
	s := e.NewStream(job, func(event engine.Event) {
		var err error
		if line, err = event.Line(line[:0]); err == nil {
			_, err = out.Write(line)
		}
		failed = errors.Join(failed, err)
	})
	lines := engine.NewLines(a.In)
	for n := 1; failed == nil; n++ {
		text, tooLong, err := lines.Next()
		if err != nil {
			break
		}
		if tooLong {
			s.TooLong()
		} else if !s.Line(text) {
			a.Err.Print("line %d is not JSON, and is left out", n)
		}
		if !lines.Buffered() { // whoever reads is not kept waiting
			failed = errors.Join(failed, out.Flush())
		}
	}
	s.Finish(engine.Exit{})
	return errors.Join(failed, out.Flush())
}
