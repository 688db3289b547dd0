package proxy

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// vault holds the providers' keys. They are encrypted in the database, with a key that is not
// there. The ledger records who has set one, and not the key, encrypted or plain.
type vault struct {
	db   *store.DB
	seal cipher.AEAD

	mu   sync.RWMutex
	keys map[place]wire.Secret
}

// place is whose key it is: a workspace's or, with "", that of all which have none of their own.
type place struct{ provider, workspace string }

func openVault(db *store.DB, key []byte) (*vault, error) {
	if len(key) < 32 {
		return nil, fault.New(fault.InvalidConfig,
			"The key of the vault has %d bytes; it should have at least 32 random ones.", len(key)).About("vault.key")
	}
	sum := sha256.Sum256(append([]byte("signalbox vault\x00"), key...))
	c, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCM(c)
	return &vault{db: db, seal: seal, keys: map[place]wire.Secret{}}, err
}

// close encrypts a key. The place is authenticated, so that one key cannot be put in the place of
// another.
func (v *vault) close(at place, key string) []byte {
	nonce := make([]byte, v.seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return v.seal.Seal(nonce, nonce, []byte(key), []byte(at.provider+"\x00"+at.workspace))
}

func (v *vault) open(at place, sealed []byte) (string, error) {
	n := v.seal.NonceSize()
	if len(sealed) < n {
		return "", fault.New(fault.Internal, "A key in the vault is too short to be one.")
	}
	key, err := v.seal.Open(nil, sealed[:n], sealed[n:], []byte(at.provider+"\x00"+at.workspace))
	return string(key), err
}

// load reads every key. One that cannot be decrypted is left out: calls that need it are
// refused, and others are not.
func (v *vault) load(ctx context.Context) error {
	keys := map[place]wire.Secret{}
	err := store.Each(v.db.Reading(ctx), func(scan store.Scan) error {
		var at place
		var sealed []byte
		if err := scan(&at.provider, &at.workspace, &sealed); err != nil {
			return err
		}
		if key, err := v.open(at, sealed); err == nil {
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

// keyFor is the key that calls of a workspace use, "" when there is none.
func (v *vault) keyFor(provider, workspace string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if key, ok := v.keys[place{provider, workspace}]; ok {
		return key.Reveal()
	}
	return v.keys[place{provider, ""}].Reveal()
}

// has reports whether there is a key at the place that can be decrypted.
func (v *vault) has(at place) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.keys[at]
	return ok
}

// keySet is the body of proxy.key_set. The encrypted key goes into the table in the same
// transaction, and not into the ledger.
type keySet struct {
	Provider string `json:"provider"`
	For      string `json:"for"` // a workspace, or "" for all that have none of their own
	Hint     string `json:"hint"`
	sealed   []byte
}

// applyKey puts a key into the vault, or removes it. A rebuild does not have the encrypted keys, and
// leaves the vault alone.
func applyKey(tx *store.Tx, e *ledger.Entry) error {
	b, ok := e.Value().(*keySet)
	if !ok {
		return nil
	}
	if b.sealed == nil {
		tx.Exec("DELETE FROM proxy_vault WHERE provider = $1 AND workspace = $2", b.Provider, b.For)
		return nil
	}
	tx.Exec(`INSERT INTO proxy_vault (provider, workspace, sealed, hint, set_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (provider, workspace) DO UPDATE SET sealed = excluded.sealed, hint = excluded.hint, set_at = excluded.set_at`,
		b.Provider, b.For, b.sealed, b.Hint, e.At.UnixMicro())
	return nil
}

// SetKey puts a provider's key into the vault: that of a workspace, or with "" that of all which
// have none of their own.
func (p *Proxy) SetKey(ctx context.Context, by roster.Identity, provider, workspace, key string) error {
	at := place{provider, workspace}
	b := &keySet{Provider: provider, For: workspace, Hint: hint(key), sealed: p.vault.close(at, key)}
	return p.writeKey(ctx, by, b, func(tx *ledger.Tx) error {
		if workspace == "" {
			return nil
		}
		return roster.RequireWorkspace(tx, workspace)
	})
}

// writeKey records that a key was set or, without one, removed, if check allows it, and reads
// the vault anew.
func (p *Proxy) writeKey(ctx context.Context, by roster.Identity, b *keySet, check func(*ledger.Tx) error) error {
	text, err := wire.Marshal(b)
	if err != nil {
		return err
	}
	err = p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		if err := check(tx); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: b.For, Kind: kindKey, Actor: by.Actor(), Subject: b.Provider,
			Body: ledger.Body{Value: b, JSON: text},
		})
		return nil
	})
	if err != nil {
		return err
	}
	return p.vault.load(context.WithoutCancel(ctx))
}

// Adopt puts a key from the configuration into the vault, unless it is there already.
func (p *Proxy) Adopt(ctx context.Context, provider, key string) error {
	if err := p.vault.load(ctx); err != nil || key == "" || p.vault.keyFor(provider, "") == key {
		return err
	}
	return p.SetKey(ctx, roster.Identity{}, provider, "", key)
}

// hint is enough to recognise a key, and to guess nothing of it.
func hint(key string) string {
	if len(key) < 16 {
		return "…"
	}
	return "…" + key[len(key)-4:]
}

// Keys lists the vault, as far as the caller may see it.
func (p *Proxy) Keys(ctx context.Context) (ProviderKeys, error) {
	all := ProviderKeys{Keys: []ProviderKey{}}
	err := store.Each(p.core.DB.Reading(ctx), func(scan store.Scan) error {
		var k ProviderKey
		var at int64
		if err := scan(&k.Provider, &k.Workspace, &k.Hint, &at); err != nil {
			return err
		}
		k.SetAt, k.Readable = time.UnixMicro(at).UTC(), p.vault.has(place{k.Provider, k.Workspace})
		if wire.InScope(ctx, k.Workspace) {
			all.Keys = append(all.Keys, k)
		}
		return nil
	}, "SELECT provider, workspace, hint, set_at FROM proxy_vault ORDER BY provider, workspace")
	return all, err
}

// keyPlace is the place that a caller names and may see.
func keyPlace(ctx context.Context, provider, workspace string) (place, error) {
	if !slices.Contains(Providers, provider) {
		return place{},
			fault.New(fault.NotFound, "There is no provider %.40q. %s", provider, fault.DidYouMean(provider, Providers))
	}
	workspace, visible := wire.Within(ctx, workspace)
	if !visible {
		return place{}, fault.New(fault.NotFound, "There is no workspace %.80q.", workspace)
	}
	return place{provider, workspace}, nil
}

// PutKey puts a key into the vault as far as the caller may, and lists the vault.
func (p *Proxy) PutKey(ctx context.Context, by roster.Identity, provider string, in NewProviderKey) (ProviderKeys,
	error,
) {
	at, err := keyPlace(ctx, provider, in.Workspace)
	if err == nil {
		err = in.check()
	}
	if err == nil {
		err = p.SetKey(ctx, by, at.provider, at.workspace, in.Key)
	}
	if err != nil {
		return ProviderKeys{}, err
	}
	return p.Keys(ctx)
}

// RemoveKey takes a key out of the vault as far as the caller may, and lists the vault.
func (p *Proxy) RemoveKey(ctx context.Context, by roster.Identity, provider, workspace string) (ProviderKeys, error) {
	at, err := keyPlace(ctx, provider, workspace)
	if err != nil {
		return ProviderKeys{}, err
	}
	err = p.writeKey(ctx, by, &keySet{Provider: at.provider, For: at.workspace}, func(tx *ledger.Tx) error {
		var n int
		err := tx.QueryRow("SELECT COUNT(*) FROM proxy_vault WHERE provider = $1 AND workspace = $2",
			[]any{at.provider, at.workspace}, &n)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "The vault has no such key of %s. `signalbox proxy key ls` lists those there are.",
				at.provider)
		}
		return err
	})
	if err != nil {
		return ProviderKeys{}, err
	}
	return p.Keys(ctx)
}
