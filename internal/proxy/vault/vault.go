// Package vault keeps the providers' keys: encrypted in its table, and plain in memory, where every call of the model
// proxy needs one. It knows no call and no agent.
package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"sync"

	"signalbox/internal/fault"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Vault holds the providers' keys (PRX-8). In the database they are encrypted with AES-256-GCM, under a
// key that is in a file beside it. In memory they are plain, since every call needs one. The
// ledger records who has set a key, and neither the key nor its encrypted form: entries cannot be
// taken back, and a key has to be.
type Vault struct {
	db   *store.DB
	file string // where the key is

	rotating    sync.RWMutex // held while the key is replaced; before loading
	aead        cipher.AEAD  // changed while rotating and loading are held
	fingerprint string

	loading sync.Mutex // one reads at a time, or what was read first could be kept
	mu      sync.RWMutex
	keys    map[Place]wire.Secret
}

// Place is where a key is good: for a provider and a workspace or, with "" for the workspace, for all
// workspaces that have no key of their own.
type Place struct{ Provider, Workspace string }

// Open makes a vault without keys; Load reads them. name is the file that has its key, which Rotate
// replaces. The key of the file is hashed with a name, so
// that the same file could serve another purpose with another key.
func Open(db *store.DB, name string, key []byte) (*Vault, error) {
	aead, err := open(key)
	return &Vault{
		db: db, file: name, aead: aead, fingerprint: fingerprint(key), keys: map[Place]wire.Secret{},
	}, err
}

// open is what encrypts with a key.
func open(key []byte) (cipher.AEAD, error) {
	if len(key) < 32 {
		return nil, fault.New(fault.InvalidConfig,
			"The key of the vault has %d bytes; it should have at least 32 random ones.", len(key)).About("vault.key")
	}
	sum := sha256.Sum256(append([]byte("signalbox vault\x00"), key...))
	c, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(c)
}

// Encrypt encrypts a key. The place is authenticated with it, so that somebody who can write to the
// database cannot move the key of one workspace to another.
// The caller holds the key with Hold until it is in the table.
func (v *Vault) Encrypt(at Place, key string) []byte { return seal(v.aead, at, key) }

func seal(aead cipher.AEAD, at Place, key string) []byte {
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(nonce, nonce, []byte(key), []byte(at.Provider+"\x00"+at.Workspace))
}

// decrypt decrypts a key that Encrypt has encrypted for the same place.
func (v *Vault) decrypt(at Place, sealed []byte) (string, error) {
	n := v.aead.NonceSize()
	if len(sealed) < n {
		return "", fault.New(fault.Internal, "A key in the vault is too short to be one.")
	}
	key, err := v.aead.Open(nil, sealed[:n], sealed[n:], []byte(at.Provider+"\x00"+at.Workspace))
	return string(key), err
}

// Load reads every key in place of those in memory. A key that cannot be decrypted, because vault.key
// is another, is left out: calls that need it are refused, and others are not.
func (v *Vault) Load(ctx context.Context) error {
	v.loading.Lock()
	defer v.loading.Unlock()
	keys := map[Place]wire.Secret{}
	err := store.Each(v.db.Reading(ctx), func(scan store.Scan) error {
		var at Place
		var sealed []byte
		if err := scan(&at.Provider, &at.Workspace, &sealed); err != nil {
			return err
		}
		if key, err := v.decrypt(at, sealed); err == nil {
			keys[at] = wire.NewSecret(key)
		}
		return nil
	}, "SELECT provider, workspace, sealed FROM proxy_vault")
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys = keys
	return nil
}

// KeyFor is the key that calls of a workspace use, its own or the one of all; "" if there is none.
func (v *Vault) KeyFor(provider, workspace string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if key, ok := v.keys[Place{provider, workspace}]; ok {
		return key.Reveal()
	}
	return v.keys[Place{provider, ""}].Reveal()
}

// Has reports whether there is a key at the place that can be decrypted.
func (v *Vault) Has(at Place) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.keys[at]
	return ok
}
