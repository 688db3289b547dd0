package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// file appends lines to a file, and begins another one when it is full. The old one gets the number of its last entry
// behind its name; nothing is ever removed. Somebody may move the file away; then another one is made.
type file struct {
	path string
	full int64
	f    *os.File
	size int64
	last int64 // the last entry that this process has written
}

// send writes a batch and syncs it. After an error the file is as long as it was.
func (f *file) send(_ context.Context, b batch) error {
	if err := f.ready(b.first); err != nil {
		return err
	}
	text := append(bytes.Join(b.lines, []byte("\n")), '\n')
	n, err := f.f.Write(text)
	if err == nil {
		err = f.f.Sync()
	}
	if err != nil {
		err = errors.Join(err, f.f.Truncate(f.size))
		f.close()
		return fmt.Errorf("write to %s: %w", f.path, err)
	}
	f.size, f.last = f.size+int64(n), b.last
	return nil
}

// ready opens the file if it is not open, was moved away, or is full.
func (f *file) ready(first int64) error {
	if f.f != nil {
		ours, err := f.f.Stat()
		there, gone := os.Stat(f.path)
		if err != nil || gone != nil || !os.SameFile(ours, there) {
			f.close()
		}
	}
	if f.f == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if f.size < f.full || f.size == 0 {
		return nil
	}
	f.close()
	if err := f.putAway(max(f.last, first-1)); err != nil {
		return fmt.Errorf("begin another file at %s: %w", f.path, err)
	}
	return f.open()
}

// open opens the file and takes back what a crash has left of a line: the entry is sent again.
func (f *file) open() error {
	opened, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	whole, err := wholeLines(opened)
	if err == nil {
		err = errors.Join(opened.Truncate(whole), syncFolder(f.path))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open %s: %w", f.path, err), opened.Close())
	}
	f.f, f.size = opened, whole
	return nil
}

// close closes the file.
func (f *file) close() {
	if f.f != nil {
		_ = f.f.Close()
		f.f = nil
	}
}

// putAway renames the file, and replaces none.
func (f *file) putAway(last int64) error {
	name := fmt.Sprintf("%s.%012d", f.path, last)
	for i := 1; ; i++ {
		err := os.Link(f.path, name)
		if err == nil {
			return errors.Join(os.Remove(f.path), syncFolder(f.path))
		}
		if !errors.Is(err, os.ErrExist) {
			return err
		}
		name = fmt.Sprintf("%s.%012d-%d", f.path, last, i)
	}
}

// wholeLines is how much of a file is whole lines, in bytes.
func wholeLines(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	buffer := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		from := max(0, end-int64(len(buffer)))
		n, err := f.ReadAt(buffer[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if at := bytes.LastIndexByte(buffer[:n], '\n'); at >= 0 {
			return from + int64(at) + 1, nil
		}
		end = from
	}
	return 0, nil
}

// syncFolder makes the name of a file durable.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
