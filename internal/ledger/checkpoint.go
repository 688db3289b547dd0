package ledger

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/signalbox/signalbox/internal/fault"
)

// The files of the ledger in the data folder.
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

// checkpoint is a signed statement of what the tree is.
type checkpoint struct {
	origin string
	size   int64
	root   tlog.Hash
	note   []byte // the signed note
}

// openKey finds the ledger's key. A new ledger gets the folder's key or a new one.
// A node that joins a ledger without its private key does not sign.
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
	made := private == "" && kept == "" && known == ""
	if made {
		if private, _, err = note.GenerateKey(rand.Reader, o.Origin); err != nil {
			return key{}, fmt.Errorf("make the ledger's key: %w", err)
		}
		if err := writeFile(keyPath, private+"\n", 0o600); err != nil {
			return key{}, err
		}
	}
	k, err := parseKey(private, cmp.Or(kept, known))
	if err != nil {
		return key{}, err
	}
	switch {
	case known == "" && k.signer == nil:
		return key{}, fault.New(fault.LedgerMismatch, "The database is new and %s belongs to another ledger. Use the database that goes with the folder, or an empty folder.", publicPath)
	case known == "":
		if known, err = storeKey(ctx, o, k.text); err != nil {
			return key{}, err
		}
		if made && known != k.text {
			// Another node was first to make this ledger's key; ours signs nothing.
			if err := os.Remove(keyPath); err != nil {
				return key{}, err
			}
			if k, err = parseKey("", known); err != nil {
				return key{}, err
			}
		}
	}
	if known != k.text {
		return key{}, fault.New(fault.LedgerMismatch, "The key in %s belongs to another ledger than the one in this database. Use the data folder that goes with the database, or an empty one.", o.Dir)
	}
	return k, writeFile(publicPath, k.text+"\n", 0o644)
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
			return key{}, fault.New(fault.LedgerMismatch, "%s does not belong to %s, or to the ledger in this database. Restore the one that does.", KeyFile, PublicKeyFile)
		}
		public = own
	}
	k.text = public
	if k.verifier, err = note.NewVerifier(public); err != nil {
		return key{}, fault.Wrap(err, fault.InvalidConfig, "%s does not hold a verifier key. Restore it from a backup, or copy it from another node.", PublicKeyFile)
	}
	return k, nil
}

// publicOf makes the verifier key of a signing key, which ends in the base64 of a
// byte for the algorithm and the seed.
func publicOf(private string) (string, error) {
	parts := strings.SplitN(private, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(parts) != 5 || len(raw) != 1+ed25519.SeedSize {
		return "", fault.New(fault.InvalidConfig, "%s does not hold an Ed25519 signing key. Restore it from a backup.", KeyFile)
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

func (c checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.origin, c.size, c.root)
}

// parseCheckpoint checks the signature and reads the three lines.
func parseCheckpoint(signed []byte, v note.Verifier) (checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(v))
	if err != nil {
		return checkpoint{}, fault.Wrap(err, fault.VerificationFailed, "The checkpoint is not signed by %s, or was changed after it was signed.", v.Name())
	}
	lines := strings.SplitN(n.Text, "\n", 4)
	if len(lines) < 4 || lines[0] != v.Name() {
		return checkpoint{}, fault.New(fault.VerificationFailed, "The checkpoint is not one of %s.", v.Name())
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return checkpoint{}, fault.New(fault.VerificationFailed, "The second line of the checkpoint is not a number of entries.")
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return checkpoint{}, fault.New(fault.VerificationFailed, "The third line of the checkpoint is not a hash.")
	}
	return checkpoint{lines[0], size, root, signed}, nil
}

// compareWithFile compares the tree in the database with the checkpoint file, which
// is kept outside of it. A database that was changed, or that is an old backup,
// does not have the root that was signed.
func (l *Ledger) compareWithFile(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(l.dir, CheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the checkpoint file: %w", err)
	}
	c, err := parseCheckpoint(text, l.key.verifier)
	if err != nil {
		l.refuse(fault.Wrap(err, fault.LedgerMismatch, "The checkpoint file in %s does not verify with the ledger's key. Restore it from a backup.", l.dir))
		return nil
	}
	l.signed = c
	if err = l.compare(ctx, c); fault.Is(err, fault.LedgerMismatch) {
		l.refuse(err)
		return nil
	}
	return err
}

// compare returns a mismatch if the tree does not have the root that c says.
func (l *Ledger) compare(ctx context.Context, c checkpoint) error {
	var size, head int64
	if err := l.db.Read.QueryRowContext(ctx, "SELECT t.size, h.seq FROM ledger_tree t, ledger_head h").Scan(&size, &head); err != nil {
		return err
	}
	if size < c.size || head < c.size {
		return fault.New(fault.LedgerMismatch, "The checkpoint file was signed over %d entries and the database holds %d: the end of the ledger is gone. Restore the newest backup; if it is lost for good, keep %s as evidence and move it away to go on.",
			c.size, min(size, head), filepath.Join(l.dir, CheckpointFile))
	}
	root, err := tlog.TreeHash(c.size, newTiles(ctx, l.db.Read))
	if err != nil {
		return err
	}
	if root != c.root {
		return fault.New(fault.LedgerMismatch, "The first %d entries in the database do not have the root that was signed: entries were changed, or the database is not the one that goes with %s.", c.size, l.dir)
	}
	return l.compareTail(ctx, c.size)
}

// compareTail checks that the last records still hash to the leaves of the tree.
// All of them are checked by verifying an export.
func (l *Ledger) compareTail(ctx context.Context, size int64) error {
	from := max(0, size-1<<tileHeight)
	rows, err := l.db.Read.QueryContext(ctx, "SELECT seq, record FROM ledger_entry WHERE seq > $1 AND seq <= $2 ORDER BY seq", from, size)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	t, next := newTiles(ctx, l.db.Read), from+1
	for ; rows.Next(); next++ {
		var seq int64
		var rec []byte
		if err := rows.Scan(&seq, &rec); err != nil {
			return err
		}
		leaf, err := t.ReadHashes([]int64{tlog.StoredHashIndex(0, next-1)})
		if err != nil {
			return err
		}
		if seq != next || tlog.RecordHash(rec) != leaf[0] {
			return fault.New(fault.LedgerMismatch, "Entry %d in the database is not the one that was signed. It was changed after the fact; restore the database from a backup.", next)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if next != size+1 {
		return missing(next)
	}
	return nil
}

// checkpointLoop signs while entries arrive, and once more at the end.
func (l *Ledger) checkpointLoop(ctx context.Context) {
	for {
		news := l.news()
		if err := l.Checkpoint(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("cannot sign a checkpoint; will try again", "error", err.Error())
		}
		pause(ctx, nil, signEvery)
		pause(ctx, news, 10*time.Second)
		if ctx.Err() != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if err := l.Checkpoint(last); err != nil {
				l.log.Warn("stopped without a last checkpoint; the next start signs it", "error", err.Error())
			}
			return
		}
	}
}

// Checkpoint brings the tree and its signed checkpoint up to the last entry. On a
// node without the key it takes over the newest checkpoint of the others.
func (l *Ledger) Checkpoint(ctx context.Context) error {
	l.building.Lock()
	defer l.building.Unlock()
	if err := l.refusal(); err != nil {
		return nil // said loudly already; nothing more is signed
	}
	c, err := l.nextCheckpoint(ctx)
	if fault.Is(err, fault.LedgerMismatch) {
		l.refuse(err)
		return nil
	}
	if err != nil || c.size <= l.signed.size {
		return err
	}
	if err := writeFile(filepath.Join(l.dir, CheckpointFile), string(c.note), 0o644); err != nil {
		return err
	}
	l.signed = c
	return nil
}

// nextCheckpoint never signs a tree that contradicts the one signed before.
func (l *Ledger) nextCheckpoint(ctx context.Context) (checkpoint, error) {
	if l.key.signer == nil {
		return l.adopt(ctx)
	}
	size, root, err := l.build(ctx)
	if err != nil || size == l.signed.size && root == l.signed.root {
		return l.signed, err
	}
	if size < l.signed.size {
		return checkpoint{}, shorter(size, l.signed.size)
	}
	if err := l.consistent(ctx); err != nil {
		return checkpoint{}, err
	}
	c := checkpoint{origin: l.key.signer.Name(), size: size, root: root}
	if c.note, err = note.Sign(&note.Note{Text: c.text()}, l.key.signer); err != nil {
		return checkpoint{}, fmt.Errorf("sign a checkpoint: %w", err)
	}
	tx, err := l.db.Begin(ctx, "ledger_tree")
	if err != nil {
		return checkpoint{}, err
	}
	tx.Exec("INSERT INTO ledger_checkpoint (size, note) VALUES ($1, $2) ON CONFLICT (size) DO NOTHING", c.size, string(c.note))
	_, err = tx.Commit(false)
	return c, err
}

func (l *Ledger) adopt(ctx context.Context) (checkpoint, error) {
	text, err := l.newest(ctx)
	if err != nil || text == "" && l.signed.size == 0 {
		return l.signed, err
	}
	var c checkpoint
	if text != "" {
		if c, err = parseCheckpoint([]byte(text), l.key.verifier); err != nil {
			return l.signed, err
		}
	}
	if c.size < l.signed.size {
		return checkpoint{}, shorter(c.size, l.signed.size)
	}
	return c, l.consistent(ctx)
}

// shorter: a ledger only grows, and what was signed was on disk before.
func shorter(size, signed int64) error {
	return fault.New(fault.LedgerMismatch, "The tree in the database has %d entries and %d were signed already: an old backup was restored while the server ran. Restore the newest backup.", size, signed)
}

// consistent checks that the tree still has the root of the last checkpoint.
func (l *Ledger) consistent(ctx context.Context) error {
	if l.signed.size == 0 {
		return nil
	}
	root, err := tlog.TreeHash(l.signed.size, newTiles(ctx, l.db.Read))
	if err == nil && root != l.signed.root {
		err = fault.New(fault.LedgerMismatch, "The first %d entries no longer have the root that was signed: the tree in the database was changed while the server ran.", l.signed.size)
	}
	return err
}

func (l *Ledger) newest(ctx context.Context) (string, error) {
	var text string
	err := l.db.Read.QueryRowContext(ctx, "SELECT note FROM ledger_checkpoint ORDER BY size DESC LIMIT 1").Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return text, err
}

// Signed returns the newest checkpoint as it was signed.
func (l *Ledger) Signed(ctx context.Context) (text []byte, size int64, err error) {
	s, err := l.newest(ctx)
	if err != nil {
		return nil, 0, err
	}
	if s == "" {
		return nil, 0, fault.New(fault.NotFound, "No checkpoint has been signed yet. The first follows within a second of the first entry.")
	}
	c, err := parseCheckpoint([]byte(s), l.key.verifier)
	return c.note, c.size, err
}

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

// writeFile replaces a file whole: after a crash it is the old one or the new one.
func writeFile(path, text string, mode fs.FileMode) error {
	err := func() error {
		f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(f.Name()) }()
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
		if err != nil {
			return err
		}
		return os.Rename(f.Name(), path)
	}()
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that the folder exists, that this user may write to it, and that the disk has room.", path)
	}
	return nil
}

// Origin is the log's name in its checkpoints.
func (l *Ledger) Origin() string { return l.key.verifier.Name() }
