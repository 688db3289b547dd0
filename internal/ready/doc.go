// Package ready says whether a node can do its work now, for /readyz and the status: whether the disk has room for
// what it must write, whether the database takes writes, and whether somebody signs what is recorded. It knows the
// data folder, the database and the ledger, and no protocol.
//
// What always holds: it costs little however often it is asked, because load balancers, and strangers, ask without a
// token. The disk is asked each time, which takes microseconds; the database is tried, and the ledger looked at, once
// a second at most.
package ready
