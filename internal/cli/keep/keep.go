// Package keep keeps the token of a terminal that has signed in (`signalbox login --cli`): in the keyring that the kernel
// has for the user, where no file has it and it ends by itself, or in a file that only the user can
// read, where there is no keyring. It also remembers which server that was, for commands that are not told.
//
// It keeps programs of other users out, and none of the user's own: those can read what the user can.
package keep

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/wire"
)

// Token is an operator's token at a server, until a moment.
type Token struct {
	Server    string    `json:"server"`
	Operator  string    `json:"operator"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Keeper keeps tokens below a folder, and in a keyring if it has one.
type Keeper struct {
	Folder  string
	Keyring Keyring // nil for none
}

// Keyring keeps texts by name.
type Keyring interface {
	Put(name string, text []byte, life time.Duration) error
	Get(name string) ([]byte, error)
	Remove(name string)
}

// New is the keeper of this user.
func New() (*Keeper, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "There is no folder for settings of this user. Set HOME or XDG_CONFIG_HOME.")
	}
	return &Keeper{filepath.Join(dir, "signalbox"), kernel{}}, nil
}

// serverFile has the address of the server where this user signed in last.
const serverFile = "server"

// name is under which name a server's token is kept.
func name(server string) string { return "signalbox:" + server }

// file is the file of a server's token.
func (k *Keeper) file(server string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(k.Folder, "token-"+hex.EncodeToString(sum[:8]))
}

// Put keeps a token and says where: "the kernel's keyring", or the path of a file.
func (k *Keeper) Put(t Token) (where string, err error) {
	text, err := wire.Marshal(t)
	if err != nil {
		return "", err
	}
	if err := k.write(filepath.Join(k.Folder, serverFile), []byte(t.Server+"\n")); err != nil {
		return "", err
	}
	if k.Keyring != nil && k.Keyring.Put(name(t.Server), text, time.Until(t.ExpiresAt)) == nil {
		// Some containers let a key be put and not be read.
		if back, err := k.Keyring.Get(name(t.Server)); err == nil && bytes.Equal(back, text) {
			_ = os.Remove(k.file(t.Server))
			return "the kernel's keyring", nil
		}
		k.Keyring.Remove(name(t.Server))
	}
	return k.file(t.Server), k.write(k.file(t.Server), text)
}

// write writes a file that only this user can read.
func (k *Keeper) write(path string, text []byte) error {
	err := os.MkdirAll(k.Folder, 0o700)
	if err == nil {
		err = file.Replace(path, text, 0o600)
	}
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that this user may write there.", path)
	}
	return nil
}

// Get is the token for a server; false if there is none, or it has ended.
func (k *Keeper) Get(server string, now time.Time) (t Token, found bool) {
	var text []byte
	err := os.ErrNotExist
	if k.Keyring != nil {
		text, err = k.Keyring.Get(name(server))
	}
	if err != nil {
		text, err = os.ReadFile(k.file(server))
	}
	if err != nil || wire.Unmarshal(text, &t) != nil || t.Server != server || !now.Before(t.ExpiresAt) {
		return Token{}, false
	}
	return t, true
}

// Server is the address of the server where this user signed in last, "" for none.
func (k *Keeper) Server() string {
	text, err := os.ReadFile(filepath.Join(k.Folder, serverFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Remove forgets the token of a server, and the server.
func (k *Keeper) Remove(server string) {
	if k.Keyring != nil {
		k.Keyring.Remove(name(server))
	}
	_ = os.Remove(k.file(server))
	if k.Server() == server {
		_ = os.Remove(filepath.Join(k.Folder, serverFile))
	}
}
