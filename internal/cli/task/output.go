package task

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"signalbox/internal/cli/command"
)

// findKeep sets the folder of what commands write, unless one was named, to one in the user's cache.
func (w *worker) findKeep() error {
	if w.keep != "" {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return command.Usage("Say with --output where the output of commands is kept: this user has no cache folder.")
	}
	w.keep = filepath.Join(cache, "signalbox", "tasks")
	return nil
}

// keepOutput opens the file for what the command for a message writes. A message that is worked on again adds to it.
func (w *worker) keepOutput(taskID, msgID string) (*os.File, error) {
	folder := filepath.Join(w.keep, filepath.Base(taskID))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(folder, filepath.Base(msgID)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// lastBytes keeps the end of what a command writes to standard error, for the escalation. It is
// written by the command's pipe and read after its end.
type lastBytes struct {
	mu   sync.Mutex
	data []byte
}

// maxTail is how many bytes are kept.
const maxTail = 1000

func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	if len(l.data) > maxTail {
		l.data = slices.Clone(l.data[len(l.data)-maxTail:])
	}
	return len(p), nil
}

// text is what was kept, as valid UTF-8.
func (l *lastBytes) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(l.data), "?"))
}
