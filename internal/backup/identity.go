package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/wire"
)

// NewIdentity writes a new identity of age to a file that must not be there, and returns its recipient.
func NewIdentity(path string) (recipient string, err error) {
	one, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	recipient = one.Recipient().String()
	return recipient, createFile(path, []byte("# public key: "+recipient+"\n"+one.String()+"\n"))
}

// createFile writes a file for its owner alone.
func createFile(path string, content []byte) error {
	err := file.Create(path, content, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.Wrap(err, fault.Conflict, "%s is there already, and is not overwritten. Choose another name.", path)
	}
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that its folder exists, and that this user may.",
			path)
	}
	return nil
}

// Recipients reads those for whom a backup is encrypted.
func Recipients(texts []string) ([]age.Recipient, error) {
	if len(texts) == 0 {
		return nil, fault.New(fault.InvalidRequest,
			"Name for whom the backup is encrypted, with --recipient age1… or backup.recipients. `signalbox backup identity` "+
				"makes an identity and prints its recipient.")
	}
	all, err := age.ParseRecipients(strings.NewReader(strings.Join(texts, "\n")))
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidRequest,
			"A recipient should be a public key of age, which begins with age1. An identity, which begins with AGE-SECRET-KEY, "+
				"is for restoring alone.")
	}
	return all, nil
}

// Identities reads files with identities of age. One that is encrypted with a passphrase, as `age -p` does, needs it.
func Identities(paths []string, passphrase string) (all []age.Identity, err error) {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fault.Wrap(err, fault.NotFound, "Cannot read the identity %s. Check that it is there.", path)
		}
		r := bufio.NewReader(bytes.NewReader(text))
		var encrypted io.Reader
		switch begin, _ := r.Peek(len(armor.Header)); {
		case string(begin) == armor.Header:
			encrypted = armor.NewReader(r)
		case strings.HasPrefix(string(begin), "age-encryption.org/"):
			encrypted = r
		}
		var plain io.Reader = r
		if encrypted != nil {
			key, err := age.NewScryptIdentity(passphrase)
			if err == nil {
				plain, err = age.Decrypt(encrypted, key)
			}
			if err != nil {
				return nil, fault.Wrap(err, fault.InvalidRequest,
					"The identity %s is encrypted. Give its passphrase in a file, with --passphrase-file.", path)
			}
		}
		found, err := age.ParseIdentities(plain)
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidRequest,
				"%s has no identity of age, which is a line that begins with AGE-SECRET-KEY.", path)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fault.New(fault.InvalidRequest, "Say with --identity which file has the identity of a recipient.")
	}
	return all, nil
}

// SaveKeys writes the keys of a data folder to one file, encrypted for recipients: what signs the ledger, and what seals
// webhooks and the providers' keys. It is kept apart from the backups, so that no one place has both.
func SaveKeys(dir, path string, to []age.Recipient) (names []string, err error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.key"))
	if err != nil {
		return nil, err
	}
	keys := map[string][]byte{}
	for _, name := range found {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot read %s. Check that this user may.", name)
		}
		keys[filepath.Base(name)] = text
		names = append(names, filepath.Base(name))
	}
	if len(keys) == 0 {
		return nil, fault.New(fault.NotFound, "There are no keys in %s. Say with --data where the data folder is.", dir)
	}
	plain, err := wire.Marshal(keys)
	if err != nil {
		return nil, err
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, to...)
	if err == nil {
		_, err = w.Write(plain)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil, err
	}
	return names, createFile(path, sealed.Bytes())
}

// LoadKeys puts the keys of a file into a data folder. A key that is there and is another is an error.
func LoadKeys(path, dir string, who []age.Identity) error {
	sealed, err := os.ReadFile(path)
	if err != nil {
		return fault.Wrap(err, fault.NotFound, "Cannot read the keys in %s. Check that it is there.", path)
	}
	keys := map[string][]byte{}
	r, err := age.Decrypt(bytes.NewReader(sealed), who...)
	if err == nil {
		var plain []byte
		if plain, err = io.ReadAll(r); err == nil {
			err = wire.UnmarshalPart(plain, &keys)
		}
	}
	if err != nil {
		return fault.Wrap(err, fault.VerificationFailed,
			"The keys in %s cannot be decrypted. Give the identity of one of their recipients with --identity.", path)
	}
	for name, text := range keys {
		if filepath.Base(name) != name || filepath.Ext(name) != ".key" {
			return fault.New(fault.VerificationFailed, "%s names a file %q, which is no key.", path, name)
		}
		at := filepath.Join(dir, name)
		there, err := os.ReadFile(at)
		if err == nil && slices.Equal(there, text) {
			continue
		}
		if err == nil {
			return fault.New(fault.Conflict, "%s is there already, and is another key. Restore into an empty folder.", at)
		}
		if err := createFile(at, text); err != nil {
			return fmt.Errorf("put a key back: %w", err)
		}
	}
	return nil
}
