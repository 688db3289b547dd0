// Package blob stores the bytes of attachments under names that the caller makes, in a folder or in
// an S3 bucket. It knows nothing about them: who may read them, and for how long, is decided by
// whoever keeps the names.
//
// When Put returns without an error the bytes are durable: synced to disk, or accepted by the
// bucket. A name is written once and never changed; it is removed, or stays. A Store may be used from
// any goroutine, and by several nodes at once if it is a bucket.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"signalbox/internal/fault"
)

// Store is a place for blobs. Names have nameForm; others are errors.
//
// A store has no transactions: callers write bytes before the entry that names them, and remove them
// after the entry that ends them.
type Store interface {
	// Put stores the bytes of r, at most limit, under a name that is not in use. More bytes are
	// ErrTooLarge. With an error nothing is stored, or something that a sweep finds by Before.
	Put(ctx context.Context, name string, r io.Reader, limit int64) (Stored, error)
	// Get opens a blob for reading; fs.ErrNotExist if there is none. The caller closes it.
	Get(ctx context.Context, name string) (io.ReadSeekCloser, error)
	// Remove removes a blob. One that does not exist is no error.
	Remove(ctx context.Context, name string) error
	// Before lists the names of blobs that were written before a moment, for sweeps.
	Before(ctx context.Context, t time.Time) ([]string, error)
}

// Folder stores blobs as files of one folder.
type Folder struct{ dir string }

// Open opens a folder, and makes it if it does not exist.
func Open(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot make the folder %s for attachments. Check that this user may write there.", dir)
	}
	return &Folder{dir}, nil
}

// nameForm is the form of names: nothing that could leave the folder or need escaping in a URL.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// path is the file of a blob.
func (f *Folder) path(name string) (string, error) {
	if !nameForm.MatchString(name) {
		return "", badName(name)
	}
	return filepath.Join(f.dir, name), nil
}

func badName(name string) error { return fmt.Errorf("%q is not the name of a blob", name) }

// Stored describes the bytes that Put stored, counted and hashed while they were copied.
type Stored struct {
	Size   int64
	SHA256 string // in hex
}

// ErrTooLarge is the error of Put for more bytes than its limit.
var ErrTooLarge = errors.New("more bytes than were announced")

// Put implements Store. The file has its final name from the start: readers learn the name after Put
// returned, and a sweep removes what a crash leaves.
func (f *Folder) Put(_ context.Context, name string, r io.Reader, limit int64) (Stored, error) {
	path, err := f.path(name)
	if err != nil {
		return Stored{}, err
	}
	// O_EXCL: a name is written once.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Stored{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = ErrTooLarge
	}
	if err == nil {
		err = file.Sync()
	}
	// The first error counts; a file that cannot be closed may not be on disk.
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = f.sync()
	}
	if err != nil {
		_ = os.Remove(path) // a sweep removes what stays
		return Stored{}, err
	}
	return Stored{n, hex.EncodeToString(sum.Sum(nil))}, nil
}

// sync makes new names in the folder durable; syncing a file alone does not.
func (f *Folder) sync() error {
	dir, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}

// Get implements Store.
func (f *Folder) Get(_ context.Context, name string) (io.ReadSeekCloser, error) {
	path, err := f.path(name)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Remove implements Store.
func (f *Folder) Remove(_ context.Context, name string) error {
	path, err := f.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Before implements Store.
func (f *Folder) Before(_ context.Context, t time.Time) ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since ReadDir
		}
		if err != nil {
			return nil, err
		}
		// Files that are not ours are left alone.
		if info.ModTime().Before(t) && nameForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Local is an open file with the content of r: r itself if it is one, else a temporary copy that
// disappears when it is closed. It takes over r, which need not be closed. Scanners that read at any
// position need it; a bucket would answer every read with a call.
func Local(r io.ReadSeekCloser) (*os.File, error) {
	// A Folder's blob is a file already.
	if file, ok := r.(*os.File); ok {
		return file, nil
	}
	defer func() { _ = r.Close() }()
	file, err := temporary()
	if err == nil {
		_, err = io.Copy(file, r)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = file.Close() // file may be nil, which Close refuses harmlessly
		return nil, err
	}
	return file, nil
}
