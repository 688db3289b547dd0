// Package refusal records the calls that are refused before anything is decided about them: without a key, with one
// that is wrong, has ended or was revoked, or beyond a rate limit.
//
// Whoever finds the reason says it with the error (Because). Whoever answers the caller notes the error (Note), with
// where the call came from as the context says it (With). The entry is call.refused. The first refusal of a source, a
// reason, a holder and a call in a minute is written at once; those that follow are summed up and written when the
// minute is over, and when the server stops. So a thousand wrong keys are two entries, and none of them is lost. A
// process that is killed loses what it has summed up in its last minute.
//
// # Invariants
//
// Noting never waits and never fails: the caller gets its 401 or 429 whatever becomes of the entry. What is kept
// in memory is bounded, and so is what is written: beyond maxSums different refusals in a minute the others are one
// sum. An entry holds no text of the caller's: an address, a route of ours, and ids of the roster.
//
// The package owns these entries and no table. It must not know what keys and limits are.
package refusal
