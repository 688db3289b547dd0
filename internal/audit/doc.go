// Package audit has the server check itself, all the time: that what is in the database is what was signed and
// recorded. Nobody has to ask for it.
//
// There are two rounds. The fast one, within a minute, looks at the last 10,000 entries, at the head, the tree, the
// newest checkpoint and its file, at the schema, at cursors, and at every table that grants power: keys, operators,
// policies, handoffs, sessions, gates. The whole one looks at every entry from the first on: records against the tiles
// of the tree and the tree against every signed checkpoint, bodies against their records, erased bodies against the
// entries that record erasures. Beside the live tables it builds empty ones from the entries, compares them row by row,
// and then looks at the indexes.
//
// Both together take a share of one processor, 2 % unless it is set, which is measured by the processor time of
// their threads (pace.go): after each step they rest for as long as it takes. How far the whole round has come
// is kept in memory only, so nobody can set it, and after a restart it begins at the first entry. The tables beside are
// SQLite files in a folder of the data folder, on PostgreSQL too, so that the audit needs no rights there and leaves
// nothing behind; a start throws away what an earlier one has left. Each node makes the fast round. The whole one is
// made by one node at a time, under a lease.
//
// What is found is a Finding, by kind. If the history or something that grants power is not what was signed, writes
// stop, as after any other mismatch of the ledger. Other findings are reported, with what to do. A finding is an entry
// (audit.found) and an alarm, as long as the ledger takes writes, and is gone when the round that found it finds it no
// more.
//
// The package compares; it must not know what any table is for, and changes nothing but its own files.
package audit
