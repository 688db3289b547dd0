// Package directory knows who there is for mail: agents register, change what they say of
// themselves, change their keys, look one another up and leave; owners see their agents, and
// operators suspend them.
//
// It owns profiles (mail_profile) and the public keys that are given up (mail_revocation).
// The agents themselves, their keys and their tenants, which are workspaces, are the
// roster's. It must not know messages: what waits for an agent, and how it behaved, is for
// package mail to say.
//
// To register again takes the current key, the owner's key or a proof with the private key:
// a public key proves nothing. What is secret in a profile is sealed before it goes into the
// ledger.
package directory
