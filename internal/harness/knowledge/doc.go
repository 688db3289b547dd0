// Package knowledge keeps what operators want the agents of a workspace to know: facts with
// their source, and snippets of files. Agents get the pieces that answer a question best.
//
// It owns the tables knowledge and knowledge_word, an index of words in plain tables, which is
// the same on both databases and is rebuilt from the ledger like any other; answers are ranked
// by BM25. The harness makes the tables, since they are older than this package.
//
// It must not know events and sessions: what a session itself remembers is the harness's.
package knowledge
