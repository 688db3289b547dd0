package task

import (
	"bytes"
	"context"
	"encoding/json" // the files of a mirror stay as they are laid out
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/task/git"
)

// Mirror writes every task into a git repository: one commit for each entry, with the task's file
// and the document. The ledger is the truth and this a copy that nothing reads back (TSK-34).
// Mirror is its only writer; what others change there is put back with the next commit.
type Mirror struct {
	ledger *ledger.Ledger
	dir    string
}

// NewMirror makes a mirror in a folder; with "" Run does nothing.
func NewMirror(l *ledger.Ledger, dir string) *Mirror { return &Mirror{l, dir} }

// mirrorBranch is the only branch of the mirror.
const mirrorBranch = "main"

// mirrorTrailer names the ledger entry in a commit's message. It is how the mirror knows where it
// stopped, without a cursor of its own that could disagree with the repository.
const mirrorTrailer = "Ledger-Entry: "

// Run follows the ledger until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	if m.dir == "" {
		return nil
	}
	return m.ledger.Consume(ctx, "task.mirror", IsStep, m.Write)
}

// Write commits the entries that are about tasks and are not in the mirror yet. It may be called
// with the same entries again: those up to the newest commit are skipped. All commits of a call go
// through one git fast-import, which is much faster than a commit each.
func (m *Mirror) Write(ctx context.Context, entries []ledger.Entry) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	last, begun, err := m.last(ctx)
	if err != nil {
		return err
	}
	var stream bytes.Buffer
	for i := range entries {
		e := &entries[i]
		// What the newest commit covers was written before a crash.
		if !IsStep(e.Kind) || e.Seq <= last {
			continue
		}
		if err := writeCommit(&stream, e, begun); err != nil {
			return err
		}
		begun = false // the ones that follow stand on the one before by themselves
	}
	if stream.Len() == 0 {
		return nil
	}
	if _, err := m.git(ctx, &stream, "fast-import", "--quiet", "--date-format=raw"); err != nil {
		return err
	}
	_, err = m.git(ctx, nil, "reset", "--quiet", "--hard", mirrorBranch)
	return err
}

// prepare makes the repository if it does not exist. The folder is readable by its owner only:
// tasks may quote secrets.
func (m *Mirror) prepare(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(m.dir, ".git")); err == nil {
		return nil
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot create the mirror folder.")
	}
	_, err := m.git(ctx, nil, "init", "--quiet", "--initial-branch="+mirrorBranch)
	return err
}

// last is the entry of the newest commit, and whether there is any commit. A newest commit of
// somebody else's is an error, since nobody can tell from where to go on.
func (m *Mirror) last(ctx context.Context) (seq int64, begun bool, err error) {
	if _, err := m.git(ctx, nil, "rev-parse", "--verify", "--quiet", "refs/heads/"+mirrorBranch); err != nil {
		return 0, false, nil //nolint:nilerr // nothing was committed yet
	}
	text, err := m.git(ctx, nil, "log", "-1", "--format=%B", mirrorBranch)
	if err != nil {
		return 0, false, err
	}
	_, number, ok := strings.Cut(text, mirrorTrailer)
	if !ok {
		return 0, false, fault.New(fault.Conflict,
			"The newest commit of the mirror in %s was not made by Signalbox. "+
				"Remove the folder, and it is written again from the ledger.", m.dir)
	}
	seq, err = strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	return seq, true, err
}

// writeCommit adds the commit of one entry to the stream for git fast-import. Lengths precede all
// data, so nothing in a document can break out of its file. Control characters and angle brackets
// are removed from the author, which has no length.
func writeCommit(to *bytes.Buffer, e *ledger.Entry, onBranch bool) error {
	var b recorded
	if err := e.Decode(&b); err != nil {
		return err
	}
	files := map[string][]byte{}
	if b.Task != nil {
		text, err := json.MarshalIndent(b.Task.Show(e.Workspace), "", "  ")
		if err != nil {
			return err
		}
		files[path.Join(e.Workspace, e.Subject+".json")] = append(text, '\n')
	}
	if b.Record != nil {
		files[path.Join(e.Workspace, e.Subject,
			fmt.Sprintf("%012d-%s.json", e.Seq, strings.ReplaceAll(e.Kind, ".", "-")))] = append(bytes.Clone(b.Record), '\n')
	}
	at := fmt.Sprintf("%d +0000", e.At.Unix())
	who := strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune("<>", r) {
			return -1
		}
		return r
	}, e.Actor)
	message := fmt.Sprintf("%s: %s\n\n%s%d\n", e.Subject, e.Kind, mirrorTrailer, e.Seq)
	_, _ = fmt.Fprintf(to, "commit refs/heads/%s\nauthor %s <%s@signalbox.invalid> %s\n"+
		"committer Signalbox <signalbox@signalbox.invalid> %s\ndata %d\n%s", mirrorBranch, who,
		strings.ReplaceAll(who, " ", "."), at, at, len(message), message)
	if onBranch {
		_, _ = fmt.Fprintf(to, "from refs/heads/%s^0\n", mirrorBranch)
	}
	for name, text := range files {
		_, _ = fmt.Fprintf(to, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
	}
	return nil
}

// mirrorTime is how long one git command on the mirror may take.
const mirrorTime = 8 * time.Second

// git runs git on the mirror, without hooks and without anybody's configuration.
func (m *Mirror) git(ctx context.Context, in *bytes.Buffer, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, mirrorTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git",
		append([]string{
			"-C", m.dir, "-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "gc.auto=0",
			"-c", "safe.directory=*",
		}, args...)...)
	cmd.Env = git.Environment()
	if in != nil {
		cmd.Stdin = in
	}
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s on the mirror: %w: %.200s", args[0], err, wrong.String())
	}
	return strings.TrimSpace(string(out)), nil
}
