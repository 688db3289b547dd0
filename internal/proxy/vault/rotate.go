package vault

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Rotated is the kind of the entry by which the vault has another key.
const Rotated = "vault.rotated"

// rotated is its body. sealed travels beside the entry in memory, as for a key that is set.
type rotated struct {
	Keys   int    `json:"keys"` // that were encrypted anew
	Key    string `json:"key"`  // the fingerprint of the vault's key
	sealed map[Place][]byte
}

// Rotation is the answer to the call.
type Rotation struct {
	Keys        int    `json:"keys" doc:"how many providers' keys were encrypted anew"`
	Fingerprint string `json:"fingerprint" doc:"of the new key of the vault"`
}

// Apply puts what was encrypted anew into the table, all of it or nothing. A rebuild leaves the vault alone.
func Apply(tx *store.Tx, e *ledger.Entry) error {
	if b, ok := e.Value().(*rotated); ok {
		for at, sealed := range b.sealed {
			tx.Exec("UPDATE proxy_vault SET sealed = $3 WHERE provider = $1 AND workspace = $2", at.Provider, at.Workspace, sealed)
		}
	}
	return nil
}

// Hint is the last four characters of a key, by which people recognise it, or none of a key that is so
// short that they would give it away.
func Hint(key string) string {
	if len(key) < 16 {
		return "…"
	}
	return "…" + key[len(key)-4:]
}

// fingerprint tells keys of a vault apart, and gives none away: they are random.
func fingerprint(key []byte) string {
	sum := sha256.Sum256(append([]byte("signalbox vault fingerprint\x00"), key...))
	return hex.EncodeToString(sum[:8])
}

// nextFile is where a key is until its entry is found.
func nextFile(name string) string { return name + ".next" }

// Settle finishes what Rotate has begun, before the file with the key is read: the next key becomes the key if its
// entry was committed, and is removed if not.
func Settle(ctx context.Context, l *ledger.Ledger, name string) error {
	next, err := os.ReadFile(nextFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot read %s. Check that this user may.", nextFile(name))
	}
	last, err := l.Entries(ctx, ledger.Query{Kinds: []string{Rotated}, Newest: true, Limit: 1})
	if err != nil {
		return err
	}
	var b rotated
	if len(last) > 0 {
		if err := last[0].Decode(&b); err != nil {
			return err
		}
	}
	if b.Key != fingerprint([]byte(strings.TrimSpace(string(next)))) {
		return os.Remove(nextFile(name))
	}
	return install(name, next)
}

// install makes the next key the key.
func install(name string, next []byte) error {
	if err := file.Replace(name, next, 0o600); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. The vault's new key is in %s.", name, nextFile(name))
	}
	return os.Remove(nextFile(name))
}

// Hold keeps the key of the vault as it is until the function that it returns is called.
func (v *Vault) Hold() (release func()) {
	v.rotating.RLock()
	return v.rotating.RUnlock
}

// InForce is the error for a node whose key is not the vault's any more. What it encrypts nobody else could read.
func (v *Vault) InForce(tx *ledger.Tx) error {
	last, err := tx.Prover().Entries(ledger.Query{Kinds: []string{Rotated}, Newest: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return err
	}
	b, err := ledger.Read[rotated](&last[0])
	if err == nil && b.Key != v.fingerprint {
		err = fault.New(fault.Conflict, "The vault has another key since entry %d. Copy vault.key from the node that "+
			"replaced it into this node's data folder, and start this node again.", last[0].Seq)
	}
	return err
}

// Rotate gives the vault a new key: every key in it is encrypted anew, in one transaction. The new key is in a file
// before that: whenever the process is killed, the next start has the one that the rows are encrypted with.
func (v *Vault) Rotate(ctx context.Context, l *ledger.Ledger, actor string) (Rotation, error) {
	v.rotating.Lock()
	defer v.rotating.Unlock()
	text := rand.Text() + rand.Text()
	next, err := open([]byte(text))
	if err != nil {
		return Rotation{}, err
	}
	if err := file.Replace(nextFile(v.file), []byte(text+"\n"), 0o600); err != nil {
		return Rotation{}, fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s.", nextFile(v.file))
	}
	b := &rotated{Key: fingerprint([]byte(text))}
	err = l.Write(ctx, func(tx *ledger.Tx) error {
		if err := v.InForce(tx); err != nil {
			return err
		}
		var err error
		if b.sealed, err = v.again(tx.Query, next); err != nil {
			return err
		}
		b.Keys = len(b.sealed)
		body, err := ledger.Encode(b)
		tx.Append(ledger.Event{Kind: Rotated, Actor: actor, Subject: "vault", Body: body})
		return err
	})
	if err != nil {
		if !fault.Is(err, fault.OutcomeUnknown) { // it may be the key: the next start finds out
			_ = os.Remove(nextFile(v.file))
		}
		return Rotation{}, err
	}
	v.loading.Lock()
	v.aead, v.fingerprint = next, b.Key
	v.loading.Unlock()
	if err := install(v.file, []byte(text+"\n")); err != nil {
		return Rotation{}, err
	}
	return Rotation{b.Keys, b.Key}, v.Load(context.WithoutCancel(ctx))
}

// again is every key of the table, encrypted with another key.
func (v *Vault) again(query store.Query, next cipher.AEAD) (map[Place][]byte, error) {
	sealed := map[Place][]byte{}
	err := store.Each(query, func(scan store.Scan) error {
		var at Place
		var old []byte
		if err := scan(&at.Provider, &at.Workspace, &old); err != nil {
			return err
		}
		key, err := v.decrypt(at, old)
		if err != nil {
			return fault.Wrap(err, fault.Conflict, "The key of %s in the vault cannot be read with %s. Set it again, or remove "+
				"it, with `signalbox proxy key`. Nothing was changed.", at.Provider, v.file)
		}
		sealed[at] = seal(next, at, key)
		return nil
	}, "SELECT provider, workspace, sealed FROM proxy_vault")
	return sealed, err
}

// Routes are the call that replaces the key.
func (v *Vault) Routes(l *ledger.Ledger) []wire.Route {
	return []wire.Route{{
		Method: "POST", Path: "/ops/proxy/rotate", Auth: wire.Admin, Answer: Rotation{},
		Summary: "Give the vault a new key, and encrypt the providers' keys anew",
		Handle: wire.Answer(http.StatusOK, func(r *http.Request) (Rotation, error) {
			if err := wire.Unconfined(r.Context(), "The vault is that of"); err != nil {
				return Rotation{}, err
			}
			return v.Rotate(r.Context(), l, roster.From(r.Context()).Actor())
		}),
	}}
}
