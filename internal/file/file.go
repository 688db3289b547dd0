// Package file writes files whole or not at all: whoever reads one, after a crash too, finds the old content or the new
// one, never a part of it. It knows nothing of what the files hold. The errors of writing are those of the file system, for
// callers to say what was to be written. State is where the programs of a user keep what lasts.
package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file, in the place of one that may be there. When it returns, content and name are on disk.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, os.Rename)
}

// Create writes a file that must not be there. If it is, also if another process creates it at the same moment, the error
// is fs.ErrExist.
func Create(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, os.Link)
}

// write writes a temporary file and moves it to its place.
func write(path string, content []byte, mode fs.FileMode, move func(from, to string) error) error {
	// In the same folder, since files are moved within one file system only. Programs that list the folder pass over names
	// that begin with a dot.
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // which fails once it was moved
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := move(f.Name(), path); err != nil {
		return err
	}
	// Syncing the file does not make its name durable.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
