// Package sink sends the entries of the ledger out: to a file, to syslog, or to a collector over HTTP. It owns the form
// in which they leave and how far each sink has come. It must not know what an entry means, nor change anything.
//
// Each sink follows the ledger from a cursor of its own, under a lease, so that one node at a time sends. The cursor
// moves when the other side has what was sent: the file is synced, the collector has answered 2xx, the receiver of
// syslog has read to the end and closed. So every entry leaves at least once, in order and without a gap, whatever is
// killed. What was sent twice has the same sequence number. A sink that fails holds up itself and nothing else; it
// tries again with growing pauses, for ever, and says so in its State.
//
// Syslog over UDP is the exception: nobody hears of a datagram that was lost.
package sink
