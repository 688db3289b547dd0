package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"signalbox/internal/fault"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/run"
)

// inbox is the folder, in that of a run, for what people send.
const inbox = "incoming"

// maxName is the longest name of a file, in bytes.
const maxName = 100

// receive stores the file of a message below the folder of a run, and returns its path there. The name has the number
// of the message, so that a second try writes the same file, and no file of the agent is replaced.
func (b *Bridge) receive(ctx context.Context, m message, dir string) (path string, err error) {
	if m.File.Size > telegram.MaxFile {
		return "", fault.New(fault.TooLarge, "The file has %d bytes; bots may take %d.", m.File.Size, int64(telegram.MaxFile))
	}
	content, err := b.Bot.Download(ctx, *m.File)
	if known := (*fault.Error)(nil); err != nil && !errors.As(err, &known) {
		err = fault.New(fault.Overloaded, "The file cannot be had from Telegram: %s", err.Error()) // tried again
	}
	if err != nil {
		return "", err
	}
	root, err := b.openFolder(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	path = inbox + "/" + fmt.Sprintf("%d-%s", m.Message, safeName(m.File.Name))
	if err := root.Mkdir(inbox, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", cannotStore(err)
	}
	// Through a name of its own: what an agent has put in its place, such as a link, is replaced and not followed.
	part := path + ".part"
	_ = root.Remove(part)
	f, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", cannotStore(err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(part, path)
	}
	if err != nil {
		return "", cannotStore(err)
	}
	return path, nil
}

func cannotStore(err error) error {
	return fault.Wrap(err, fault.InvalidRequest, "The file cannot be stored in the folder %s of the run. Nothing was started.", inbox)
}

// safeName is the name of a file without what could lead elsewhere, hide it or break a line: letters, digits, and . - _
// inside.
func safeName(name string) string {
	name = filepath.Base(strings.ReplaceAll(name, `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, name)
	if name = strings.TrimLeft(name, "._-"); len(name) > maxName {
		ending := filepath.Ext(name)
		ending = ending[:min(len(ending), maxName/4)]
		name = strings.ToValidUTF8(name[:maxName-len(ending)], "") + strings.ToValidUTF8(ending, "")
	}
	if name == "" {
		return "file"
	}
	return name
}

// sendFile sends a file of the folder in which the chat works.
func (b *Bridge) sendFile(ctx context.Context, m message, path string) error {
	if path == "" {
		return fault.New(fault.InvalidPayload, "Name a file, such as /file report.pdf")
	}
	last, err := b.before(ctx, m, false)
	if err != nil {
		return err
	}
	dir := last.Dir
	if folders := b.folders(); dir == "" && len(folders) > 0 {
		dir = folders[0]
	}
	f, err := b.openFile(dir, path)
	if err != nil {
		return err
	}
	_ = f.Close()
	return b.answer(ctx, m, "", false, post{Dir: dir, File: path})
}

// openFile opens a file of a folder of runs, which has no more than telegram.MaxFile. A link that leads out of the
// folder is not followed, and what is no file, such as a pipe, is not waited for.
func (b *Bridge) openFile(dir, path string) (f *os.File, err error) {
	root, err := b.openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	if inside, err := filepath.Rel(dir, path); err == nil && filepath.IsAbs(path) {
		path = inside
	}
	if f, err = root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "There is no file %.200q in %s.", path, dir)
	}
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = fault.New(fault.InvalidRequest, "%.200q is not a file.", path)
	case err == nil && info.Size() > telegram.MaxFile:
		err = fault.New(fault.TooLarge, "%.200q has %d bytes; the bot sends at most %d.", path, info.Size(), int64(telegram.MaxFile))
	case err == nil && info.Size() == 0:
		err = fault.New(fault.InvalidRequest, "%.200q is empty.", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// openFolder opens a folder in which runs may work, and no other.
func (b *Bridge) openFolder(dir string) (*os.Root, error) {
	resolved, within := run.Inside(dir, b.folders())
	if !within {
		return nil, fault.New(fault.Forbidden, "%.200q is not a folder of runs. runs.folders names them.", dir)
	}
	root, err := os.OpenRoot(resolved)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "The folder %.200q cannot be read.", dir)
	}
	return root, nil
}

// readFile reads a file that is to be sent.
func (b *Bridge) readFile(dir, path string) ([]byte, error) {
	f, err := b.openFile(dir, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, telegram.MaxFile))
}
