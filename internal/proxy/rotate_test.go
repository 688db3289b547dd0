package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/proxy"
	"signalbox/internal/proxy/vault"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// rotateVault calls POST /ops/proxy/rotate.
func (n *node) rotateVault() error {
	n.T.Helper()
	for _, route := range n.proxy.Routes() {
		if route.Path == "/ops/proxy/rotate" {
			r := httptest.NewRequestWithContext(n.T.Context(), http.MethodPost, route.Path, http.NoBody)
			return route.Handle(httptest.NewRecorder(), r)
		}
	}
	n.T.Fatal("there is no such call")
	return nil
}

// sealed is the rows of the vault.
func (n *node) sealed() string {
	n.T.Helper()
	must := func(err error) {
		if err != nil {
			n.T.Fatal(err)
		}
	}
	rows, err := n.DB.Read.QueryContext(n.T.Context(), "SELECT sealed FROM proxy_vault ORDER BY provider, workspace")
	must(err)
	defer func() { _ = rows.Close() }()
	var all strings.Builder
	for rows.Next() {
		var one []byte
		must(rows.Scan(&one))
		all.Write(one)
	}
	must(rows.Err())
	return all.String()
}

func TestTheVaultGetsAnotherKeyAndLosesNone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		name := filepath.Join(t.TempDir(), "vault.key")
		next := name + ".next"
		old := strings.Repeat("k", 32)
		testbed.Write(t, name, old+"\n")
		file := func(o *proxy.Options) { o.VaultFile = name }
		n := start(t, address, file)
		// has reports whether a key of the vault reads its rows.
		has := func(key []byte) bool {
			t.Helper()
			v, err := vault.Open(n.DB, name, []byte(strings.TrimSpace(string(key))))
			must(err)
			must(v.Load(t.Context()))
			return v.KeyFor(proxy.Anthropic, "") == theirKey && v.KeyFor(proxy.OpenAI, "") == theirKey
		}
		before := n.sealed()
		if !has([]byte(old)) {
			t.Fatal("the vault cannot be read to begin with")
		}
		// Killed before the entry was committed: the next start drops the key.
		testbed.Write(t, next, strings.Repeat("n", 32)+"\n")
		must(vault.Settle(t.Context(), n.Core.Ledger, name))
		if _, err := os.Stat(next); !os.IsNotExist(err) || string(testbed.Read(t, name)) != old+"\n" {
			t.Errorf("a key whose entry was never written is kept: %v", err)
		}
		must(n.rotateVault())
		fresh := testbed.Read(t, name)
		if has([]byte(old)) || !has(fresh) || n.sealed() == before {
			t.Error("the rows are not encrypted with the new key alone")
		}
		keys, err := n.proxy.Keys(t.Context())
		must(err)
		for _, k := range keys.Keys {
			if !k.Readable {
				t.Errorf("the key of %s cannot be read", k.Provider)
			}
		}
		// Killed after it was committed: the next start takes the key.
		testbed.Write(t, name, old+"\n")
		testbed.Write(t, next, fresh)
		must(vault.Settle(t.Context(), n.Core.Ledger, name))
		if got := testbed.Read(t, name); string(got) != string(fresh) {
			t.Errorf("the key is %q", got)
		}
		// A node with the old key must not encrypt what nobody else can read.
		stale, err := proxy.New(n.Core, proxy.Options{
			VaultKey: []byte(old), VaultFile: filepath.Join(t.TempDir(), "vault.key"),
			Upstreams: map[string]string{proxy.Anthropic: n.provider.URL, proxy.OpenAI: n.provider.URL},
		})
		must(err)
		after := n.sealed()
		err = stale.SetKey(t.Context(), roster.Identity{}, proxy.Anthropic, "", "sk-another-key-of-the-provider")
		if !fault.Is(err, fault.Conflict) || n.sealed() != after {
			t.Errorf("a node with the old key has set one: %v", err)
		}
		// A row that cannot be read stops it, and nothing is changed.
		must(n.rotateVault())
		now := testbed.Read(t, name)
		must(n.DB.Bookkeep(t.Context(), "ledger_tree", func(tx *store.Tx) error {
			tx.Exec("UPDATE proxy_vault SET sealed = $1 WHERE provider = $2", []byte("what nobody can read"), proxy.OpenAI)
			return nil
		}))
		if err := n.rotateVault(); !fault.Is(err, fault.Conflict) || string(testbed.Read(t, name)) != string(now) {
			t.Errorf("a row that cannot be read: %v", err)
		}
		if _, err := os.Stat(next); !os.IsNotExist(err) {
			t.Errorf("a key that nothing is encrypted with is left: %v", err)
		}
	})
}
