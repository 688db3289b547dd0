// Package behalf says for whom agents act, in the words of every wire and of every entry: what a call names (Named),
// what an entry keeps of it (Of), and the index by which entries are found (Index).
//
// It owns the names of those members, the form of a handoff's token as calls carry it, and the table behalf_entry,
// which follows from the ledger and stands beside it. It must not know a protocol, and it decides nothing: whether an
// agent may act for a user is the roster's to say, and what a token is worth the rulebook's.
package behalf
