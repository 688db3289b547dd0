// Package blob keeps the bytes of attachments, under names that the caller makes, in a
// folder or in a bucket of a store that speaks S3. It knows nothing of what they are: who may have
// them, and for how long, is
// decided by who keeps their names.
//
// What Put has returned for is on disk, or as safe as the bucket makes it. A name is written once;
// there is no changing.
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

// Store is a place for bytes.
type Store interface {
	// Put keeps what r gives, at most limit bytes. With an error, nothing is kept.
	Put(ctx context.Context, name string, r io.Reader, limit int64) (Stored, error)
	// Get opens what is kept under a name; fs.ErrNotExist when there is nothing.
	Get(ctx context.Context, name string) (io.ReadSeekCloser, error)
	// Remove removes what is kept under a name, if there is anything.
	Remove(ctx context.Context, name string) error
	// Before lists names that were written before a moment.
	Before(ctx context.Context, t time.Time) ([]string, error)
}

// Folder keeps bytes as files.
type Folder struct{ dir string }

// Open makes the folder if it is not there.
func Open(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot make the folder %s for attachments. Check that this user may write there.", dir)
	}
	return &Folder{dir}, nil
}

// nameForm keeps names from leaving the folder.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func (f *Folder) path(name string) (string, error) {
	if !nameForm.MatchString(name) {
		return "", badName(name)
	}
	return filepath.Join(f.dir, name), nil
}

func badName(name string) error { return fmt.Errorf("%q is not the name of a blob", name) }

// Stored says what Put has kept.
type Stored struct {
	Size   int64
	SHA256 string // in hex
}

// ErrTooLarge is what Put returns for more bytes than it may take.
var ErrTooLarge = errors.New("more bytes than were announced")

// Put keeps what r gives, at most limit bytes. With an error, nothing is kept.
func (f *Folder) Put(_ context.Context, name string, r io.Reader, limit int64) (Stored, error) {
	path, err := f.path(name)
	if err != nil {
		return Stored{}, err
	}
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
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = f.sync()
	}
	if err != nil {
		_ = os.Remove(path) // what is left of it is swept
		return Stored{}, err
	}
	return Stored{n, hex.EncodeToString(sum.Sum(nil))}, nil
}

// sync makes the names in the folder durable.
func (f *Folder) sync() error {
	dir, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}

// Get opens what is kept under a name; fs.ErrNotExist when there is nothing.
func (f *Folder) Get(_ context.Context, name string) (io.ReadSeekCloser, error) {
	path, err := f.path(name)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Remove removes what is kept under a name, if there is anything.
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

// Before lists names that were written before a moment.
func (f *Folder) Before(_ context.Context, t time.Time) ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if info.ModTime().Before(t) && nameForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Local is a file with what r has, from its beginning: r itself, or a copy that is gone with
// its end. r is closed with it.
func Local(r io.ReadSeekCloser) (*os.File, error) {
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
		_ = file.Close() // harmless where there is none
		return nil, err
	}
	return file, nil
}
