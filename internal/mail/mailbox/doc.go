// Package mailbox is the client of AMP v0.1.2: an agent's identity folder, and calls to any
// provider through its public endpoints. It shares only the pure packages (amp, injection) with
// our provider, and must know nothing else of it.
//
// # The folder
//
//	config.json              name, tenant, first address
//	IDENTITY.md              the same, for an agent to read
//	keys/private.pem         Ed25519, PKCS #8, mode 0600; next.pem during a rotation
//	registrations/DOMAIN.json  an address and an API key with one provider, mode 0600
//	messages/inbox, sent     one file for each message, by correspondent
//	attachments/ID           downloaded files of one message
//	known_keys.json          the keys of senders (known.go)
//	replay_db                ids that were fetched (fetch.go)
//
// Other clients share the folder (MSG-90). Both of its layouts are read: one agent in
// ~/.agent-messaging, or several in ~/.agent-messaging/agents. Members of a file that this package
// does not know are kept.
//
// # Invariants
//
// A fetched message is on disk before it is acknowledged, and its id is never stored twice
// (MSG-91). A payload is kept token for token, so that its signature can be verified again; it is
// wrapped only when it is shown. A new key is on disk before a provider hears of it (MSG-94). Files
// are replaced as a whole, by rename. Every function that changes the folder holds its lock
// (lock.go), which other processes of ours respect; the bash clients do not.
//
// # A fetch, step by step
//
// Poll a page. Under the lock: skip ids that were fetched before; for every other message decide the
// trust (assess), write its file, append its id to replay_db. Release the lock, and acknowledge what is
// on disk. Repeat until a page brings nothing new. If the process ends anywhere in between, the next
// fetch gets the same page and continues.
//
// # What a provider says
//
// Everything that a provider or a sender wrote is foreign text: it is cut, and stripped of control
// characters, before it becomes part of an error or a line (oneLine). The trust of a message is
// decided here; the provider can only lower it (MSG-92).
package mailbox
