package engine

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
)

// Exit is how the process of a run ended.
type Exit struct {
	Code   int      // negative for the signal that ended it
	Stderr []string // the first lines of it
	// Reason is why we ended the run, or why there was no process at all; "" if it ended by
	// itself.
	Reason string
	Cause  Cause // why we ended it, "" if it failed
}

// MaxStderr is how many lines of standard error are kept for the message.
const MaxStderr = 20

// maxExcerpt is how many characters of standard error a message repeats.
const maxExcerpt = 300

// Finish ends the stream if its lines have not: the process is gone. After it there was
// exactly one completed event (RUN-1). It may be called again, and does nothing then.
func (s *Stream) Finish(e Exit) {
	if s.completed {
		return
	}
	switch {
	case e.Reason != "":
		s.cause = e.Cause
		s.fail(e.Reason, e)
	// RUN-24. The session may be known and started not out yet; begin emits it, and ends
	// the stream itself if it is another session than the one asked for.
	case e.Code != 0:
		s.to.begin(s)
		if s.completed {
			return
		}
		text := s.message(fmt.Sprintf("%s failed (%s).", s.engine.label, code(e.Code)), e)
		s.emitWarning(text)
		s.complete(false, text)
	default:
		// RUN-25: the engine knows whether a silent exit is a success.
		ok, problem := s.to.end(s)
		if ok {
			s.complete(true, "")
			return
		}
		s.fail(problem, e)
	}
}

// fail completes the run as failed, with the session and standard error in the message.
func (s *Stream) fail(problem string, e Exit) {
	s.complete(false, s.message(problem, e))
}

// noResult is the end of an engine that writes a result when it is done, and did not
// (RUN-25).
type noResult struct{}

func (noResult) end(s *Stream) (bool, string) {
	if s.session == "" {
		return false, s.engine.label + " finished but no session_id was captured"
	}
	return false, s.engine.label + " finished without a result event"
}

// message is a problem, with which session it was and what standard error says.
func (s *Stream) message(problem string, e Exit) string {
	lines := []string{problem}
	if r := s.Session(); r != nil {
		how := "new"
		if s.job.Resume.Value != "" {
			how = "resumed"
		}
		lines = append(lines, fmt.Sprintf("session: %s · %s", first(r.Value, 8), how))
	}
	if text := Excerpt(e.Stderr); text != "" {
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// code is an exit code as people know it: rc=1, or the name of the signal.
func code(n int) string {
	if n >= 0 {
		return fmt.Sprintf("rc=%d", n)
	}
	return fmt.Sprintf("rc=%d (%s)", n, signalName(syscall.Signal(-n)))
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGILL: "SIGILL",
	syscall.SIGTRAP: "SIGTRAP", syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE",
	syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE", syscall.SIGALRM: "SIGALRM",
	syscall.SIGTERM: "SIGTERM", syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2", syscall.SIGXCPU: "SIGXCPU",
	syscall.SIGXFSZ: "SIGXFSZ",
	syscall.SIGSYS:  "SIGSYS", syscall.SIGSTOP: "SIGSTOP", syscall.SIGTSTP: "SIGTSTP", syscall.SIGVTALRM: "SIGVTALRM",
	syscall.SIGPROF: "SIGPROF",
}

// signalName is the name of a signal. The standard library has descriptions only.
func signalName(s syscall.Signal) string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// first is the first n characters of a text.
func first(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// colours are escape sequences of CLIs that take us for a terminal.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// Paths and addresses in standard error are replaced (RUN-24): the message goes to
// chats and dashboards, and an address may hold a login code. A colon ends a path, so
// the line number after it stays.
var (
	knownPath = regexp.MustCompile(
		`/(?:home|Users|private/var|var|tmp|opt|srv|etc|usr/local|app|workspace)/[^\s'"<>:]+|/root/[^\s'"<>:]*`,
	)
	anyPath = regexp.MustCompile(`/[\p{L}\p{N}_./-]{3,}/[\p{L}\p{N}_.-]+`)
	address = regexp.MustCompile(`https?://[^\s"'<>]+`)
)

// Excerpt is the part of a CLI's output for people that a message may repeat.
func Excerpt(lines []string) string {
	text := colours.ReplaceAllString(strings.Join(lines[:min(len(lines), MaxStderr)], "\n"), "")
	if cut := first(text, maxExcerpt); cut != text {
		text = cut + "…"
	}
	// Addresses come first: a path pattern would leave the query of an address, which may
	// be a secret.
	text = address.ReplaceAllString(text, "[url]") // first: what is behind its path may be a secret
	text = knownPath.ReplaceAllString(text, "[path]")
	return anyPath.ReplaceAllString(text, "[path]")
}
