// Package directory is the registered agents, as mail sees them: agents register, change their
// profile and their keys, look one another up and leave; owners list and remove their agents, and
// operators suspend them.
//
// It owns profiles (mail_profile) and revoked public keys (mail_revocation). The agents
// themselves, their keys and their tenants, which are workspaces, belong to the roster.
//
// # Invariants
//
// A name is given to one agent. Registering it again takes the agent's current API key, its
// owner's key, an operator's token, or a proof with the private key (MSG-18); a public key proves
// nothing. A public key that was replaced or given up is never accepted again (MSG-22). API keys
// are shown once and stored as hashes. The secret of a webhook is sealed before it goes into the
// ledger, which operators can read.
//
// # A registration, step by step
//
// parseRegistration checks the form (newcomer.go). checkMayRegister decides by the mode and the key of the
// caller. Then one transaction: useInvite uses up an invite, and either enrol adds a new agent or
// reissue gives an existing one a further API key. The answer has the API key, this once. Everything
// that a registration changes is in that transaction, so a failure changes nothing.
//
// # Boundaries
//
// It must not know messages: queues and risk belong to package mail. Profiles are cached in memory
// on every node; package mail feeds the cache with the entries of the ledger (Load, Follow).
package directory
