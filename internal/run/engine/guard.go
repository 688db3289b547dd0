package engine

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// MaySupervise returns why runs of the engine cannot be supervised, or nil: the CLI
// must be able to ask before each tool call, and must take a failure to ask for a no
// (RUN-44).
func (e *Engine) MaySupervise() error {
	if e.guard != nil {
		return nil
	}
	var can []string
	for _, other := range all() {
		if other.guard != nil {
			can = append(can, other.Name)
		}
	}
	why := e.unguarded
	if why == "" {
		why = "it has no hooks that we know"
	}
	return fault.New(fault.InvalidRequest, "A run of %s cannot be supervised: %s. Those of %s can.", e.Name, why,
		strings.Join(can, " and ")).About("supervised")
}

// Guard makes the CLI ask before each tool call (RUN-41). It writes what that takes
// into dir, a folder of this run alone, and returns the arguments for Job.Guard.
// program is Signalbox; flags are those of its hook. Nothing in the person's own
// settings changes.
func (e *Engine) Guard(dir, program string, flags ...string) ([]string, error) {
	if err := e.MaySupervise(); err != nil {
		return nil, err
	}
	return e.guard(dir, func(hook string) string {
		words := []string{quote(program), "hook", hook}
		for _, f := range flags {
			words = append(words, quote(f))
		}
		return strings.Join(words, " ")
	})
}

// Unasked begins the error of a supervised run that was stopped because its agent has done something that
// nobody was asked about (RUN-45).
const Unasked = "the agent acted without a decision"

// GuardTime is how long these CLIs wait for a hook. It is longer than a person takes to
// decide, because a hook that times out does not block in Claude Code.
const GuardTime = 7 * 24 * time.Hour

// ampGuard makes Signalbox amp's permission delegate. A delegate is a program without
// arguments, so a script carries them. Exit code 0 allows and 2 rejects; any other
// would ask a person at the terminal, so the script turns it into 2 (RUN-42).
func ampGuard(dir string, hook func(string) string) ([]string, error) {
	delegate, settings := filepath.Join(dir, "signalbox-permit"), filepath.Join(dir, "amp-settings.json")
	script := "#!/bin/sh\n" + hook("amp") + " \"$@\"\n[ $? -eq 0 ] || exit 2\n"
	if err := os.WriteFile(delegate, []byte(script), 0o700); err != nil { //nolint:gosec // it is to be run
		return nil, cannotWrite(err, delegate)
	}
	text, err := wire.Marshal(map[string]any{
		"amp.permissions": []map[string]string{{"tool": "*", "action": "delegate", "to": delegate}},
		// The person's own settings may say true, which would skip the delegate.
		"amp.dangerouslyAllowAll": false,
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(settings, text, 0o600); err != nil {
		return nil, cannotWrite(err, settings)
	}
	return []string{"--settings-file", settings}, nil
}

// claudeGuard puts a hook before every tool of Claude Code. Exit code 2 is the only one
// that blocks, so every failure of the hook is turned into it (RUN-42). onFailure is
// for a hook that cannot be started.
func claudeGuard(_ string, hook func(string) string) ([]string, error) {
	text, err := wire.Marshal(map[string]any{"hooks": map[string]any{"PreToolUse": []any{map[string]any{
		"matcher": "*",
		"hooks": []any{map[string]any{
			"type": "command", "command": hook("claude-code") + " || exit 2",
			"timeout": int(GuardTime.Seconds()), "onFailure": "block",
		}},
	}}}})
	return []string{"--settings", string(text)}, err
}

// cannotWrite explains that the guard could not be written. The run does not start
// then.
func cannotWrite(err error, path string) error {
	return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s, by which the run would ask for permission.", path)
}

// quote is a word as a POSIX shell reads it back.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
