// Package mailbox is an agent's side of AMP v0.1.2: the standard identity folder, and a
// client of any provider through the endpoints that are public. It owns the files of that
// folder, and shares only the pure parts (amp, injection) with our provider, of which it
// must know nothing else.
//
// The folder is shared with other clients, so both of its layouts are read: one agent in
// ~/.agent-messaging, or several in ~/.agent-messaging/agents. What others wrote into a
// file and we do not know stays there.
//
// Fetched mail is on disk before it is acknowledged, under an id that is never taken
// twice. A payload is kept as it came, token for token, so that its signature can be
// verified again; it is wrapped when it is shown.
package mailbox
