package ahp

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json" // the client brings a WebSocket and nothing else beside the standard library
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"signalbox/client/internal/strict"
)

// WithSpool lets a client go on while its harness cannot be reached, as far as the server has allowed: see [Spool]. A
// step that the list does not name is refused as without a spool, and kept.
func WithSpool(s *Spool) Option { return func(o *settings) { o.spool = s } }

// unreachableError is why a harness cannot be asked.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// unreachable marks an error, unless it is that the caller wants no answer any more.
func unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &unreachableError{err}
}

// Lost marks an error of a [Stream] as one of a harness that cannot be reached, for programs that carry messages
// themselves.
func Lost(err error) error { return unreachable(err) }

// Unreachable reports whether an error says that there was no harness to ask, or that it broke off: nobody listens, no
// answer in time, a status of 500 or more. A refusal of the harness, and an answer that cannot be read, are none.
func Unreachable(err error) bool {
	_, is := errors.AsType[*unreachableError](err)
	return is
}

// answeredError is an answer of the harness that is no decision, such as a key that it does not know.
type answeredError struct{ err error }

func (e *answeredError) Error() string { return e.err.Error() }
func (e *answeredError) Unwrap() error { return e.err }

// answered reports whether an error is what the harness said.
func answered(err error) bool {
	if _, is := errors.AsType[*answeredError](err); is {
		return true
	}
	said, is := errors.AsType[*ProtocolError](err)
	return is && said.Code != 0
}

// absent is the carrier of a client whose harness could not be reached.
type absent struct{ err error }

func (a absent) call(context.Context, string, []byte) ([]byte, error) { return nil, a.err }
func (a absent) notify(context.Context, []byte) error                 { return a.err }
func (a absent) close() error                                         { return nil }

// sameAgain is by what an event is known again that the harness has put off.
func sameAgain(e Event) string {
	text, _ := json.Marshal(e.Payload) // what cannot be written was not sent
	return string(e.Type) + digest(text)
}

// unlessPutOff is the error with which a step was not decided. One that the harness has put off waits for a person, and
// is not allowed because the harness is gone meanwhile.
func (c *Client) unlessPutOff(e Event, err error) error {
	if _, waits := c.putOff.Load(sameAgain(e)); waits && Unreachable(err) {
		return fmt.Errorf("ahp: the harness has put this off, and cannot be asked again (%s)", err.Error())
	}
	return err
}

// Answer answers a step about which the harness could not be asked, and why is the error. If the harness could not be
// reached and the list names the tool, the step is allowed; it is on disk then. Everything else is refused, with why as
// the error, and kept too, unless the harness itself has refused it.
func (s *Spool) Answer(e Event, why error) (Decision, error) {
	if answered(why) {
		return Refusal(e.Type, why.Error()), why
	}
	step := spooled{At: s.now().UTC().Format(time.RFC3339Nano), Decision: "refused", Reason: why.Error()}
	if e.Timestamp == "" {
		e.Timestamp = step.At
	}
	err := s.locked(func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		event, problem := keptEvent(e)
		step.Event = event
		if problem == nil && Unreachable(why) {
			problem = s.permit(event, nameOf(key), &step)
		}
		if problem != nil {
			step.Reason = strings.TrimPrefix(problem.Error(), "ahp: ") + " (" + why.Error() + ")"
		}
		step.Reason = beginningOf(step.Reason)
		return s.add(key, step)
	})
	switch {
	case err != nil:
		why = fmt.Errorf("%w; and it could not be kept: %w", why, err)
	case step.Decision == "allow":
		return Decision{Word: "allow", Reason: step.Reason, Metadata: map[string]any{"unsupervised": true}}, nil
	}
	return Refusal(e.Type, why.Error()), why
}

// permit makes a permission of a step, if the list names its tool. The error says why it does not.
func (s *Spool) permit(event json.RawMessage, name string, step *spooled) error {
	tool, err := toolOf(event)
	if err != nil {
		return err
	}
	text, err := s.read(listFile, 1<<20)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("there is no list of tools that may be used while the server cannot be reached")
	}
	if err != nil {
		return err
	}
	l, err := s.readList(text, name)
	switch {
	case err != nil:
		return err
	case !slices.Contains(l.Tools, tool):
		return fmt.Errorf("%.80q is not among the tools that may be used while the server cannot be reached", tool)
	}
	step.Decision, step.Policy, step.ListFrom = "allow", l.Policy, l.From
	step.Reason = "The server cannot be reached, and a rule allows this tool in that time."
	return nil
}

// keptEvent is an event as a line holds it. One that nobody could read again is left out, and refused.
func keptEvent(e Event) (json.RawMessage, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeptEvent {
		return nil, fmt.Errorf("an event of %d bytes is too long to be kept", len(text))
	}
	if _, err := strict.Object(text); err != nil {
		return nil, fmt.Errorf("the event cannot be read: %w", err)
	}
	if nested(text) > maxNested {
		return nil, errors.New("the event is nested too deeply")
	}
	return text, nil
}

// maxNested is how deep an event may be nested; fewer than the server takes.
const maxNested = 100

// nested is how deep lists and objects are nested in JSON.
func nested(text []byte) (most int) {
	depth, inText := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}

// toolOf is the tool that an event wants to use. An event that names somebody on whose behalf it happens, or a
// handoff, or comes from a subagent, may have to be narrower than the agent, which nobody here can tell.
func toolOf(event json.RawMessage) (string, error) {
	var e struct {
		Type     Type                       `json:"event_type"`
		Depth    uint32                     `json:"depth"`
		Payload  json.RawMessage            `json:"payload"`
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return "", err
	}
	switch {
	case e.Type != PreAction:
		return "", fmt.Errorf("%s is not the use of a tool", e.Type)
	case e.Depth > 0 || e.Metadata["user"] != nil || e.Metadata["delegation"] != nil:
		return "", errors.New("what happens on behalf of others needs the server")
	}
	members, err := strict.Object(e.Payload)
	if err != nil {
		return "", fmt.Errorf("the payload cannot be read: %w", err)
	}
	for _, name := range []string{"tool_name", "tool"} { // in the order of the server
		var tool string
		if raw := members[name]; len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &tool) == nil {
			return tool, nil
		}
	}
	return "", errors.New("the event names no tool")
}

// beginningOf keeps a reason short enough for a line.
func beginningOf(text string) string {
	const most = 2000
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// introduce adds the spool to the params of a handshake.
func (s *Spool) introduce(params map[string]any) error {
	return s.locked(func() error {
		key, err := s.key()
		if errors.Is(err, errSpoolChanged) {
			key, err = s.renew()
		}
		if err != nil {
			return err
		}
		place, err := filepath.Abs(s.folder)
		host, _ := os.Hostname() // without one the folder is all that is known
		params["spool"] = map[string]any{"key": nameOf(key), "place": host + ":" + place}
		return err
	})
}

// spoolGreeting is what the harness says of the spool in a handshake.
type spoolGreeting struct {
	Server  string `json:"server"`
	List    string `json:"list"`
	Refused string `json:"refused"`
}

// spoolBack takes the list of a harness that has answered, and sends what happened without it. What cannot be sent now
// is kept for the next handshake.
func (c *Client) spoolBack(ctx context.Context, g *spoolGreeting) error {
	if g.Refused != "" || g.List == "" {
		c.spool.forgetList()
		return nil
	}
	if err := c.spool.keepList(g.List); err != nil {
		return err
	}
	_, _ = c.FlushSpool(ctx) // it is tried again with the next handshake
	return nil
}

// forgetList removes the list: the harness gives none any more.
func (s *Spool) forgetList() {
	_ = s.locked(func() error { return os.Remove(s.file(listFile)) })
}

// renewList is how old a list may be before it is written anew, though it says the same.
const renewList = time.Hour

// keepList writes a list, unless the one that is there says the same and is young. One that does not hold is not taken, and
// takes the place of none.
func (s *Spool) keepList(text string) error {
	if s.server == nil {
		return nil
	}
	return s.locked(func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		l, err := s.readList([]byte(text), nameOf(key))
		if err != nil {
			return nil //nolint:nilerr // of another server than the one that is trusted, or by another clock
		}
		if had, err := s.read(listFile, 1<<20); err == nil {
			old, err := s.readList(had, nameOf(key))
			from, _ := time.Parse(time.RFC3339, old.From)
			if err == nil && old.Policy == l.Policy && slices.Equal(old.Tools, l.Tools) && s.now().Sub(from) < renewList {
				return nil
			}
		}
		return s.replace(listFile, []byte(text+"\n"))
	})
}

// maxSent bounds one query with lines, in bytes of JSON and in lines.
const (
	maxSent      = 1600 << 10
	maxSentLines = 1000
)

// FlushSpool sends what happened while the harness could not be reached, in order, and forgets what was recorded. A
// handshake does it too. It returns how many steps were recorded; what was sent before counts for nothing.
func (c *Client) FlushSpool(ctx context.Context) (recorded int, err error) {
	if c.spool == nil {
		return 0, nil
	}
	for {
		name, lines, more, err := c.spool.unsent()
		if err != nil || len(lines) == 0 {
			return recorded, err
		}
		answer, err := c.Query(ctx, "spool", map[string]any{"key": name, "lines": asTexts(lines)})
		if err != nil {
			return recorded, err
		}
		var taken struct {
			Recorded *int `json:"recorded"`
		}
		if err := json.Unmarshal(answer.Answer, &taken); err != nil || taken.Recorded == nil {
			return recorded, &ProtocolError{0, "the harness did not say what it has recorded"}
		}
		recorded += *taken.Recorded
		if err := c.spool.forget(lines); err != nil || !more {
			return recorded, err
		}
	}
}

func asTexts(lines [][]byte) []string {
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = string(line[:min(len(line), maxStep)]) // the spool writes none that is longer
	}
	return texts
}

// unsent are lines from the beginning of the file, as many as go into one query; none if all were sent. more says that there
// are others after them.
func (s *Spool) unsent() (name string, lines [][]byte, more bool, err error) {
	err = s.locked(func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		name = nameOf(key)
		text, err := s.read(linesFile, maxSpool)
		if err == nil && bytes.IndexByte(text, '\n') < 0 {
			err = errSpoolChanged
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, errSpoolChanged) {
			_, err = s.renew() // which the server hears with the next handshake
			return err
		}
		if err != nil {
			return err
		}
		all := bytes.Split(text[:bytes.LastIndexByte(text, '\n')+1], []byte("\n"))
		all = all[:len(all)-1]
		size := 0
		for _, line := range all {
			encoded, _ := json.Marshal(string(line[:min(len(line), maxStep)])) // a text
			if size += len(encoded) + 1; len(lines) > 0 && (size > maxSent || len(lines) == maxSentLines) {
				more = true
				break
			}
			lines = append(lines, line)
		}
		if len(all) == 1 && s.isLast(all[0]) {
			lines = nil // it was sent, or only begins the file
		}
		return nil
	})
	return name, lines, more, err
}

// isLast reports whether the spool can go on after a line.
func (s *Spool) isLast(line []byte) bool {
	key, err := s.key()
	return err == nil && isSealed(key.Public().(ed25519.PublicKey), linePurpose, line)
}

// forget removes lines that were recorded, but for the last, after which the next one comes. If nothing can come after
// it, since somebody has changed it, the spool begins anew.
func (s *Spool) forget(lines [][]byte) error {
	sent := append(bytes.Join(lines, []byte("\n")), '\n')
	return s.locked(func() error {
		text, err := s.read(linesFile, maxSpool)
		if err != nil {
			return err
		}
		rest, ok := bytes.CutPrefix(text, sent)
		if !ok {
			return nil // another process has sent and removed them
		}
		last := lines[len(lines)-1]
		if len(rest) == 0 && !s.isLast(last) {
			_, err := s.renew()
			return err
		}
		return s.replace(linesFile, slices.Concat(last, []byte("\n"), rest))
	})
}
