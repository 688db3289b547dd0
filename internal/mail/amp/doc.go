// Package amp is the part of AMP v0.1.2 messaging that provider and client have in common:
// addresses and their short forms, the JSON texts of a payload that clients sign, and
// signatures. It knows no storage, no network and no clock.
package amp
