package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger/notes"
)

// Verification is what VerifyExport has found to hold. It is meaningful only if the error
// that comes with it is nil.
type Verification struct {
	Origin     string
	Entries    int64 // in the file, each with the hash the tree says
	Erased     int64 // of these, without a body
	Root       tlog.Hash
	Note       []byte      // the checkpoint in the file, with all its signatures
	Checkpoint int64       // the size of the checkpoint given beside the file, 0 for none
	Keys       []notes.Key // that have signed the ledger, in their order
	Later      bool        // that checkpoint is of a later, longer ledger
}

// Against is a checkpoint that an export is compared with beside its own.
type Against struct {
	Signed []byte
	// MayBeLater accepts a checkpoint over more entries than the file has: the
	// ledger has grown since the export. Otherwise that means that the file's end
	// is missing.
	MayBeLater bool
}

// Watch is what VerifyExport calls while it reads; both may be nil.
type Watch struct {
	Progress func(done, total int64)
	// Entry gets every entry, in order, to check more than the ledger knows of; its error ends the
	// verification. Entry and body are its only during the call, and are proved only if VerifyExport
	// returns no error in the end.
	Entry func(*Entry) error
}

// VerifyExport checks an export with nothing but one of the log's keys (LED-37): every body against
// its record, every record against the tree, the tree against the signed
// checkpoint in the file and, if given, another. It reads the file
// once and keeps only the roots of full subtrees, so that a log of any length is verified
// in constant memory.
func VerifyExport(r io.Reader, vkey string, against *Against, watch Watch) (Verification, error) {
	var out Verification
	if _, err := notes.Verifier(vkey); err != nil {
		return out, err
	}
	var other notes.Checkpoint
	var err error
	if against != nil {
		if other, err = notes.Unverified(against.Signed); err != nil {
			return out, err
		}
		out.Checkpoint = other.Size
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1<<20), MaxBody*2)
	lines.Split(wholeLines)
	own, err := readHeader(lines)
	if err != nil {
		return out, err
	}
	if other.Size > own.Size {
		if !against.MayBeLater {
			return out, fault.New(fault.VerificationFailed,
				"The checkpoint is over %d entries and the file ends at %d: its end is missing.", other.Size, own.Size)
		}
		out.Later = true
	}
	c := newChecker()
	c.visit = watch.Entry
	for lines.Scan() {
		if err := c.line(lines.Bytes()); err != nil {
			return out, err
		}
		if c.tree.Size == other.Size && other.Size > 0 && c.tree.Root() != other.Root {
			return out, fault.New(fault.VerificationFailed,
				"The first %d entries of the file do not have the root that was signed: a record was changed, moved or replaced, "+
					"or the file is of another history.", other.Size)
		}
		if watch.Progress != nil && c.tree.Size%8192 == 0 {
			watch.Progress(c.tree.Size, own.Size)
		}
	}
	if err := lines.Err(); err != nil {
		return out, fault.Wrap(err, fault.VerificationFailed, "Cannot read the file after entry %d.", c.tree.Size)
	}
	out.Entries, out.Erased, out.Root = c.tree.Size, c.erased, c.tree.Root()
	switch {
	case out.Entries != own.Size:
		return out, fault.New(fault.VerificationFailed, "The file holds %d entries and its checkpoint is over %d.",
			out.Entries, own.Size)
	case out.Root != own.Root:
		return out, fault.New(fault.VerificationFailed,
			"The entries do not have the root that was signed: a record was changed, moved or replaced.")
	}
	// Only now it is known which key had to sign: entries may have put another one in force.
	chain, err := notes.Link(vkey, c.successions)
	if err == nil {
		_, err = chain.Open(own.Note)
	}
	if err == nil && against != nil {
		_, err = chain.Open(against.Signed)
	}
	out.Origin, out.Keys, out.Note = own.Origin, chain.Keys(), own.Note
	return out, err
}

// wholeLines splits at newlines and nothing else, so that an export verifies as the
// bytes that it is (LED-29): bufio.ScanLines drops a carriage return, and does not mind if
// the last newline is missing.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// readHeader reads the lines before the entries (LED-30) and returns the checkpoint in them.
func readHeader(lines *bufio.Scanner) (notes.Checkpoint, error) {
	if !lines.Scan() || lines.Text() != exportHeader {
		return notes.Checkpoint{},
			fault.New(fault.VerificationFailed, "This is not a ledger export: its first line is not %q.", exportHeader)
	}
	var signed bytes.Buffer
	for lines.Scan() {
		if lines.Text() == exportRule {
			return notes.Unverified(signed.Bytes())
		}
		signed.Write(lines.Bytes())
		signed.WriteByte('\n')
		if signed.Len() > 1<<20 {
			break
		}
	}
	return notes.Checkpoint{}, fault.New(fault.VerificationFailed, "The export has no checkpoint, or its header is damaged.")
}

// checker goes through the entries of an export. It allocates nothing per entry that nobody visits.
type checker struct {
	visit   func(*Entry) error
	tree    Frontier
	erased  int64
	sha     hash.Hash
	scratch []byte

	successions []notes.Succession // the keys that took over
}

// isRotated is what a record has that may be of the kind Rotated. Most have not, and are not parsed for it.
var isRotated = []byte(`"kind":"` + Rotated + `"`)

func newChecker() *checker { return &checker{sha: sha256.New()} }

// line checks the next entry of the file and adds it to the tree. An erased body is counted
// and not checked: there is nothing left to compare, and the record is proved all the same.
func (c *checker) line(line []byte) error {
	seq := c.tree.Size + 1
	bad := func(what string) error {
		return fault.New(fault.VerificationFailed, "Entry %d of the file %s.", seq, what)
	}
	rec, rest, ok := bytes.Cut(line, []byte("\t"))
	salt, body, ok2 := bytes.Cut(rest, []byte("\t"))
	if !ok || !ok2 {
		return bad("is not a record, a salt and a body, with tabs between")
	}
	got, want, ok := peek(rec)
	if !ok {
		return bad("has a record that is not in the ledger's form")
	}
	if got != seq {
		return bad(fmt.Sprintf("has the sequence number %d", got))
	}
	erased := string(salt) == erasedBody && string(body) == erasedBody
	if erased {
		c.erased++
	} else if !c.bodyMatches(salt, body, want) {
		return bad("has a body that is not the one in its record")
	}
	c.tree.Add(tlog.RecordHash(rec))
	rotated := bytes.Contains(rec, isRotated)
	if c.visit == nil && !rotated {
		return nil
	}
	parsed, err := parseRecord(rec)
	if err != nil {
		return bad("has a record that is not in the ledger's form")
	}
	e := parsed.entry()
	if !erased {
		e.Body = c.scratch // where bodyMatches has left it
	}
	if e.Kind == Rotated {
		s, err := succession(&e)
		if err != nil {
			return err
		}
		c.successions = append(c.successions, s)
	}
	if c.visit == nil {
		return nil
	}
	return c.visit(&e)
}

// bodyMatches reports whether salt and body, in base64, have the hash of the record. LED-29:
// one spelling of base64 is accepted, without padding bits and line breaks.
func (c *checker) bodyMatches(salt, body, want []byte) bool {
	c.sha.Reset()
	for i, text := range [][]byte{salt, body} {
		// Go's base64 passes over returns.
		var err error
		if c.scratch, err = base64.StdEncoding.Strict().AppendDecode(c.scratch[:0], text); err != nil ||
			bytes.IndexByte(text, '\r') >= 0 {
			return false
		}
		// The hash is over both together: the salt's size says where the body begins.
		if i == 0 && len(c.scratch) != saltSize {
			return false
		}
		c.sha.Write(c.scratch)
	}
	var sum [sha256.Size]byte
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], c.sha.Sum(sum[:0]))
	return bytes.Equal(text[:], want)
}

// peek finds the sequence number at the beginning and the body's hash at the end
// of a record, without parsing what is between (LED-7).
func peek(rec []byte) (seq int64, bodyHash []byte, ok bool) {
	const begin, end = `{"seq":`, `"}`
	const before = `,"body":"`
	tail := len(rec) - len(end) - 2*sha256.Size
	if tail < len(before)+len(begin) || string(rec[:len(begin)]) != begin || string(rec[len(rec)-len(end):]) != end ||
		string(rec[tail-len(before):tail]) != before {
		return 0, nil, false
	}
	i := len(begin)
	for ; rec[i] >= '0' && rec[i] <= '9' && i < len(begin)+19; i++ {
		seq = seq*10 + int64(rec[i]-'0')
	}
	return seq, rec[tail : len(rec)-len(end)], i > len(begin) && rec[i] == ','
}

// Frontier is a tree that keeps only what the next leaf needs: the roots of its
// full subtrees, largest first.
type Frontier struct {
	Size  int64       `json:"size"`
	Roots []tlog.Hash `json:"roots"`
}

// Add adds a leaf: as in a binary counter, two full subtrees of the same size become one.
func (f *Frontier) Add(leaf tlog.Hash) {
	for n := f.Size; n&1 == 1; n >>= 1 {
		last := len(f.Roots) - 1
		leaf = tlog.NodeHash(f.Roots[last], leaf)
		f.Roots = f.Roots[:last]
	}
	f.Roots = append(f.Roots, leaf)
	f.Size++
}

// Root is the root of the tree so far. LED-16: that of no leaves is the hash of nothing.
func (f *Frontier) Root() tlog.Hash {
	if f.Size == 0 {
		return sha256.Sum256(nil)
	}
	h := f.Roots[len(f.Roots)-1]
	for i := len(f.Roots) - 2; i >= 0; i-- {
		h = tlog.NodeHash(f.Roots[i], h)
	}
	return h
}
