package notes

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
)

// Checkpoint is a signed statement of what the tree is: over Size entries it has this Root.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
	Note   []byte // the signed note
}

// Text is the three lines that are signed (LED-20). tlog.FormatTree does not do: it writes a
// first line of Go's own, and C2SP wants the origin there.
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root)
}

// Sign signs the checkpoint, and keeps the note.
func (c Checkpoint) Sign(by note.Signer) (Checkpoint, error) {
	signed, err := note.Sign(&note.Note{Text: c.Text()}, by)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("sign a checkpoint: %w", err)
	}
	c.Note = signed
	return c, nil
}

// Unverified reads a checkpoint whose signature nobody has checked. LED-29: a size in another spelling (007, +7) is
// refused. Lines after the third are allowed and ignored.
func Unverified(signed []byte) (Checkpoint, error) {
	text, _, found := strings.Cut(string(signed), "\n\n")
	lines := strings.SplitN(text+"\n", "\n", 4)
	if !found || len(lines) < 4 || lines[0] == "" {
		return Checkpoint{}, fault.New(fault.VerificationFailed, "The checkpoint does not have three lines and a signature.")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return Checkpoint{},
			fault.New(fault.VerificationFailed, "The second line of the checkpoint is not a number of entries.")
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return Checkpoint{}, fault.New(fault.VerificationFailed, "The third line of the checkpoint is not a hash.")
	}
	return Checkpoint{lines[0], size, root, signed}, nil
}

// Open checks the signature of a checkpoint and reads it. Signatures of other keys, such as those of witnesses, are
// ignored.
func Open(signed []byte, v note.Verifier) (Checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(v))
	if err != nil {
		return Checkpoint{},
			fault.Wrap(err, fault.VerificationFailed, "The checkpoint is not signed by %s, or was changed after it was signed.",
				v.Name())
	}
	if !strings.HasPrefix(n.Text, v.Name()+"\n") || strings.Contains(n.Text, "\n\n") {
		return Checkpoint{}, fault.New(fault.VerificationFailed, "The checkpoint is not one of %s.", v.Name())
	}
	return Unverified(signed)
}

// Verifier reads a verifier key, as in the file of a server or at /ledger/key.
func Verifier(vkey string) (note.Verifier, error) {
	v, err := note.NewVerifier(strings.TrimSpace(vkey))
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidRequest,
			"The key is not a verifier key. It is the line in the file ledger.pub of the server's data folder.")
	}
	return v, nil
}
