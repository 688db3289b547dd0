// Package dump reads a ledger's tables as they are stored, and fills the tables of an empty database with them: what a
// backup, a restore and a migration have in common. It knows neither files nor encryption, and no package that stands
// on the ledger but for what their projections do.
//
// What it reads it checks: each record is the one that follows, each body the one in its record, and the tree over them
// has the root that was signed. A database that is being filled is closed: in place of the ledger's key it says why, so
// that no version of this program opens half a ledger, and a database that was left for another does not go on by
// accident as a second history under the same key.
package dump
