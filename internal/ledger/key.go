package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/ledger/notes"
)

// The files of the ledger in the data folder. The key and the checkpoint are outside of the
// database on purpose: who can change the database alone can change neither (LED-23).
const (
	KeyFile        = "ledger.key"      // the private key that signs checkpoints
	NextKeyFile    = "ledger.key.next" // the one that takes over, until its entry is found
	PublicKeyFile  = "ledger.pub"      // the key that verifies them
	CheckpointFile = "checkpoint"      // the newest checkpoint this node has seen
)

// key is what signs and verifies checkpoints. It never changes: a key that takes over makes another.
type key struct {
	signer note.Signer // of the key in force, nil on a node that does not sign
	chain  notes.Chain
}

// openKey finds the ledger's key. A new ledger gets a new one.
// A node that joins a ledger without its private key does not sign. LED-26: the database
// remembers the key that it began with, and its entries those that took over. A folder whose keys are
// none of these is refused, so that a folder and a database that do not belong together never produce a second history.
func openKey(ctx context.Context, o Options) (*key, error) {
	keyPath, publicPath := filepath.Join(o.Dir, KeyFile), filepath.Join(o.Dir, PublicKeyFile)
	private, err := readText(keyPath)
	if err != nil {
		return nil, err
	}
	kept, err := readText(publicPath)
	if err != nil {
		return nil, err
	}
	known, err := knownKey(ctx, o)
	if err != nil {
		return nil, err
	}
	// A key has its name once the database knows it; with an empty one it is of a ledger that is elsewhere, or lost.
	newPath, fresh := keyPath+".new", private == ""
	if fresh {
		if private, err = readText(newPath); err != nil { // left by a first start that was killed
			return nil, err
		}
	}
	if private == "" && kept == "" && known == "" {
		if private, _, err = note.GenerateKey(rand.Reader, o.Origin); err != nil {
			return nil, fmt.Errorf("make the ledger's key: %w", err)
		}
		if err := replaceFile(newPath, private+"\n", 0o600); err != nil {
			return nil, err
		}
	}
	own, err := ownKey(private)
	if err != nil {
		return nil, err
	}
	if known == "" && (!fresh || own == "") {
		return nil, fault.New(fault.LedgerMismatch,
			"The database is empty, and %s has a ledger's key. Bring that ledger back with `signalbox restore`, or `signalbox "+
				"migrate`; to begin a new one, move %s, %s and %s away.", o.Dir, KeyFile, PublicKeyFile, CheckpointFile)
	}
	if known == "" {
		if known, err = storeKey(ctx, o, own); err != nil {
			return nil, err
		}
	}
	if fresh && own != "" {
		if known == own {
			err = os.Rename(newPath, keyPath)
		} else { // another node was first to make this ledger's key; ours signs nothing
			own, err = "", os.Remove(newPath)
		}
		if err != nil {
			return nil, err
		}
	}
	chain, err := notes.NewChain(known)
	if err == nil {
		chain, err = followed(ctx, o.DB.Read, chain)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.LedgerMismatch, "The keys of the ledger in the database do not hold. %s",
			fault.From(err).Message)
	}
	for _, text := range []string{kept, own} {
		if text != "" && !chain.Has(text) {
			return nil, fault.New(fault.LedgerMismatch,
				"The key in %s belongs to another ledger than the one in this database. Use the data folder "+
					"that goes with the database, or an empty one.", o.Dir)
		}
	}
	return (&Ledger{dir: o.Dir}).hold(chain)
}

// ownKey is the verifier key of a signing key, "" for none.
func ownKey(private string) (string, error) {
	if private == "" {
		return "", nil
	}
	own, ok := notes.PublicOf(private)
	if !ok {
		return "", fault.New(fault.InvalidConfig, "%s does not hold an Ed25519 signing key. Restore it from a backup.", KeyFile)
	}
	return own, nil
}

// hold finds the signing key of the last key of a chain in the folder, if it is there, and keeps the public one there.
// The next key becomes the key if its entry was committed, whenever the process was killed (LED-37).
func (l *Ledger) hold(chain notes.Chain) (*key, error) {
	k, last := &key{chain: chain}, chain.Last().Text
	for _, name := range []string{KeyFile, NextKeyFile} {
		path := filepath.Join(l.dir, name)
		private, err := readText(path)
		if err != nil {
			return nil, err
		}
		if own, _ := notes.PublicOf(private); private == "" || own != last {
			continue
		}
		if k.signer, err = note.NewSigner(private); err != nil {
			return nil, fault.New(fault.InvalidConfig, "%s does not hold a signing key. Restore it from a backup.", name)
		}
		if name == NextKeyFile {
			if err := replaceFile(filepath.Join(l.dir, KeyFile), private+"\n", 0o600); err != nil {
				return nil, err
			}
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		}
		break
	}
	path := filepath.Join(l.dir, PublicKeyFile)
	if kept, err := readText(path); err != nil || kept == last {
		return k, err
	}
	return k, replaceFile(path, last+"\n", 0o644)
}

// knownKey is the key the ledger in the database began with, "" for a new one.
func knownKey(ctx context.Context, o Options) (string, error) {
	var known string
	err := o.DB.Read.QueryRowContext(ctx, "SELECT vkey FROM ledger_tree WHERE id = 1").Scan(&known)
	return known, err
}

// storeKey makes the key the ledger's unless it has one, and returns the one it has:
// two nodes may start together.
func storeKey(ctx context.Context, o Options, public string) (string, error) {
	tx, err := o.DB.Begin(ctx, "ledger_tree")
	if err != nil {
		return "", err
	}
	tx.Exec("UPDATE ledger_tree SET vkey = $1 WHERE id = 1 AND vkey = ''", public)
	if _, err := tx.Commit(false); err != nil {
		return "", err
	}
	return knownKey(ctx, o)
}

// Signs reports whether this node has the key that signs checkpoints.
func (l *Ledger) Signs() bool { return l.key.Load().signer != nil }

// Key is the verifier key in force, as text.
func (l *Ledger) Key() string { return l.key.Load().chain.Last().Text }

// Keys are the keys that have signed this ledger, in their order.
func (l *Ledger) Keys() notes.Chain { return l.key.Load().chain }

// Origin is the log's name in its checkpoints.
func (l *Ledger) Origin() string { return l.key.Load().chain.Last().Verifier.Name() }

// readText reads a small file, "" when it is not there.
func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.Wrap(err, fault.StoreReadOnly, "Cannot read %s. Check that this user may.", path)
	}
	return strings.TrimSpace(string(text)), nil
}

// replaceFile replaces a file as a whole.
func replaceFile(path, text string, mode fs.FileMode) error {
	if err := file.Replace(path, []byte(text), mode); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly,
			"Cannot write %s. Check that the folder exists, that this user may write to it, and that the disk has room.", path)
	}
	return nil
}
