package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"signalbox/internal/blob"
	"signalbox/internal/fault"
	"signalbox/internal/file"
)

// Place is where backups of one ledger are: a folder, or a bucket of S3, which has nothing else in it.
type Place struct {
	blob.Store
	folder string // "" for a bucket
	name   string // as it was given
}

// bucketScheme begins the name of a bucket.
const bucketScheme = "s3://"

// Open opens a place: the path of a folder, or s3:// and the name of a bucket, which s3 has the address and the keys of. A
// folder is made if it does not exist, or else is an error.
func Open(ctx context.Context, name string, s3 blob.S3, create bool) (*Place, error) {
	if bucket, ok := strings.CutPrefix(name, bucketScheme); ok {
		s3.Bucket = strings.TrimSuffix(bucket, "/")
		if s3.Bucket == "" || strings.Contains(s3.Bucket, "/") || s3.Endpoint == "" {
			return nil, fault.New(fault.InvalidRequest,
				"%q should be s3:// and the name of a bucket for backups alone, such as s3://signalbox-backups, and "+
					"backup.s3.endpoint the address of the store.", name)
		}
		store, err := blob.OpenBucket(ctx, s3)
		if err != nil {
			return nil, fault.Wrap(err, fault.StoreUnavailable,
				"The bucket %s for backups cannot be read. It has to exist; check backup.s3.endpoint, backup.s3.region, "+
					"backup.s3.access_key and backup.s3.secret_key.", s3.Bucket)
		}
		return &Place{store, "", name}, nil
	}
	if name == "" || strings.Contains(name, "://") {
		return nil, fault.New(fault.InvalidRequest,
			"%q should be a folder, such as /mnt/backup/signalbox, or a bucket, such as s3://signalbox-backups.", name)
	}
	if _, err := os.Stat(name); err != nil && !create {
		return nil, fault.Wrap(err, fault.NotFound, "There is no folder %s with backups, or this user may not read it.", name)
	}
	store, err := blob.Open(name)
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot make the folder %s for backups. Check that this user may write there.", name)
	}
	return &Place{store, name, name}, nil
}

// read reads something whole.
func (p *Place) read(ctx context.Context, name string) ([]byte, error) {
	r, err := p.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(err, fault.VerificationFailed, "%s is missing from the backup at %s.", name, p.name)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreUnavailable, "Cannot read %s at %s.", name, p.name)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fault.Wrap(err, fault.StoreUnavailable, "Cannot read %s at %s.", name, p.name)
	}
	return data, nil
}

// create writes something whole or not at all, if nothing has its name.
func (p *Place) create(ctx context.Context, name string, data []byte) error {
	if p.folder != "" {
		return file.Create(filepath.Join(p.folder, name), data, 0o600)
	}
	return p.write(ctx, name, data)
}
