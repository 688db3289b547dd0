package proxy

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// vault holds the providers' keys. They are encrypted in the database, with a key that is
// not there; the ledger says who has set one, and neither the key nor what it was encrypted
// to.
type vault struct {
	db   *store.DB
	seal cipher.AEAD

	mu   sync.RWMutex
	keys map[place]wire.Secret
}

// place is whose key it is: of a workspace, or of those that have none, with "".
type place struct{ provider, workspace string }

func openVault(db *store.DB, key []byte) (*vault, error) {
	if len(key) < 32 {
		return nil, fault.New(fault.InvalidConfig, "The key of the vault has %d bytes; it should have at least 32 random ones.", len(key)).About("vault.key")
	}
	sum := sha256.Sum256(append([]byte("signalbox vault\x00"), key...))
	c, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCM(c)
	return &vault{db: db, seal: seal, keys: map[place]wire.Secret{}}, err
}

// close encrypts. The place is bound to it, so that nobody can put one key in another's.
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
	rows, err := v.db.Read.QueryContext(ctx, "SELECT provider, workspace, sealed FROM proxy_vault")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	keys := map[place]wire.Secret{}
	for rows.Next() {
		var at place
		var sealed []byte
		if err := rows.Scan(&at.provider, &at.workspace, &sealed); err != nil {
			return err
		}
		if key, err := v.open(at, sealed); err == nil {
			keys[at] = wire.NewSecret(key)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys = keys
	return nil
}

// find is the key that calls of a workspace use, "" when there is none.
func (v *vault) find(provider, workspace string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if key, ok := v.keys[place{provider, workspace}]; ok {
		return key.Reveal()
	}
	return v.keys[place{provider, ""}].Reveal()
}

// keySet is the body of the entry. What is sealed goes into the table with it, and not into
// the ledger.
type keySet struct {
	Provider string `json:"provider"`
	For      string `json:"for"` // a workspace, or "" for all that have none of their own
	Hint     string `json:"hint"`
	sealed   []byte
}

// applyKey puts a key into the vault, or takes it out. A rebuild does not know what was
// sealed, and the vault is none of its tables.
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

// SetKey puts a provider's key into the vault, or takes it out when it is "".
func (p *Proxy) SetKey(ctx context.Context, by roster.Identity, provider, workspace, key string) error {
	at := place{provider, workspace}
	b := &keySet{Provider: provider, For: workspace}
	if key != "" {
		b.Hint, b.sealed = hint(key), p.vault.close(at, key)
	}
	text, err := wire.Marshal(b)
	if err != nil {
		return err
	}
	err = p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: workspace, Kind: kindKey, Actor: by.Actor(), Subject: provider, Body: ledger.Body{Value: b, JSON: text}})
		return nil
	})
	if err != nil {
		return err
	}
	return p.vault.load(context.WithoutCancel(ctx))
}

// Adopt puts a key from the configuration into the vault, unless it is there already.
func (p *Proxy) Adopt(ctx context.Context, provider, key string) error {
	if err := p.vault.load(ctx); err != nil || key == "" || p.vault.find(provider, "") == key {
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

// ProviderKey is a key of the vault as it is listed.
type ProviderKey struct {
	Provider  string    `json:"provider"`
	Workspace string    `json:"workspace,omitempty"` // "" for all that have none of their own
	Hint      string    `json:"hint"`
	SetAt     time.Time `json:"set_at"`
	Readable  bool      `json:"readable"` // false when the vault was encrypted with another key
}

// ProviderKeys lists the vault.
type ProviderKeys struct {
	Keys []ProviderKey `json:"keys"`
}

// NewProviderKey is a key for the vault.
type NewProviderKey struct {
	Key       string `json:"key"`
	Workspace string `json:"workspace,omitempty"`
}

func (p *Proxy) listKeys(ctx context.Context) (all ProviderKeys, err error) {
	all.Keys = []ProviderKey{}
	rows, err := p.core.DB.Read.QueryContext(ctx, "SELECT provider, workspace, hint, set_at FROM proxy_vault ORDER BY provider, workspace")
	if err != nil {
		return all, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k ProviderKey
		var at int64
		if err := rows.Scan(&k.Provider, &k.Workspace, &k.Hint, &at); err != nil {
			return all, err
		}
		k.SetAt = time.UnixMicro(at).UTC()
		p.vault.mu.RLock()
		_, k.Readable = p.vault.keys[place{k.Provider, k.Workspace}]
		p.vault.mu.RUnlock()
		if scope := wire.Scope(ctx); scope == "" || k.Workspace == scope {
			all.Keys = append(all.Keys, k)
		}
	}
	return all, rows.Err()
}

func (p *Proxy) getKeys(w http.ResponseWriter, r *http.Request) error {
	all, err := p.listKeys(r.Context())
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, all)
}

// keyPlace is the place that a call names, which must be in what the caller may see.
func keyPlace(r *http.Request, workspace string) (place, error) {
	at := place{r.PathValue("provider"), workspace}
	if !slices.Contains(Providers, at.provider) {
		return at, fault.New(fault.NotFound, "There is no provider %.40q. %s", at.provider, fault.DidYouMean(at.provider, Providers))
	}
	scope := wire.Scope(r.Context())
	if at.workspace == "" {
		at.workspace = scope
	}
	if !wire.InScope(r.Context(), at.workspace) {
		return at, fault.New(fault.NotFound, "There is no workspace %.80q.", at.workspace)
	}
	return at, nil
}

func (p *Proxy) putKey(w http.ResponseWriter, r *http.Request) error {
	var in NewProviderKey
	if err := wire.ReadJSON(w, r, 1<<20, &in); err != nil {
		return err
	}
	at, err := keyPlace(r, in.Workspace)
	if err != nil {
		return err
	}
	in.Key = strings.TrimSpace(in.Key)
	if in.Key == "" || len(in.Key) > 4096 || strings.ContainsFunc(in.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fault.New(fault.InvalidPayload, "The key should be one word of printable characters, such as sk-ant-….").About("key")
	}
	if isAgentKey(in.Key) {
		return fault.New(fault.InvalidPayload, "This is a key of Signalbox. The vault takes the key that the provider has given you.").About("key")
	}
	if at.workspace != "" {
		known, err := p.knownWorkspace(r.Context(), at.workspace)
		if err != nil {
			return err
		}
		if !known {
			return fault.New(fault.NotFound, "There is no workspace %.80q.", at.workspace).About("workspace")
		}
	}
	if err := p.SetKey(r.Context(), roster.From(r.Context()), at.provider, at.workspace, in.Key); err != nil {
		return err
	}
	return p.getKeys(w, r)
}

func (p *Proxy) deleteKey(w http.ResponseWriter, r *http.Request) error {
	at, err := keyPlace(r, r.URL.Query().Get("workspace"))
	if err != nil {
		return err
	}
	var n int
	if err := p.core.DB.QueryRow(r.Context(), "SELECT COUNT(*) FROM proxy_vault WHERE provider = $1 AND workspace = $2", []any{at.provider, at.workspace}, &n); err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.NotFound, "The vault has no such key of %s. `signalbox proxy key ls` lists those there are.", at.provider)
	}
	if err := p.SetKey(r.Context(), roster.From(r.Context()), at.provider, at.workspace, ""); err != nil {
		return err
	}
	return p.getKeys(w, r)
}
