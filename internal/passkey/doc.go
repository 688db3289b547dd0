// Package passkey keeps the passkeys of operators, and checks what is signed with them. A passkey
// signs only after its owner has touched it and it has recognised them, by a finger or a PIN: so a
// signature shows that a person was there, which a token or a session does not. An agent may have
// both of these if it runs as the same user.
//
// The package owns enrolment, removal, and the check of a signature (an assertion, in the words of
// WebAuthn). It must not know what is signed for: callers name it by a Challenge.
//
// # Invariants
//
// A signature counts only with user verification, for the origin and the relying party under which
// its key was enrolled, and for one challenge. A key that was removed never counts again, and its
// credential cannot be enrolled a second time. Who has keys gets another, or loses one, only with a
// signature by one of them over exactly this change; an admin may remove those of others with a
// signature of their own. So whoever has a session or a token and no key changes nothing. All that
// a check needs stands in the ledger: Register checks it from an export, without a server.
//
// The counter of a key follows from the signatures in the ledger. One that does not grow is that of
// a copy, and what it signs is refused.
package passkey
