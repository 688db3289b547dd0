package proxy

import (
	"context"
	"errors"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/proxy/vault"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

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
	defer p.vault.Hold()()
	at := vault.Place{Provider: provider, Workspace: workspace}
	b := &keySet{Provider: provider, For: workspace, Hint: vault.Hint(key), sealed: p.vault.Encrypt(at, key)}
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
		if err := errors.Join(check(tx), p.vault.InForce(tx)); err != nil {
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
	return p.vault.Load(context.WithoutCancel(ctx))
}

// Adopt puts a key from the configuration into the vault for all workspaces, unless it is there already:
// a restart with the same configuration writes nothing.
func (p *Proxy) Adopt(ctx context.Context, provider, key string) error {
	if err := p.vault.Load(ctx); err != nil || key == "" || p.vault.KeyFor(provider, "") == key {
		return err
	}
	return p.SetKey(ctx, roster.Identity{}, provider, "", key)
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
		k.SetAt, k.Readable = time.UnixMicro(at).UTC(), p.vault.Has(vault.Place{Provider: k.Provider, Workspace: k.Workspace})
		if wire.InScope(ctx, k.Workspace) {
			all.Keys = append(all.Keys, k)
		}
		return nil
	}, "SELECT provider, workspace, hint, set_at FROM proxy_vault ORDER BY provider, workspace")
	return all, err
}

// keyPlace checks that the provider exists and that the caller may see the workspace.
func keyPlace(ctx context.Context, provider, workspace string) (vault.Place, error) {
	if !slices.Contains(Providers, provider) {
		return vault.Place{},
			fault.New(fault.NotFound, "There is no provider %.40q. %s", provider, fault.DidYouMean(provider, Providers))
	}
	workspace, visible := wire.Within(ctx, workspace)
	if !visible {
		return vault.Place{}, fault.New(fault.NotFound, "There is no workspace %.80q.", workspace)
	}
	return vault.Place{Provider: provider, Workspace: workspace}, nil
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
		err = p.SetKey(ctx, by, at.Provider, at.Workspace, in.Key)
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
	err = p.writeKey(ctx, by, &keySet{Provider: at.Provider, For: at.Workspace}, func(tx *ledger.Tx) error {
		var n int
		err := tx.QueryRow("SELECT COUNT(*) FROM proxy_vault WHERE provider = $1 AND workspace = $2",
			[]any{at.Provider, at.Workspace}, &n)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "The vault has no such key of %s. `signalbox proxy key ls` lists those there are.",
				at.Provider)
		}
		return err
	})
	if err != nil {
		return ProviderKeys{}, err
	}
	return p.Keys(ctx)
}
