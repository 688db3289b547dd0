// Package proof says what a bundle of a task proves to somebody who has the ledger's key and nothing else: the dispatch as
// it was sent, who approved its plan, the commits that results name, reviews and verdicts. A clone of the repository shows
// more of the commits.
//
// It owns what is verified, unverified or failed in a bundle. It must not know of a server or of a database: all it reads
// is the bundle and, through package git, the clone.
package proof
