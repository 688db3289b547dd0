// Package amp is the part of AMP v0.1.2 messaging that needs no server: addresses and their
// short forms (address.go), the JSON texts of a payload that clients sign (canon.go), signatures
// and proofs (sign.go), envelopes and ids (message.go), requests to route a message (draft.go),
// how the members of a request are read (fields.go), the spellings of paths (path.go), names of files
// that are safe everywhere (filename.go), what is known of a file (attachment.go), and the bodies of calls as
// /openapi.json describes them (document.go).
//
// Provider and client both stand on it. It knows no storage, no network and no clock; all its
// functions are pure, but for NewID, which draws random bits.
//
// The rules it implements are numbered in docs/protocols/mail.md: MSG-10 to MSG-15 for
// addresses, MSG-37 to MSG-44 for signatures.
package amp
