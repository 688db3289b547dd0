// Package attachment keeps the files of messages. An agent announces a file, uploads it once,
// has it scanned, and names it in a message, which it then belongs to.
//
// It owns the table mail_attachment and the bytes in the blob store.
//
// # The life of an attachment
//
//	announced → uploaded → clean       → expired
//	                     → suspicious  → expired
//	                     → rejected    → expired
//
// Announce begins it, with one hour for the upload. Upload stores the bytes, once. Confirm scans
// them; the verdict never changes. A clean or suspicious file has two hours to be sent, and seven
// days once it is. Expire ends it (sweep.go). A state that has passed its time counts as expired
// at once, whether or not the sweep has seen it.
//
// # Invariants
//
// Bytes are durable before an entry says that they are there, and are removed after an entry says
// that they ended; what a crash leaves in between is swept. A file that was not scanned, or was
// rejected, is served to nobody. An attachment belongs to one message: Claim and Bind run in the
// transaction of that message.
//
// # Whose word
//
// What a message says about a file is its sender's word. Check compares it with the record and refuses a
// difference, so recipients get the record (MSG-72). What other servers keep is unverified, unless a host of our
// own provider says what it recorded (Elsewhere, MSG-76 and MSG-84).
//
// # Two kinds of access
//
// An agent's key opens what the agent announced, and what was sent to it, and tells its state. A signed URL opens one file for
// one purpose, without a key, for as long as the attachment lives: clients upload and download with it,
// and other providers' clients can too.
//
// # Boundaries
//
// It must not know messages. Whether an agent received the message of a file, and may therefore
// fetch it, is for its caller to say (Options.Received).
package attachment
