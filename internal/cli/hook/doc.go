// Package hook translates between the hook systems of agent CLIs and AHP, and edits the
// settings in which they are registered. A CLI starts a program before and after its
// steps; what it says on standard input becomes an event of AHP, and the decision about
// that becomes what the CLI takes for yes and no.
//
// It knows the formats of Claude Code, Codex, Gemini CLI and Amp (tools.go, answer.go), and how
// their settings are changed without touching anything else in them (settings.go, jsonc.go).
// `signalbox hook` itself is command.go; it asks the server over AHP, or hands what it is asked to
// the process that watches a supervised run (via.go), whose Desk asks in its place (desk.go). What is
// allowed is the server's to say: nothing here knows a policy.
//
// # Nothing is allowed by accident
//
// A yes of the policy is no more than silence to the CLI, whose own permissions still
// apply; Amp is the exception, since there a delegate has the last word. Whatever is not
// a yes, or cannot be said in the words of the CLI, is its own no, with the reason.
package hook
