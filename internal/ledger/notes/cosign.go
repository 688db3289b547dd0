package notes

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
)

// cosigned is the type of a key that cosigns checkpoints with a time (C2SP tlog-cosignature, Ed25519).
const cosigned = 0x04

// Witness is who cosigns checkpoints: its name and its key. It is a note.Verifier of its cosignatures.
type Witness struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

// ParseWitness reads the verifier key of a witness.
func ParseWitness(vkey string) (*Witness, error) {
	bad := fault.New(fault.InvalidRequest, "%.120q is not the verifier key of a witness: NAME+ID+KEY, of the type 4 of C2SP "+
		"tlog-cosignature.", vkey)
	parts := strings.SplitN(strings.TrimSpace(vkey), "+", 3)
	if len(parts) != 3 || parts[0] == "" || strings.ContainsAny(parts[0], " \t\n") {
		return nil, bad
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != cosigned {
		return nil, bad
	}
	w := newWitness(parts[0], raw[1:])
	if fmt.Sprintf("%08x", w.hash) != parts[1] {
		return nil, bad
	}
	return w, nil
}

func newWitness(name string, key ed25519.PublicKey) *Witness {
	sum := sha256.Sum256(slicesOf([]byte(name+"\n"), []byte{cosigned}, key))
	return &Witness{name, binary.BigEndian.Uint32(sum[:4]), key}
}

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// Name is note.Verifier.
func (w *Witness) Name() string { return w.name }

// KeyHash is note.Verifier.
func (w *Witness) KeyHash() uint32 { return w.hash }

// Verify is note.Verifier.
func (w *Witness) Verify(text, signature []byte) bool {
	if len(signature) != 8+ed25519.SignatureSize {
		return false
	}
	at := binary.BigEndian.Uint64(signature)
	return at > 0 && at <= math.MaxInt64 && ed25519.Verify(w.key, cosignedText(at, text), signature[8:])
}

// String is the verifier key.
func (w *Witness) String() string {
	return fmt.Sprintf("%s+%08x+%s", w.name, w.hash, base64.StdEncoding.EncodeToString(slicesOf([]byte{cosigned}, w.key)))
}

// cosignedText is what is signed: that a checkpoint was seen at a time.
func cosignedText(at uint64, text []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", at), text...)
}

// Find is the line with the witness's cosignature in a note, "" if there is none that holds.
func (w *Witness) Find(signed []byte) (line string, at time.Time) {
	n, err := note.Open(signed, note.VerifierList(w))
	if err != nil || len(n.Sigs) != 1 {
		return "", at
	}
	raw, err := base64.StdEncoding.DecodeString(n.Sigs[0].Base64)
	if err != nil || len(raw) < 12 {
		return "", at
	}
	return fmt.Sprintf("— %s %s\n", w.name, n.Sigs[0].Base64), time.Unix(int64(binary.BigEndian.Uint64(raw[4:12])), 0).UTC()
}

// Cosigner cosigns checkpoints. It has to be asked for no two that contradict each other.
type Cosigner struct {
	*Witness
	private ed25519.PrivateKey
}

// NewCosigner makes a cosigner from a secret of 32 bytes.
func NewCosigner(name string, seed []byte) (*Cosigner, error) {
	if len(seed) != ed25519.SeedSize || name == "" || strings.ContainsAny(name, "+ \t\n") {
		return nil, fault.New(fault.InvalidConfig, "A witness has a name without blanks and plus signs, and is %.80q.", name)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public, _ := private.Public().(ed25519.PublicKey)
	return &Cosigner{newWitness(name, public), private}, nil
}

// Cosign is the line that says that the text of a checkpoint was seen at a time.
func (c *Cosigner) Cosign(text string, at time.Time) string {
	seconds := uint64(max(1, at.Unix()))
	raw := binary.BigEndian.AppendUint32(nil, c.hash)
	raw = binary.BigEndian.AppendUint64(raw, seconds)
	raw = append(raw, ed25519.Sign(c.private, cosignedText(seconds, []byte(text)))...)
	return fmt.Sprintf("— %s %s\n", c.name, base64.StdEncoding.EncodeToString(raw))
}

// Addition is the body of add-checkpoint (C2SP tlog-witness): a checkpoint, and the proof that the tree of Old entries
// is a beginning of its tree.
type Addition struct {
	Old    int64
	Proof  tlog.TreeProof
	Signed []byte
}

// maxProof is how many hashes a proof has at the most.
const maxProof = 63

// Encode writes it.
func (a Addition) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "old %d\n", a.Old)
	for _, h := range a.Proof {
		fmt.Fprintln(&b, h)
	}
	b.WriteByte('\n')
	b.Write(a.Signed)
	return b.Bytes()
}

// ReadAddition reads what Encode writes, and nothing else.
func ReadAddition(body []byte) (a Addition, err error) {
	bad := func(what string) (Addition, error) {
		return a, fault.New(fault.InvalidRequest, "The body should be that of add-checkpoint in C2SP tlog-witness: %s.", what)
	}
	head, signed, found := strings.Cut(string(body), "\n\n")
	if !found {
		return bad("an empty line and a checkpoint are missing")
	}
	lines := strings.Split(head, "\n")
	number, ok := strings.CutPrefix(lines[0], "old ")
	if a.Old, err = strconv.ParseInt(number, 10, 64); !ok || err != nil || a.Old < 0 ||
		strconv.FormatInt(a.Old, 10) != number {
		return bad("the first line is old and a size")
	}
	if len(lines)-1 > maxProof {
		return bad("a proof has at most 63 lines")
	}
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil || h.String() != line {
			return bad("a line of the proof is not a hash in base64")
		}
		a.Proof = append(a.Proof, h)
	}
	a.Signed = []byte(signed)
	return a, nil
}

// EmptyRoot is the root of an empty tree.
func EmptyRoot() tlog.Hash { return sha256.Sum256(nil) }

// Trusted are the keys of a log. One whose key was replaced has several.
type Trusted []note.Verifier

// Open checks that one of the keys has signed a note, and none wrongly. It returns its text, and the note with the
// signatures that were checked.
func (t Trusted) Open(signed []byte) (text, checked string, err error) {
	n, err := note.Open(signed, note.VerifierList(t...))
	if err != nil {
		return "", "", fault.Wrap(err, fault.VerificationFailed, "The note is not signed by a key that is trusted.")
	}
	checked = n.Text + "\n"
	for _, s := range n.Sigs {
		checked += fmt.Sprintf("— %s %s\n", s.Name, s.Base64)
	}
	return n.Text, checked, nil
}

// Follows is nil if a checkpoint is the same tree as one over Old entries with this root, in base64, grown or not.
func (a Addition) Follows(c Checkpoint, is string) error {
	bad := func(what string) error { return fault.New(fault.VerificationFailed, "%s", what) }
	root, _ := tlog.ParseHash(is) // the zero hash, which no tree has, for what is none
	switch {
	case c.Size == 0 && c.Root != EmptyRoot():
		return bad("An empty tree has another root.")
	case a.Old == 0 || a.Old == c.Size:
		if len(a.Proof) > 0 {
			return bad("There is nothing to prove, and a proof.")
		}
		if a.Old == c.Size && a.Old > 0 && c.Root != root {
			return bad("This size was seen with another root.")
		}
		return nil
	}
	if err := tlog.CheckTree(a.Proof, c.Size, c.Root, a.Old, root); err != nil {
		return fault.Wrap(err, fault.VerificationFailed, "The proof does not show that the tree has only grown.")
	}
	return nil
}
