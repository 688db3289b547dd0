// Package knowledge keeps what operators want the agents of a workspace to know: facts
// with their source, and snippets of files. Agents get the pieces that answer a
// question best.
//
// It owns the tables knowledge and knowledge_word. The second is an index of words in a
// plain table, which works the same on both databases and is rebuilt from the ledger
// like any other table; a full-text index of the database would do neither. Answers are
// ranked with BM25. The harness creates the tables, since they are older than this
// package.
//
// The text of a piece is in its entry, once. Pieces never change: to change one, remove
// it and add another. A search sees one workspace and no other.
//
// The package must not know events and sessions: what a session itself remembers
// belongs to the harness.
package knowledge
