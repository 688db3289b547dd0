package hook

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// branchOf is the branch of git that a folder is on, "" if it is in no repository: what stands in HEAD of
// the repository that the folder, or one above it, belongs to. No program is run for it, since a repository
// can make git run programs of its own.
func branchOf(folder string) string {
	if !filepath.IsAbs(folder) {
		return ""
	}
	for {
		at := filepath.Join(folder, ".git")
		// In a worktree and in a submodule .git is a file that says where the rest is.
		if named, ok := strings.CutPrefix(readLine(at), "gitdir: "); ok {
			if at = named; !filepath.IsAbs(at) {
				at = filepath.Join(folder, named)
			}
		}
		if head := readLine(filepath.Join(at, "HEAD")); head != "" {
			branch, ok := strings.CutPrefix(head, "ref: refs/heads/")
			if !ok && len(head) >= 40 && strings.Trim(head, "0123456789abcdef") == "" {
				return "none, at the commit " + head
			}
			return map[bool]string{true: branch}[ok]
		}
		above := filepath.Dir(folder)
		if above == folder {
			return ""
		}
		folder = above
	}
}

// maxLine is how much of a file is read: more than git's longest name.
const maxLine = 4 << 10

// readLine is the first line of a file, "" if there is none. Anything but a file is left alone: a pipe of
// the agent's would let the hook wait until its CLI goes on without it.
func readLine(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, maxLine))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
