// Package kin knows which processes of this machine are an agent's, and keeps them from deciding:
// a call with an operator's power that comes from one of them is refused and recorded, and raises
// an alarm.
//
// A root is a process that is known to be an agent's: the CLI that starts our hooks, a client that
// speaks AHP itself, or the supervisor of a run, of which only what it started is the agent's.
// What a root started is its kin, and so is what it left behind: a process that was started while
// the root lived, by the same user, in the same control group, and whose parent is not of that
// group or is the first process of the machine. Such a process cannot be told apart from one that
// the agent has detached. A root is an entry in the ledger, so that a restart forgets none.
//
// What started the server is never a root: it could do anything with the server anyway. Nor is a
// shell at whose prompt a person tries a hook.
//
// It also watches what an agent could change behind the server's back: the hooks in the settings of
// agent CLIs, the configuration, the socket, and the database.
//
// It owns these rules and the entries process.seen, operator.refused, hook.installed, hook.removed
// and file.changed. It must not know protocols: what speaks to agents tells it who connects.
package kin
