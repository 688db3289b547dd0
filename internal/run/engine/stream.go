package engine

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"signalbox/internal/wire"
)

const (
	// maxAnswer is how much of an answer is kept, in bytes (RUN-8). The end is kept, where
	// the agent says what came of the work.
	maxAnswer = 4 << 20
	// maxOpen and maxOpenBytes bound what is remembered of actions that are not done.
	// Beyond, an action is still shown when it begins, but not when it ends.
	maxOpen      = 4096
	maxOpenBytes = 8 << 20
	// maxPreview is how many characters of a tool's output an event has (RUN-9).
	maxPreview = 500
)

// Stream translates the lines of one run. It hands events to the function that it was
// made with, in the order of the lines (RUN-2), and none after completed (RUN-1).
// NewStream makes it, Line feeds it, Finish ends it. It is not safe for use by several
// goroutines at once; the function is called by the goroutine that calls Line.
type Stream struct {
	engine *Engine
	job    Job
	emit   func(Event)
	to     translator

	// session is set once and never changes, but for begin, which puts the asked-for
	// session in its place when the run fails.
	session   string // the id, once it is known
	started   bool
	completed bool
	// understood: a line was JSON, whatever it said.
	understood bool
	cause      Cause // why the run was ended, "" if it ends by itself
	notes      int
	skipped    int // lines that were no JSON
	heard      int // lines that were
	stalls     int
	stalled    *Action // the warning that the CLI is silent, while it is
	answer     []byte
	usage      Usage
	models     map[string]Tokens // what usage has of each model, "" for the model of the run
	// counted: tokens were reported, perhaps 0. Without it, completed has no usage.
	counted bool
	// open are actions without an end, and openBytes their size as far as it matters.
	open      map[string]*Action
	openBytes int
}

// NewStream begins a stream of the engine.
func (e *Engine) NewStream(j Job, emit func(Event)) *Stream {
	return &Stream{
		engine: e, job: j, emit: emit, to: e.start(), open: map[string]*Action{},
		usage: Usage{Source: e.Name, Model: j.model()},
	}
}

// Line translates one line, and reports false for one that should be JSON and is not: that is skipped (RUN-11), and for
// the caller to tell of with Malformed. Everything after completed is ignored (RUN-15).
func (s *Stream) Line(line []byte) (ok bool) {
	if s.completed {
		return true
	}
	v, ok := parse(line)
	if ok {
		s.understood = true
		s.heard++
		s.endStall()
		s.to.line(s, v)
		return true
	}
	line = bytes.TrimSpace(line)
	// What a CLI says to people before its first event is no damage to the stream.
	return len(line) == 0 || !s.understood && line[0] != '{'
}

const (
	// maxMalformed is how many malformed lines of a run have a warning each, and maxQuoted how much of a line that shows.
	maxMalformed = 20
	maxQuoted    = 120
)

// Malformed warns of a line that was skipped because it is no JSON (RUN-11). A run of many such lines has a warning for
// the first, and one that counts the others.
func (s *Stream) Malformed(line []byte) {
	s.skipped++
	if s.completed || s.skipped > maxMalformed {
		return
	}
	text := strings.ToValidUTF8(string(line[:min(len(line), 4*maxQuoted)]), "\uFFFD")
	s.emitWarning(fmt.Sprintf("%s wrote a line that is not JSON, which was left out: %s", s.engine.Name,
		Excerpt([]string{first(strings.TrimSpace(text), maxQuoted)})))
}

// TooLong notes a line that was left out (RUN-13).
func (s *Stream) TooLong() {
	if !s.completed {
		s.emitWarning(fmt.Sprintf("%s wrote a line of more than %d MiB, which was left out", s.engine.Name, MaxLine>>20))
	}
}

// Heard is how many lines of JSON there were: the signs of life of the CLI.
func (s *Stream) Heard() int { return s.heard }

// stallID begins the ids of warnings that a CLI is silent.
const stallID = "signalbox.silent."

// Stall warns that the CLI is silent, until it says something (RUN-51).
func (s *Stream) Stall(text string) {
	if s.completed || s.stalled != nil {
		return
	}
	s.stalls++
	s.stalled = &Action{ID: fmt.Sprint(stallID, s.stalls), Kind: Warning, Title: text, Detail: map[string]any{}}
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: s.stalled, Phase: Begun, Level: "warning"})
}

// endStall says that the CLI is silent no more.
func (s *Stream) endStall() {
	if a := s.stalled; a != nil {
		s.stalled = nil
		s.emitDone(a, true)
	}
}

// Warn shows people something that the run itself does not say, such as what its sandbox has refused.
func (s *Stream) Warn(text string) {
	if !s.completed {
		s.emitWarning(text)
	}
}

// IsStall reports whether an event says that the CLI has been silent for long.
func (e Event) IsStall() bool {
	return e.Action != nil && e.Phase == Begun && strings.HasPrefix(e.Action.ID, stallID)
}

// SetPID tells which process it is, for the meta of started.
func (s *Stream) SetPID(pid int) { s.job.PID = pid }

// Completed reports whether the last event is out.
func (s *Stream) Completed() bool { return s.completed }

// Understood reports whether there was a line of JSON. Until then the program may be
// waiting for somebody to sign in (RUN-20).
func (s *Stream) Understood() bool { return s.understood }

// Session is the session of the run: the one that the CLI reported, or the one that it
// was given. It is nil if neither is known.
func (s *Stream) Session() *Resume {
	switch {
	case s.session != "":
		return &Resume{Engine: s.engine.Name, Value: s.session}
	case s.job.Resume.Value != "":
		return &Resume{Engine: s.engine.Name, Value: s.job.Resume.Value}
	}
	return nil
}

// setSession takes the first id that the engine reports; later ones do not count (RUN-4).
func (s *Stream) setSession(id string) {
	if s.session == "" {
		s.session = id
	}
}

// begin emits started, once, when the session is known (RUN-4). A run that was to go on
// with another session has failed (RUN-5): its work is in a session that nobody asked
// for.
func (s *Stream) begin(title string, meta map[string]any) {
	if s.started || s.completed || s.session == "" {
		return
	}
	if want := s.job.Resume.Value; want != "" && want != s.session {
		got := s.session
		s.session = want
		// complete calls the translator's begin; this keeps it from coming back here.
		s.started = true // there is none
		s.complete(false, fmt.Sprintf("%s emitted session id %s but expected %s", s.engine.Name, got, want))
		return
	}
	s.started = true
	s.emitStarted(title, meta)
}

// beginWithModel begins for a CLI that has no more to tell than the model.
func (s *Stream) beginWithModel() {
	meta := map[string]any{}
	if s.usage.Model != "" {
		meta["model"] = s.usage.Model
	}
	s.begin(s.engine.title, meta)
}

// emitStarted emits started, again if there is more to tell about the run (RUN-3).
func (s *Stream) emitStarted(title string, meta map[string]any) {
	all := map[string]any{}
	maps.Copy(all, meta)
	if s.job.PID > 0 {
		all["pid"] = s.job.PID
	}
	s.emit(Event{Type: Started, Engine: s.engine.Name, Resume: s.Session(), Title: title, Meta: all})
}

// emitBegun emits the beginning of an action, and remembers it until its end.
func (s *Stream) emitBegun(a *Action) {
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Begun})
	size := len(a.Title)
	for _, d := range a.Detail {
		if raw, ok := d.(wire.Raw); ok {
			size += len(raw)
		}
	}
	if len(s.open) < maxOpen && s.openBytes+size <= maxOpenBytes {
		s.open[a.ID] = a
		s.openBytes += size
	}
}

// closeAction takes an open action off the list and returns a copy that may be changed,
// since the event of its beginning holds the original. It is nil if the action is not
// open.
func (s *Stream) closeAction(id string) *Action {
	a := s.open[id]
	if a == nil {
		return nil
	}
	delete(s.open, id)
	if len(s.open) == 0 {
		s.openBytes = 0
	}
	c := *a
	c.Detail = maps.Clone(a.Detail)
	return &c
}

// emitDone emits the end of an action.
func (s *Stream) emitDone(a *Action, ok bool) {
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Done, OK: &ok})
}

// emitUpdated emits progress of an action.
func (s *Stream) emitUpdated(a *Action) {
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Updated})
}

// emitWarning emits a warning of our own.
func (s *Stream) emitWarning(text string) {
	s.notes++
	no := false
	s.emit(Event{
		Type: Acted, Engine: s.engine.Name, Phase: Done, OK: &no, Message: text, Level: "warning",
		Action: &Action{
			ID: fmt.Sprintf("%s.note.%d", s.engine.Name, s.notes), Kind: Warning, Title: text,
			Detail: map[string]any{},
		},
	})
}

// appendAnswer appends to the answer. It is cut when it has twice the size that is kept, so that
// cutting costs little.
func (s *Stream) appendAnswer(text string) {
	s.answer = append(s.answer, text...)
	if len(s.answer) <= 2*maxAnswer {
		return
	}
	s.answer = tail(s.answer)
}

// tail is the end of an answer that is too long, at the beginning of a character, in
// memory of its own.
func tail(answer []byte) []byte {
	from := len(answer) - maxAnswer
	for !utf8.RuneStart(answer[from]) {
		from++
	}
	return append(make([]byte, 0, 2*maxAnswer+4096), answer[from:]...)
}

// setAnswer replaces the answer.
func (s *Stream) setAnswer(text string) { s.answer = append(s.answer[:0], text...) }

// complete emits the end, once (RUN-1). The answer is what the agent has said, and never why it failed: a failure
// always has an error text, and a success never (RUN-7).
func (s *Stream) complete(ok bool, problem string) {
	if s.completed {
		return
	}
	// Every run whose session is known has a started before its completed, also one that
	// failed early.
	s.to.begin(s)
	if s.completed {
		return // it was another session
	}
	if more := s.skipped - maxMalformed; more > 0 {
		s.emitWarning(fmt.Sprintf("%s wrote %d more lines that are not JSON, which were left out", s.engine.Name, more))
	}
	s.completed = true
	if len(s.answer) > maxAnswer {
		s.answer = tail(s.answer)
	}
	if !ok && problem == "" {
		problem = s.engine.Name + " run failed"
	}
	if ok {
		problem, s.cause = "", ""
	}
	s.emit(Event{
		Type: Completed, Engine: s.engine.Name, OK: &ok, Answer: string(s.answer), Resume: s.Session(), Error: problem,
		Usage: s.usage.report(s.counted), Cause: s.cause, Outcome: s.cause.Outcome(),
	})
}

// preview is the beginning of a tool's output: maxPreview characters, not bytes.
func preview(text string) string {
	n := 0
	for i := range text {
		if n == maxPreview {
			return text[:i]
		}
		n++
	}
	return text
}
