package ledger

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/fault"
	"signalbox/internal/file"
)

// The files of the ledger in the data folder. The key and the checkpoint are outside of the
// database on purpose: who can change the database alone can change neither (LED-23).
const (
	KeyFile        = "ledger.key" // the private key that signs checkpoints
	PublicKeyFile  = "ledger.pub" // the key that verifies them
	CheckpointFile = "checkpoint" // the newest checkpoint this node has seen
)

// key is what signs and verifies checkpoints.
type key struct {
	signer   note.Signer // nil on a node that does not sign
	verifier note.Verifier
	text     string // the verifier key as text
}

// openKey finds the ledger's key. A new ledger gets a new one.
// A node that joins a ledger without its private key does not sign. LED-26: the database
// remembers the one key that signs it, and a folder with another key is refused, so that a
// folder and a database that do not belong together never produce a second history.
func openKey(ctx context.Context, o Options) (key, error) {
	keyPath, publicPath := filepath.Join(o.Dir, KeyFile), filepath.Join(o.Dir, PublicKeyFile)
	private, err := readText(keyPath)
	if err != nil {
		return key{}, err
	}
	kept, err := readText(publicPath)
	if err != nil {
		return key{}, err
	}
	known, err := knownKey(ctx, o)
	if err != nil {
		return key{}, err
	}
	// A key has its name once the database knows it; with an empty one it is of a ledger that is elsewhere, or lost.
	newPath, fresh := keyPath+".new", private == ""
	if fresh {
		if private, err = readText(newPath); err != nil { // left by a first start that was killed
			return key{}, err
		}
	}
	if private == "" && kept == "" && known == "" {
		if private, _, err = note.GenerateKey(rand.Reader, o.Origin); err != nil {
			return key{}, fmt.Errorf("make the ledger's key: %w", err)
		}
		if err := replaceFile(newPath, private+"\n", 0o600); err != nil {
			return key{}, err
		}
	}
	public := cmp.Or(kept, known)
	if fresh && private != "" {
		public = "" // compared below
	}
	k, err := parseKey(private, public)
	if err != nil {
		return key{}, err
	}
	switch {
	case known == "" && (!fresh || k.signer == nil):
		return key{}, fault.New(fault.LedgerMismatch,
			"The database is empty, and %s has a ledger's key. Bring that ledger back with `signalbox restore`, or `signalbox "+
				"migrate`; to begin a new one, move %s, %s and %s away.", o.Dir, KeyFile, PublicKeyFile, CheckpointFile)
	case known == "":
		if known, err = storeKey(ctx, o, k.text); err != nil {
			return key{}, err
		}
	}
	if fresh && k.signer != nil {
		if known != k.text { // another node was first to make this ledger's key; ours signs nothing
			if k, err = parseKey("", known); err == nil {
				err = os.Remove(newPath)
			}
		} else {
			err = os.Rename(newPath, keyPath)
		}
		if err != nil {
			return key{}, err
		}
	}
	if known != k.text {
		return key{}, fault.New(fault.LedgerMismatch,
			"The key in %s belongs to another ledger than the one in this database. Use the data folder "+
				"that goes with the database, or an empty one.", o.Dir)
	}
	return k, replaceFile(publicPath, k.text+"\n", 0o644)
}

// parseKey reads the private key, from which the public one follows, or the public
// one alone.
func parseKey(private, public string) (key, error) {
	var k key
	var err error
	if private != "" {
		if k.signer, err = note.NewSigner(private); err != nil {
			return key{}, fault.New(fault.InvalidConfig, "%s does not hold a signing key. Restore it from a backup.", KeyFile)
		}
		own, err := publicOf(private)
		if err != nil {
			return key{}, err
		}
		if public != "" && public != own {
			return key{}, fault.New(fault.LedgerMismatch,
				"%s does not belong to %s, or to the ledger in this database. Restore the one that does.", KeyFile, PublicKeyFile)
		}
		public = own
	}
	k.text = public
	if k.verifier, err = note.NewVerifier(public); err != nil {
		return key{}, fault.Wrap(err, fault.InvalidConfig,
			"%s does not hold a verifier key. Restore it from a backup, or copy it from another node.", PublicKeyFile)
	}
	return k, nil
}

// publicOf makes the verifier key of a signing key, which ends in the base64 of a
// byte for the algorithm and the seed.
func publicOf(private string) (string, error) {
	parts := strings.SplitN(private, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(parts) != 5 || len(raw) != 1+ed25519.SeedSize {
		return "", fault.New(fault.InvalidConfig, "%s does not hold an Ed25519 signing key. Restore it from a backup.",
			KeyFile)
	}
	public, _ := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	return note.NewEd25519VerifierKey(parts[2], public)
}

// knownKey is the key the ledger in the database is signed with, "" for a new one.
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
func (l *Ledger) Signs() bool { return l.key.signer != nil }

// Key is the verifier key, as text.
func (l *Ledger) Key() string { return l.key.text }

// Origin is the log's name in its checkpoints.
func (l *Ledger) Origin() string { return l.key.verifier.Name() }

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
