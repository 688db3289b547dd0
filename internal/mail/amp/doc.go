// Package amp is what AMP v0.1.2 messaging says, without a server: addresses and their short
// forms, the JSON texts of a payload that clients sign, signatures, envelopes and ids, the
// limits of the protocol, and how the members of a request are read. Provider and client
// both stand on it. It knows no storage, no network and no clock.
package amp
