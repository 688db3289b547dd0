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

// vault holds the providers' keys (PRX-8). In the database they are encrypted with AES-256-GCM, under a
// key that is in a file beside it. In memory they are plain, since every call needs one. The
// ledger records who has set a key, and neither the key nor its encrypted form: entries cannot be
// taken back, and a key has to be.
type vault struct {
	db   *store.DB
	aead cipher.AEAD

	mu   sync.RWMutex
	keys map[place]wire.Secret
}

// place is where a key is good: for a provider and a workspace or, with "" for the workspace, for all
// workspaces that have no key of their own.
type place struct{ provider, workspace string }

// openVault makes a vault without keys; load reads them. The key of the file is hashed with a name, so
// that the same file could serve another purpose with another key.
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
	aead, err := cipher.NewGCM(c)
	return &vault{db: db, aead: aead, keys: map[place]wire.Secret{}}, err
}

// encrypt encrypts a key. The place is authenticated with it, so that somebody who can write to the
// database cannot move the key of one workspace to another.
func (v *vault) encrypt(at place, key string) []byte {
	nonce := make([]byte, v.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return v.aead.Seal(nonce, nonce, []byte(key), []byte(at.provider+"\x00"+at.workspace))
}

// decrypt decrypts a key that encrypt has encrypted for the same place.
func (v *vault) decrypt(at place, sealed []byte) (string, error) {
	n := v.aead.NonceSize()
	if len(sealed) < n {
		return "", fault.New(fault.Internal, "A key in the vault is too short to be one.")
	}
	key, err := v.aead.Open(nil, sealed[:n], sealed[n:], []byte(at.provider+"\x00"+at.workspace))
	return string(key), err
}

// load reads every key in place of those in memory. A key that cannot be decrypted, because vault.key
// is another, is left out: calls that need it are refused, and others are not.
func (v *vault) load(ctx context.Context) error {
	keys := map[place]wire.Secret{}
	err := store.Each(v.db.Reading(ctx), func(scan store.Scan) error {
		var at place
		var sealed []byte
		if err := scan(&at.provider, &at.workspace, &sealed); err != nil {
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

// keyFor is the key that calls of a workspace use, its own or the one of all; "" if there is none.
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

// keySet is the body of proxy.key_set. sealed travels beside the entry in memory: applyKey puts it
// into the table in the same transaction, and the ledger never has it.
type keySet struct {
	Provider string `json:"provider"`
	For      string `json:"for"` // a workspace, or "" for all that have none of their own
	Hint     string `json:"hint"`
	sealed   []byte // nil if the key is removed
}

// applyKey puts a key into the vault, or removes it. In a rebuild the entry has no value in memory,
// and the vault is left alone.
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
ON CONFLICT (provider, workspace) DO UPDATE
SET sealed = excluded.sealed, hint = excluded.hint, set_at = excluded.set_at`,
		b.Provider, b.For, b.sealed, b.Hint, e.At.UnixMicro())
	return nil
}

// SetKey puts a provider's key into the vault, for a workspace or with "" for all that have none of
// their own, in place of the one that is there.
func (p *Proxy) SetKey(ctx context.Context, by roster.Identity, provider, workspace, key string) error {
	at := place{provider, workspace}
	b := &keySet{Provider: provider, For: workspace, Hint: hint(key), sealed: p.vault.encrypt(at, key)}
	return p.writeKey(ctx, by, b, func(tx *ledger.Tx) error {
		if workspace == "" {
			return nil
		}
		return roster.RequireWorkspace(tx, workspace)
	})
}

// writeKey records that a key was set or removed, if check allows it in the transaction, and reads the
// vault anew. Other nodes do so when they follow the entry.
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

// Adopt puts a key from the configuration into the vault for all workspaces, unless it is there already:
// a restart with the same configuration writes nothing.
func (p *Proxy) Adopt(ctx context.Context, provider, key string) error {
	if err := p.vault.load(ctx); err != nil || key == "" || p.vault.keyFor(provider, "") == key {
		return err
	}
	return p.SetKey(ctx, roster.Identity{}, provider, "", key)
}

// hint is the last four characters of a key, by which people recognise it, or none of a key that is so
// short that they would give it away.
func hint(key string) string {
	if len(key) < 16 {
		return "…"
	}
	return "…" + key[len(key)-4:]
}

// Keys lists the keys of the caller's workspace, or of all for a caller who is not confined to one. It
// never has the keys themselves.
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

// keyPlace checks that the provider exists and that the caller may see the workspace.
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

// PutKey is SetKey for a caller who may be confined to a workspace. It lists the vault afterwards.
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

// RemoveKey removes a key from the vault and lists the vault afterwards. Calls that are under way keep
// the key that they have.
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
