package ledger

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger/notes"
)

// Proof shows that an entry is in the tree of a certain size. It was checked when it was
// made. A verifier needs Record, Hashes and a signed checkpoint of that size.
type Proof struct {
	Seq    int64
	Size   int64
	Root   tlog.Hash
	Leaf   tlog.Hash
	Hashes tlog.RecordProof // from the leaf's sibling up
	Record []byte
}

// Prove makes an inclusion proof of an entry that the caller may see, in the tree of the
// first size entries, or of the newest checkpoint when size is 0 (LED-27). It checks the
// proof before it returns it: one that does not hold means that the database was changed,
// and the ledger then refuses writes.
func (l *Ledger) Prove(ctx context.Context, seq, size int64) (Proof, error) {
	e, err := l.Visible(ctx, seq)
	if err != nil {
		return Proof{}, err
	}
	have, err := l.grow(ctx, seq)
	if err != nil {
		return Proof{}, err
	}
	if size == 0 {
		size = have
	}
	if size < seq || size > have {
		return Proof{}, fault.New(fault.InvalidRequest, "A proof of entry %d needs a size from %d to %d.", seq, seq,
			have).About("size")
	}
	t := newTiles(ctx, l.db.Read)
	root, err := tlog.TreeHash(size, t)
	if err != nil {
		return Proof{}, err
	}
	hashes, err := tlog.ProveRecord(size, seq-1, t)
	if err != nil {
		return Proof{}, fmt.Errorf("prove entry %d: %w", seq, err)
	}
	leaf := tlog.RecordHash(e.Record)
	if tlog.CheckRecord(hashes, size, root, seq-1, leaf) != nil {
		err := fault.New(fault.LedgerMismatch,
			"Entry %d, or the tree over it, was changed in the database after it was signed: it cannot "+
				"be proved. Restore the database from a backup.", seq)
		l.refuse(err)
		return Proof{}, err
	}
	return Proof{seq, size, root, leaf, hashes, e.Record}, nil
}

// grow makes sure that the newest checkpoint covers the entry, signing one now if
// it has to, and returns its size. A node without the key waits for one that has it, three
// seconds at the most.
func (l *Ledger) grow(ctx context.Context, seq int64) (int64, error) {
	_, size, err := l.Signed(ctx)
	if err == nil && size >= seq {
		return size, nil
	}
	if err := l.Checkpoint(ctx); err != nil {
		return 0, err
	}
	if err := l.refusal(); err != nil {
		return 0, err // and nothing more is signed
	}
	_, size, err = l.Signed(ctx)
	for tries := 0; err == nil && size < seq && !l.Signs() && tries < 30 && ctx.Err() == nil; tries++ {
		Pause(ctx, nil, 100*time.Millisecond) // another node signs
		_, size, err = l.Signed(ctx)
	}
	if err == nil && size < seq {
		err = fault.New(fault.Conflict,
			"Entry %d is not under a checkpoint yet: this node does not sign, and the one "+
				"that does has not come to it. Is it running?", seq)
	}
	return size, err
}

// ProveConsistency shows that the tree of the first size entries is a beginning of
// the one with the first later entries.
func (l *Ledger) ProveConsistency(ctx context.Context, size, later int64) (tlog.TreeProof, error) {
	head, err := l.Head(ctx)
	if err != nil {
		return nil, err
	}
	have, err := l.grow(ctx, min(later, head))
	if err != nil {
		return nil, err
	}
	if size < 1 || later < size || later > have {
		return nil, fault.New(fault.InvalidRequest, "Give two sizes from 1 to %d, the smaller one as from.", have)
	}
	return tlog.ProveTree(later, size, newTiles(ctx, l.db.Read))
}

// proofHeader is the first line of a proof file.
const proofHeader = "c2sp.org/tlog-proof@v1"

// ProofFile makes a tlog-proof@v1 file: the newest checkpoint, the proof, and the
// record in the extra line, so that the file stands alone (LED-28). With the body and its salt
// it proves what the entry says, too.
func (l *Ledger) ProofFile(ctx context.Context, seq int64, withBody bool) ([]byte, error) {
	e, err := l.Visible(ctx, seq)
	if err == nil && withBody && e.Body == nil {
		err = fault.New(fault.Conflict, "The body of entry %d was erased. Its record can be proved without it.", seq)
	}
	if err != nil {
		return nil, err
	}
	if _, err := l.grow(ctx, seq); err != nil {
		return nil, err
	}
	signed, size, err := l.Signed(ctx)
	if err != nil {
		return nil, err
	}
	p, err := l.Prove(ctx, seq, size)
	if err != nil {
		return nil, err
	}
	extra := p.Record
	if withBody {
		extra = appendLine(nil, p.Record, e.Salt, e.Body)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nextra %s\nindex %d\n", proofHeader, base64.StdEncoding.EncodeToString(extra), seq-1)
	for _, h := range p.Hashes {
		fmt.Fprintln(&b, h)
	}
	b.WriteByte('\n')
	b.Write(signed)
	return b.Bytes(), nil
}

// IsProof reports whether a file is a tlog-proof.
func IsProof(file []byte) bool { return bytes.HasPrefix(file, []byte(proofHeader+"\n")) }

// VerifyProof checks a proof file with nothing but the log's key, and returns the
// entry that is proved, with a nil Body if the file has none, and the size of the tree.
func VerifyProof(file []byte, vkey string) (e Entry, size int64, err error) {
	v, err := notes.Verifier(vkey)
	if err != nil {
		return e, 0, err
	}
	broken := func(what string) error {
		return fault.New(fault.VerificationFailed, "The proof file is damaged: %s.", what)
	}
	head, signed, ok := strings.Cut(string(file), "\n\n")
	lines := strings.Split(head, "\n")
	if !ok || len(lines) < 3 || lines[0] != proofHeader {
		return e, 0, broken("it does not begin with " + proofHeader)
	}
	c, err := notes.Open([]byte(signed), v)
	if err != nil {
		return e, 0, err
	}
	extra, ok := strings.CutPrefix(lines[1], "extra ")
	if !ok {
		return e, 0, broken("the line with the record is missing")
	}
	// Base64 can say the same in several ways; one is ours.
	line, err := base64.StdEncoding.DecodeString(extra)
	if err != nil || base64.StdEncoding.EncodeToString(line) != extra {
		return e, 0, broken("the record is not base64")
	}
	rec, rest, withBody := bytes.Cut(line, []byte("\t"))
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil || lines[2] != fmt.Sprintf("index %d", index) {
		return e, 0, broken("the line with the index is missing")
	}
	var hashes tlog.RecordProof
	for _, line := range lines[3:] {
		h, err := tlog.ParseHash(line)
		if err != nil || h.String() != line {
			return e, 0, broken("a line is not a hash")
		}
		hashes = append(hashes, h)
	}
	if index < 0 || index >= c.Size {
		return e, 0, broken("the index is outside of the tree")
	}
	if err := tlog.CheckRecord(hashes, c.Size, c.Root, index, tlog.RecordHash(rec)); err != nil {
		return e, 0, fault.Wrap(err, fault.VerificationFailed, "The record is not entry %d of the tree that was signed.",
			index+1)
	}
	seq, hash, ok := peek(rec)
	parsed, err := parseRecord(rec)
	if !ok || err != nil || seq != index+1 {
		return e, 0, broken("the record has another sequence number than the index says")
	}
	e = parsed.entry()
	e.Record = rec
	if withBody {
		salt, body, _ := bytes.Cut(rest, []byte("\t"))
		check := newChecker()
		if !check.bodyMatches(salt, body, hash) {
			return Entry{}, 0, broken("the body is not the one in the record")
		}
		e.Body = check.scratch
	}
	return e, c.Size, nil
}
