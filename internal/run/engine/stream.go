package engine

import (
	"fmt"
	"maps"
	"unicode/utf8"

	"signalbox/internal/wire"
)

const (
	// maxAnswer is how much of an answer is kept. The end of it is: that is where the
	// agent says what came of the work.
	maxAnswer = 4 << 20
	// maxOpen bounds what is remembered of actions that are not done, in number and bytes.
	maxOpen      = 4096
	maxOpenBytes = 8 << 20
	// maxPreview is how many characters of a tool's output an event has.
	maxPreview = 500
)

// Stream translates the lines of one run. Events are handed to the function that it was
// made with, in the order of the lines, and none after completed.
type Stream struct {
	engine *Engine
	job    Job
	emit   func(Event)
	to     translator

	session    string // the id, once it is known
	started    bool
	completed  bool
	understood bool
	notes      int
	answer     []byte
	usage      Usage
	counted    bool
	open       map[string]*Action
	openBytes  int
}

// NewStream begins a stream of the engine.
func (e *Engine) NewStream(j Job, emit func(Event)) *Stream {
	return &Stream{
		engine: e, job: j, emit: emit, to: e.start(), open: map[string]*Action{},
		usage: Usage{Source: e.Name, Model: j.model()},
	}
}

// Line takes one line.
func (s *Stream) Line(line []byte) {
	if s.completed {
		return
	}
	if v, ok := parse(line); ok {
		s.understood = true
		s.to.line(s, v)
	}
}

// TooLong takes note of a line that was left out.
func (s *Stream) TooLong() {
	if !s.completed {
		s.note(fmt.Sprintf("%s wrote a line of more than %d MiB, which was left out", s.engine.Name, MaxLine>>20))
	}
}

// SetPID says which process it is, once that is known.
func (s *Stream) SetPID(pid int) { s.job.PID = pid }

// Completed reports whether the last event is out.
func (s *Stream) Completed() bool { return s.completed }

// Understood reports whether there was a line that is JSON: until then the program may
// be waiting for somebody to log in.
func (s *Stream) Understood() bool { return s.understood }

// Usage is what the run has used so far.
func (s *Stream) Usage() Usage { return s.usage }

// Session is the session of the run: the one it reported, or the one it was to go on
// with. It is nil when neither is known.
func (s *Stream) Session() *Resume {
	switch {
	case s.session != "":
		return &Resume{Engine: s.engine.Name, Value: s.session}
	case s.job.Resume.Value != "":
		return &Resume{Engine: s.engine.Name, Value: s.job.Resume.Value}
	}
	return nil
}

// learn takes the first id that the engine tells; later ones do not count.
func (s *Stream) learn(id string) {
	if s.session == "" {
		s.session = id
	}
}

// begin says started, once the id is known. A run that was to go on with another session
// has failed.
func (s *Stream) begin(title string, meta map[string]any) {
	if s.started || s.completed || s.session == "" {
		return
	}
	if want := s.job.Resume.Value; want != "" && want != s.session {
		got := s.session
		s.session = want
		s.started = true // there is none
		s.complete(false, "", fmt.Sprintf("%s emitted session id %s but expected %s", s.engine.Name, got, want))
		return
	}
	s.started = true
	s.supplement(title, meta)
}

// supplement says started, again when there is more to tell about it.
func (s *Stream) supplement(title string, meta map[string]any) {
	all := map[string]any{}
	maps.Copy(all, meta)
	if s.job.PID > 0 {
		all["pid"] = s.job.PID
	}
	s.emit(Event{Type: Started, Engine: s.engine.Name, Resume: s.Session(), Title: title, Meta: all})
}

// act says that an action begins.
func (s *Stream) act(a *Action) {
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

// closeAction takes an open action off the list, as a copy that may be changed; nil when there is
// none.
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

// done says that an action is done.
func (s *Stream) done(a *Action, ok bool) {
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Done, OK: &ok})
}

// update says that an action goes on.
func (s *Stream) update(a *Action) {
	s.emit(Event{Type: Acted, Engine: s.engine.Name, Action: a, Phase: Updated})
}

// note is a warning of ours.
func (s *Stream) note(text string) {
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

// say adds to the answer.
func (s *Stream) say(text string) {
	s.answer = append(s.answer, text...)
	if len(s.answer) <= 2*maxAnswer {
		return
	}
	s.answer = tail(s.answer)
}

// tail is the end of an answer that is too long, in memory of its own.
func tail(answer []byte) []byte {
	from := len(answer) - maxAnswer
	for !utf8.RuneStart(answer[from]) {
		from++
	}
	return append(make([]byte, 0, 2*maxAnswer+4096), answer[from:]...)
}

// reset begins the answer anew.
func (s *Stream) reset(text string) { s.answer = append(s.answer[:0], text...) }

// complete is the end. answer stands in when the agent has said nothing; a failure has a
// reason.
func (s *Stream) complete(ok bool, answer, problem string) {
	if s.completed {
		return
	}
	s.to.begin(s)
	if s.completed {
		return // it was another session
	}
	s.completed = true
	if len(s.answer) > maxAnswer {
		s.answer = tail(s.answer)
	}
	if len(s.answer) > 0 {
		answer = string(s.answer)
	}
	if !ok && problem == "" {
		problem = s.engine.Name + " run failed"
	}
	if ok {
		problem = ""
	}
	s.emit(Event{
		Type: Completed, Engine: s.engine.Name, OK: &ok, Answer: answer, Resume: s.Session(), Error: problem,
		Usage: s.usage.report(s.counted),
	})
}

// count adds tokens.
func (s *Stream) count(t Tokens) {
	s.counted = true
	sum := &s.usage.Tokens
	sum.Input += t.Input
	sum.Output += t.Output
	sum.CacheRead += t.CacheRead
	sum.CacheWrite += t.CacheWrite
	sum.Reasoning += t.Reasoning
}

// preview is the beginning of a tool's output.
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
