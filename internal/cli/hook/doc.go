// Package hook translates between the hook systems of agent CLIs and AHP, and edits the
// settings in which hooks are registered. A CLI starts a program before and after its
// steps. What the CLI writes to that program's standard input becomes an event of AHP,
// and the decision becomes what the CLI takes for yes or no.
//
// # Files
//
//	command.go   `signalbox hook`: one call of a CLI, install, uninstall
//	tools.go     Claude Code, Codex, Gemini CLI and Amp: what they write
//	folder.go    where an agent works, if a CLI tells where its call would run
//	answer.go    the same CLIs: what they read
//	settings.go  what is registered, and where
//	jsonc.go     edits of JSON with comments that leave the rest as it is
//	installed.go finds hooks that are there, and those that a failure opens
//	install.go   files: changed whole or not at all, and put back byte for byte
//	desk.go      asks the server in place of the hooks of a supervised run
//	unasked.go   what such a run does that its hooks were not asked about
//	via.go       the hook's side of that
//
// What is allowed is decided by the server: nothing here knows a policy.
//
// # Fail closed
//
// A permission of the policy is only silence to the CLI, whose own permissions still
// apply. Amp is the exception, since there a delegate has the last word; a supervised
// run is the other (RUN-43). Anything but an explicit permission, and everything that
// cannot be expressed to the CLI, is the CLI's own denial, with the reason. A hook that
// crashes is not in our hands: what a CLI does then is in the table of
// docs/cli-agents.md.
package hook
