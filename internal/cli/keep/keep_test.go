package keep_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"signalbox/internal/cli/keep"
)

// ring is a keyring in memory. It may be one that takes what it does not give back, as in some containers.
type ring struct {
	texts map[string][]byte
	blind bool
}

func (r ring) Put(name string, text []byte, _ time.Duration) error { r.texts[name] = text; return nil }

func (r ring) Get(name string) ([]byte, error) {
	if text, ok := r.texts[name]; ok && !r.blind {
		return text, nil
	}
	return nil, errors.New("no such key")
}

func (r ring) Remove(name string) { delete(r.texts, name) }

func TestATokenIsKeptUntilItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		ring  keep.Keyring
		files int // with the token, beside the one with the server
	}{
		"a keyring":              {ring{texts: map[string][]byte{}}, 0},
		"none":                   {nil, 1},
		"one that gives nothing": {ring{texts: map[string][]byte{}, blind: true}, 1},
	} {
		k := &keep.Keeper{Folder: filepath.Join(t.TempDir(), "signalbox"), Keyring: c.ring}
		now := time.Now().UTC()
		token := keep.Token{Server: "http://one", Operator: "ann", Token: "sbx_op_x", ExpiresAt: now.Add(time.Hour)}
		if _, err := k.Put(token); err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(k.Folder, "token-*"))
		if len(files) != c.files {
			t.Errorf("%s: files %v", name, files)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", name, info.Mode(), err)
			}
		}
		if got, found := k.Get("http://one", now); !found || got.Token != "sbx_op_x" || k.Server() != "http://one" {
			t.Errorf("%s: %v %+v", name, found, got)
		}
		if _, found := k.Get("http://two", now); found {
			t.Errorf("%s: another server gets the token", name)
		}
		if _, found := k.Get("http://one", now.Add(time.Hour)); found {
			t.Errorf("%s: a token that has ended", name)
		}
		k.Remove("http://one")
		if _, found := k.Get("http://one", now); found || k.Server() != "" {
			t.Errorf("%s: it is not forgotten", name)
		}
	}
}
