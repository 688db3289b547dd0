package hook

import (
	"fmt"
	"math"
	"strings"

	"signalbox/client/ahp"
	"signalbox/internal/wire"
)

// Output is what a hook writes and how it exits.
type Output struct {
	Stdout []byte
	Stderr string
	Code   int
	denied bool // it says no
}

// The exit codes that the CLIs know. A hook exits with no other: CLIs take other codes
// for a failure of the hook, and go on.
const (
	CodeGoOn   = 0
	CodeWarn   = 1 // for Amp: ask the person at the terminal
	CodeRefuse = 2
)

// Answer expresses a decision to the CLI. A change that the CLI cannot be told is a
// denial that says what the policy wants, so the model can do that by itself.
func (c *Call) Answer(d ahp.Decision) Output {
	if !d.Allowed() {
		return c.no(refusalOf(d), CodeGoOn)
	}
	// An allow may come with the payload unchanged, or with null; both are plain
	// permissions.
	if d.ModifiedPayload == nil || string(d.ModifiedPayload) == "null" {
		return c.yes()
	}
	input, why := c.changed(wire.Raw(d.ModifiedPayload))
	switch {
	case why != "":
		return c.no(why, CodeGoOn)
	case input == nil:
		return c.yes()
	}
	return Output{Stdout: encode(c.tool.preTool("", input, c.Final))}
}

// Refuse is the answer when nobody decided: the CLI's denial in every form that it
// knows, output and exit code, so that no version of it goes on.
func (c *Call) Refuse(reason string) Output { return c.no(reason, CodeRefuse) }

// Refuse is the answer to a call that could not be read. Only the exit code says no,
// since which hook it was is not known.
func (t *Tool) Refuse(reason string) Output {
	return Output{Stderr: oneLine(reason), Code: CodeRefuse, denied: true}
}

// yes lets the CLI go on. Without Final it says nothing, so the CLI's own permissions
// apply.
func (c *Call) yes() Output {
	if c.tool.delegate {
		return Output{}
	}
	// A prompt has no permissions of the CLI behind it, so only actions need the final
	// word.
	if c.Final && c.tool.yes != nil && c.Event.Type == ahp.PreAction {
		return Output{Stdout: encode(c.tool.yes)}
	}
	return Output{Stdout: []byte("{}\n")}
}

// no denies. The exit code is CodeGoOn where the CLI takes the output for its answer.
func (c *Call) no(reason string, code int) Output {
	reason = oneLine(reason)
	if c.tool.delegate {
		return Output{Stderr: reason, Code: CodeRefuse, denied: true}
	}
	out := Output{Code: code, denied: true}
	if code != CodeGoOn {
		out.Stderr = reason
	}
	if c.Event.Type == ahp.PreAction {
		out.Stdout = encode(c.tool.preTool(reason, nil, false))
	} else {
		out.Stdout = encode(answer{Decision: c.tool.deny, Reason: reason})
	}
	return out
}

// refusalOf is the reason of a denial, for the model that reads it.
func refusalOf(d ahp.Decision) string {
	reason := strings.TrimSpace(d.Reason)
	switch {
	case d.Word == "defer":
		again := fmt.Sprintf("Try the same again in %d s.", int(math.Ceil(max(d.RetryAfter.Seconds(), 1))))
		return strings.TrimSpace("Not decided yet. " + reason + " " + again)
	case d.Word == "escalate" && d.Target != "":
		return fmt.Sprintf("%s It was handed to %s, who decides.", reason, d.Target)
	case reason == "":
		return "The policy does not allow this."
	}
	return reason
}

// changed is the input that the policy wants in place of the tool's own, nil if it is
// the same. why is not empty if the CLI cannot be told: no CLI takes another prompt or
// another tool, and Amp takes no change at all.
func (c *Call) changed(modified wire.Raw) (input wire.Raw, why string) {
	instead := "The policy wants this instead: " + string(modified)
	if c.tool.delegate || c.Event.Type != ahp.PreAction {
		return nil, fmt.Sprintf("%s cannot be given another %s by a hook. %s", c.tool.Title,
			map[bool]string{true: "input", false: "prompt"}[c.Event.Type == ahp.PreAction], instead)
	}
	// The policy changes a payload as a whole; a hook can only pass other arguments on.
	want, err := wire.Members(modified)
	arguments, ok := c.withoutFolder(want["arguments"])
	if err != nil || !isObject(arguments) || !ok || !c.sameBut(want) {
		return nil, fmt.Sprintf("%s can be given other arguments by a hook, and nothing else can be changed. %s",
			c.tool.Title, instead)
	}
	if wire.Same(arguments, c.input) {
		return nil, ""
	}
	// Gemini CLI lays the new input over the old one, so an argument cannot be taken away.
	if c.tool.merges {
		before, _ := wire.Members(c.input) // it is an object, as the other is
		after, _ := wire.Members(arguments)
		for name := range before {
			if after[name] == nil {
				return nil, fmt.Sprintf("%s cannot be made to leave the argument %s out. %s", c.tool.Title, name, instead)
			}
		}
	}
	return arguments, ""
}

// sameBut reports whether a payload is the one that was sent, but for its arguments.
func (c *Call) sameBut(other map[string]wire.Raw) bool {
	sent, _ := wire.Marshal(c.Event.Payload) // which was sent
	was, err := wire.Members(sent)
	if err != nil || len(was) != len(other) {
		return false
	}
	for name, value := range was {
		if name != "arguments" && !wire.Same(value, other[name]) {
			return false
		}
	}
	return true
}

// oneLine is a reason on one line, never empty: Codex takes an empty one for no answer
// at all.
func oneLine(reason string) string {
	if reason = strings.Join(strings.Fields(reason), " "); reason == "" {
		return "The policy does not allow this."
	}
	return reason
}

// encode is an answer as one line of JSON.
func encode(v any) []byte {
	text, _ := wire.Marshal(v) // texts, and JSON that was read
	return append(text, '\n')
}
