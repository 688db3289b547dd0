package backup

import (
	"bytes"
	"encoding/base64"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Entries stand in an object as in an export (LED-30): a line for each, of its record, its salt and its body, the last two
// in base64, or as a dash if they were erased.

const (
	// objectBytes is when an object with entries takes no more.
	objectBytes = 16 << 20
	erasedMark  = "-"
)

// appendEntry adds the line of an entry.
func appendEntry(to []byte, e *ledger.Entry) []byte {
	to = append(append(to, e.Record...), '\t')
	if e.Body == nil {
		return append(to, erasedMark+"\t"+erasedMark+"\n"...)
	}
	to = append(base64.StdEncoding.AppendEncode(to, e.Salt), '\t')
	return append(base64.StdEncoding.AppendEncode(to, e.Body), '\n')
}

// nextEntry reads the first line, and checks the entry against its record.
func nextEntry(text []byte, erased bits) (e ledger.Entry, rest []byte, err error) {
	line, rest, ok := bytes.Cut(text, []byte("\n"))
	parts := bytes.Split(line, []byte("\t"))
	if !ok || len(parts) != 3 {
		return e, nil, fault.New(fault.VerificationFailed, "An object of the backup does not consist of entries.")
	}
	var salt, body []byte
	if string(parts[1]) != erasedMark {
		if salt, err = base64.StdEncoding.AppendDecode([]byte{}, parts[1]); err == nil {
			body, err = base64.StdEncoding.AppendDecode([]byte{}, parts[2])
		}
		if err != nil {
			return e, nil, fault.Wrap(err, fault.VerificationFailed, "An entry of the backup is not in the form of one.")
		}
	}
	if e, err = ledger.Unseal(bytes.Clone(parts[0]), salt, body); err == nil && erased.has(e.Seq) {
		e.Body, e.Salt = nil, nil
	}
	return e, rest, err
}

// bits are the numbers of entries, one bit for each.
type bits map[int64]uint64

func (b bits) add(seq int64)      { b[seq>>6] |= 1 << (seq & 63) }
func (b bits) has(seq int64) bool { return b[seq>>6]&(1<<(seq&63)) != 0 }
