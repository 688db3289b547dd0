package sandbox

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

const (
	// maxCopy is the largest file that is copied; a larger one can be read as it is.
	maxCopy = 16 << 20
	// maxLogin is the largest file with a login.
	maxLogin = 1 << 20
)

// login is a file with a login, of which the box has a copy.
type login struct {
	file, copy string
	before     []byte
}

// folder are the arguments for a folder of the engine. What the agent may change of it is in own, but for what is kept.
func (b *Box) folder(f engine.Folder, own string) (args []string, err error) {
	info, err := os.Stat(f.Path)
	if os.IsNotExist(err) {
		if len(f.Keep) == 0 {
			return nil, nil // it has none
		}
		if err = os.MkdirAll(f.Path, 0o700); err == nil { // its first session is in the box
			info, err = os.Stat(f.Path)
		}
	}
	if err != nil {
		return nil, cannot(err, f.Path)
	}
	origin, err := filepath.EvalSymlinks(f.Path)
	if err != nil {
		return nil, cannot(err, f.Path)
	}
	whole := slices.Contains(f.Keep, ".")
	switch {
	case !info.IsDir():
		if _, err := copyFile(origin, own); err != nil {
			return nil, cannot(err, origin)
		}
		return []string{"--bind", own, f.Path}, nil
	case whole:
		args = append(args, "--bind", origin, f.Path)
	default:
		if args, err = b.copied(f, origin, own); err != nil {
			return nil, err
		}
	}
	for _, name := range f.Keep {
		b.kept = append(b.kept, filepath.Join(origin, name))
		if !whole {
			path := filepath.Join(origin, name)
			if err := os.MkdirAll(path, 0o700); err != nil {
				return nil, cannot(err, path)
			}
			args = append(args, "--bind", path, filepath.Join(f.Path, name))
		}
	}
	for _, name := range f.Read {
		path := filepath.Join(origin, name)
		if err := os.MkdirAll(path, 0o700); err != nil { // what is not there could be made
			return nil, cannot(err, path)
		}
		args = append(args, "--ro-bind", path, filepath.Join(f.Path, name))
	}
	for _, name := range f.Own {
		path := filepath.Join(own+"-own", name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, cannot(err, path)
		}
		args = append(args, "--bind", path, filepath.Join(f.Path, name))
	}
	for _, name := range f.Login {
		one := login{file: filepath.Join(origin, name), copy: filepath.Join(own, name)}
		if whole {
			// Beside its sessions the agent would make one where there is none.
			one.copy = own + "-" + name
			if _, err := os.Stat(one.file); os.IsNotExist(err) {
				_ = os.WriteFile(one.file, []byte("{}"), 0o600)
			}
			if _, err := copyFile(one.file, one.copy); err != nil {
				return nil, cannot(err, one.file)
			}
			args = append(args, "--bind", one.copy, filepath.Join(f.Path, name))
		}
		if one.before, err = os.ReadFile(one.file); err == nil {
			b.logins = append(b.logins, one)
		}
	}
	return args, nil
}

// copied are the arguments for a folder of which the box has a copy: files are copied, and folders can be read.
func (b *Box) copied(f engine.Folder, origin, own string) (args []string, err error) {
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, cannot(err, own)
	}
	args = []string{"--bind", own, f.Path}
	entries, err := os.ReadDir(origin)
	if err != nil {
		return nil, cannot(err, origin)
	}
	for _, one := range entries {
		if slices.Contains(f.Keep, one.Name()) {
			continue
		}
		path, err := filepath.EvalSymlinks(filepath.Join(origin, one.Name()))
		if err != nil {
			continue // a link that leads nowhere
		}
		copied := false
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() && !info.IsDir() {
			continue
		} else if info.Mode().IsRegular() {
			if copied, err = copyFile(path, filepath.Join(own, one.Name())); err != nil {
				return nil, cannot(err, path)
			}
		}
		if !copied {
			args = append(args, "--ro-bind", path, filepath.Join(f.Path, one.Name()))
		}
	}
	return args, nil
}

// copyFile copies a file unless it is too large.
func copyFile(from, to string) (done bool, err error) {
	in, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil || info.Size() > maxCopy {
		return false, err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm()|0o600)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(out, io.LimitReader(in, maxCopy))
	if e := out.Close(); err == nil {
		err = e
	}
	return err == nil, err
}

// carryBack puts a login that was renewed in the box in the place of the one that it has replaced. What the agent may have
// written there is taken for data alone: pi takes a key that begins with ! for a command, and opencode takes settings
// from a server that a login of the kind wellknown names.
func (l login) carryBack() {
	info, err := os.Lstat(l.copy) // nobody is left who could replace it
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxLogin {
		return
	}
	text, err := os.ReadFile(l.copy)
	if err != nil || bytes.Equal(text, l.before) || !isData(text) {
		return
	}
	if now, err := os.ReadFile(l.file); err != nil || !bytes.Equal(now, l.before) {
		return // somebody else has renewed it
	}
	temporary := l.file + ".signalbox"
	if os.WriteFile(temporary, text, 0o600) == nil {
		_ = os.Rename(temporary, l.file)
	}
}

// unlink removes the links out of a kept folder that were made in the box: outside, a CLI that writes to its session would
// write wherever they lead.
func (b *Box) unlink(folder string) {
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return nil //nolint:nilerr // what cannot be read is left as it is
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if to, err := filepath.EvalSymlinks(path); changed(info).Before(b.opened) || err == nil && within(to, folder) {
			return nil
		}
		return os.Remove(path)
	})
}

// changed is when a file was made or changed, which its owner cannot set.
func changed(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return time.Now()
}

// isData reports whether a file is a JSON object with no text that a CLI takes for more than that.
func isData(text []byte) bool {
	var v map[string]any
	return wire.Unmarshal(text, &v) == nil && harmless(v)
}

// harmless reports whether nothing in a value is a command, or leads to one.
func harmless(v any) bool {
	switch v := v.(type) {
	case string:
		v = strings.TrimSpace(v)
		return !strings.HasPrefix(v, "!") && v != "wellknown"
	case []any:
		return !slices.ContainsFunc(v, func(one any) bool { return !harmless(one) })
	case map[string]any:
		for _, one := range v {
			if !harmless(one) {
				return false
			}
		}
	}
	return true
}
