package backup

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"regexp"
	"strings"

	"filippo.io/age"

	"signalbox/internal/blob"
	"signalbox/internal/fault"
)

// Object is something that was written to a place: encrypted, and known by its digest.
type Object struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of what is stored, in hex
}

// write writes what is complete under a name that is not in use.
func (p *Place) write(ctx context.Context, name string, data []byte) error {
	_, err := p.Put(ctx, name, bytes.NewReader(data), int64(len(data)))
	return err
}

// seal writes a new object of a kind. Its name is drawn, so that two backups at once cannot meet.
func (p *Place) seal(ctx context.Context, kind string, to []age.Recipient, plain []byte) (Object, error) {
	var sealed bytes.Buffer
	encrypted, err := age.Encrypt(&sealed, to...)
	if err != nil {
		return Object{}, err
	}
	zipped := gzip.NewWriter(encrypted)
	_, err = zipped.Write(plain)
	if err := errors.Join(err, zipped.Close(), encrypted.Close()); err != nil {
		return Object{}, err
	}
	sum := sha256.Sum256(sealed.Bytes())
	o := Object{kind + "-" + strings.ToLower(rand.Text()), int64(sealed.Len()), hex.EncodeToString(sum[:])}
	if err := p.write(ctx, o.Name, sealed.Bytes()); err != nil {
		return Object{}, fault.Wrap(err, fault.StoreUnavailable,
			"Cannot write to %s. Check that it is there, that this user may write to it, and that it has room.", p.name)
	}
	return o, nil
}

// open reads an object. The digest is compared before a byte of it is believed.
func (p *Place) open(ctx context.Context, o Object, who []age.Identity) ([]byte, error) {
	sealed, err := p.read(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(sealed); hex.EncodeToString(sum[:]) != o.SHA256 {
		return nil, fault.New(fault.VerificationFailed, "%s at %s is not what was written there: it was changed or damaged.",
			o.Name, p.name)
	}
	decrypted, err := age.Decrypt(bytes.NewReader(sealed), who...)
	if err != nil {
		return nil, fault.Wrap(err, fault.VerificationFailed,
			"%s at %s cannot be decrypted. Give the identity of one of the backup's recipients with --identity.", o.Name, p.name)
	}
	zipped, err := gzip.NewReader(decrypted)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(zipped)
}

// objectForm is the form of an object's name; a place may hold other things, which are left alone.
var objectForm = regexp.MustCompile(`^(entries|notes|blob|state)-[a-z2-7]{26}$`)

func isObject(name string) bool { return objectForm.MatchString(name) }

// readBlob reads an attachment whole.
func readBlob(ctx context.Context, from blob.Store, name string) ([]byte, error) {
	r, err := from.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}
