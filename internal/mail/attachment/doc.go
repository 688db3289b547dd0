// Package attachment keeps the files that messages bring: an agent announces a file, uploads
// it once, has it scanned, and names it in a message, which takes it for its own.
//
// It owns the table mail_attachment and the bytes in the blob store. Bytes are on disk before
// an entry says that they are there, and are removed after an entry says that they ended; what
// a crash leaves in between is swept. A file that was not scanned, or did not pass the scan,
// is given to nobody.
//
// It must not know messages: who may fetch a file because it was sent to them, its caller says
// (Options.Received).
package attachment
