// Package backup keeps copies of a ledger elsewhere, and brings them back: Make writes one, Restore reads one into an
// empty database, Migrate moves a ledger from one database to the other, and Schedule has the server make one now and
// then. It knows no protocol; what stands beside the ledger it gets as names of tables.
//
// A backup is made while the server works, and only reads. It is what the newest signed checkpoint is over, entries 1 to N,
// with the attachments that there are, and with what does not follow from the entries: where followers have come to, and
// the sealed keys of providers. The keys of the data folder are not in it; see SaveKeys.
//
// A place is a folder or a bucket. In it are objects and manifests. An object is written once, compressed and encrypted
// with age, and has a name by which nobody can tell what is in it but its kind. A manifest names the objects of one backup,
// with their digests, and is signed with the ledger's key, so that whoever can write to the place can add nothing to it. It
// is not encrypted: the next backup goes on from it, and whoever makes backups need not be able to read them. It is written
// last, and at once, under a number that nobody else has; so a backup that was killed, or lost to another, has changed
// nothing. What no manifest names is removed a day later.
//
// What must hold: the entries of a backup have the root that was signed, before its manifest is written, and when it is
// read. A body that was erased before a backup was made is not brought back by it, whichever object it is in.
package backup
