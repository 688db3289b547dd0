package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Manifest says what one backup is. It names all of its objects, also those that earlier ones have written.
type Manifest struct {
	Number     int64           `json:"number"`
	At         time.Time       `json:"at"`
	Key        string          `json:"key"`        // the verifier key that the ledger began with
	Took       []string        `json:"took"`       // the successions of those that took over; the last one signs
	Checkpoint string          `json:"checkpoint"` // what the entries are verified against
	Tree       ledger.Frontier `json:"tree"`       // over the entries
	Schema     map[string]int  `json:"schema"`     // how many steps each package's tables had
	Recipients []string        `json:"recipients"`
	Entries    []Object        `json:"entries"` // in order
	Notes      []Object        `json:"notes"`
	State      Object          `json:"state"`
	Blobs      []Blob          `json:"blobs"`
}

// Blob is an attachment.
type Blob struct {
	Blob   string `json:"blob"` // its name in the server's store
	Object Object `json:"object"`
}

// notes are what one backup found beside the new entries.
type notes struct {
	Erased      []int64           `json:"erased"` // entries of earlier objects whose bodies are gone
	Checkpoints []dump.Checkpoint `json:"checkpoints"`
}

// state is what stands beside the ledger.
type state struct {
	Cursors map[string]int64 `json:"cursors"`
	Tables  []dump.Table     `json:"tables"`
}

const (
	manifestKind = "manifest-"
	// signedTitle begins the text that is signed, which goes on with the number and the digest of the manifest.
	signedTitle = "signalbox backup"
	// manifestRule stands between the signature and what is signed.
	manifestRule = "---\n"
)

func manifestName(number int64) string { return fmt.Sprintf("%s%010d", manifestKind, number) }

// objects are all objects of the backup.
func (m *Manifest) objects() []Object {
	all := slices.Concat(m.Entries, m.Notes, []Object{m.State})
	for _, b := range m.Blobs {
		all = append(all, b.Object)
	}
	return all
}

// signedText is the text whose signature makes a manifest one.
func signedText(number int64, content []byte) string {
	sum := sha256.Sum256(content)
	return fmt.Sprintf("%s\n%d\n%s\n", signedTitle, number, hex.EncodeToString(sum[:]))
}

// publish writes the manifest. It is an error if another has its number.
func (p *Place) publish(ctx context.Context, m *Manifest, dir string) error {
	content, err := wire.Marshal(m)
	if err != nil {
		return err
	}
	signer, err := m.signer()
	if err != nil {
		return err
	}
	signed, err := dump.Sign(dir, signedText(m.Number, content), signer)
	if err != nil {
		return err
	}
	if err := p.create(ctx, manifestName(m.Number), slices.Concat(signed, []byte(manifestRule), content)); err != nil {
		return fault.Wrap(err, fault.Conflict,
			"Backup %d could not be completed at %s: another was written there meanwhile, or the place takes no more. What was "+
				"there before is as it was.", m.Number, p.name)
	}
	return nil
}

// signer is the verifier key of the key that signs the manifest: the one in force when it was made.
func (m *Manifest) signer() (string, error) {
	chain, err := dump.Chain(m.Key, m.Took)
	if err != nil {
		return "", err
	}
	return chain.Last().Text, nil
}

// inFolder believes what the ledger's key in a folder has signed.
func inFolder(dir string) func(signer string) error {
	return func(signer string) error {
		_, err := dump.Sign(dir, signedTitle+"\n", signer)
		return err
	}
}

// manifest reads the backup with a number, and checks that a key has signed it which is believed.
func (p *Place) manifest(ctx context.Context, number int64, believe func(signer string) error) (*Manifest, error) {
	data, err := p.read(ctx, manifestName(number))
	if err != nil {
		return nil, err
	}
	broken := func(err error) error {
		return fault.Wrap(err, fault.VerificationFailed,
			"The manifest of backup %d at %s was changed or damaged, or is of another ledger. The backups before it can be named "+
				"with --number.", number, p.name)
	}
	signed, content, _ := bytes.Cut(data, []byte("\n"+manifestRule))
	m := &Manifest{}
	if err := wire.UnmarshalPart(content, m); err != nil {
		return nil, broken(err)
	}
	signer, err := m.signer()
	if err != nil {
		return nil, broken(err)
	}
	// The manifest names its key; whoever reads it has the one that counts.
	if err := believe(signer); err != nil {
		return nil, err
	}
	text, err := dump.Verify(append(signed, '\n'), signer)
	if err != nil {
		return nil, broken(err)
	}
	if text != signedText(number, content) || m.Number != number {
		return nil, broken(fmt.Errorf("it was signed as %q", text))
	}
	return m, nil
}

// numbers are those of the manifests, in order, and all other names in the place.
func (p *Place) numbers(ctx context.Context) (numbers []int64, others map[string]bool, err error) {
	names, err := p.Before(ctx, time.Now().Add(48*time.Hour)) // the store's clock may be ahead
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.StoreUnavailable, "Cannot read what is at %s.", p.name)
	}
	others = map[string]bool{}
	for _, name := range names {
		text, ok := strings.CutPrefix(name, manifestKind)
		if n, err := strconv.ParseInt(text, 10, 64); ok && err == nil && manifestName(n) == name {
			numbers = append(numbers, n)
		} else {
			others[name] = true
		}
	}
	slices.Sort(numbers)
	return numbers, others, nil
}

// schemaOf is how many steps the tables of each package have.
func schemaOf(sets []store.Migrations) map[string]int {
	all := map[string]int{}
	for _, set := range sets {
		all[set.Package] = len(set.Steps)
	}
	return all
}
