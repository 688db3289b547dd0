package git

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the names of git's objects are SHA-1
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Commit is the full hash of a commit that is named by its hash or the beginning of it, "" if there is none.
// --end-of-options keeps a name from being read as an option; a branch whose name looks like a hash is not meant.
func (r *Repository) Commit(ctx context.Context, name string) (string, error) {
	hash, ok, err := r.run(ctx, "", "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	hash = strings.TrimSpace(hash)
	if err != nil || !ok || name != "HEAD" && !strings.HasPrefix(hash, strings.ToLower(name)) {
		return "", err
	}
	return hash, nil
}

// Refs are the commits that refs point to, by their full names such as refs/heads/main. Those that do not exist are
// left out. A ref that is a symbolic link in the file system would be one of another repository, so it is refused.
func (r *Repository) Refs(ctx context.Context, names ...string) (map[string]string, error) {
	for _, name := range names {
		for at := name; at != "." && at != "/"; at = filepath.Dir(at) {
			info, err := os.Lstat(filepath.Join(r.dir, at))
			if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
				return nil, UnfitError(at + " is a symbolic link, or something else that it should not be")
			}
		}
	}
	list := []string{"for-each-ref", "--format=%(refname) %(objectname)", "--"}
	out, ok, err := r.run(ctx, "", append(list, names...)...)
	if err == nil && !ok {
		err = UnfitError("git cannot read its refs")
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		name, hash, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(names, name) { // a pattern finds what is below it, too
			found[name] = hash
		}
	}
	return found, err
}

// DefaultBranch is the branch that the repository itself protects: the default branch of its
// origin, or HEAD of a bare repository. HEAD of a working folder is just what is checked out, and
// says nothing; then the answer is "".
func (r *Repository) DefaultBranch(ctx context.Context) (string, error) {
	name, ok, err := r.run(ctx, "", "symbolic-ref", "--quiet", "refs/remotes/origin/HEAD")
	if err != nil {
		return "", err
	}
	if ok {
		return strings.TrimPrefix(strings.TrimSpace(name), "refs/remotes/origin/"), nil
	}
	if bare, ok, err := r.run(ctx, "", "rev-parse", "--is-bare-repository"); err != nil || !ok ||
		strings.TrimSpace(bare) != "true" {
		return "", err
	}
	return r.CheckedOut(ctx)
}

// CheckedOut is the branch that HEAD points to, "" if it points to none.
func (r *Repository) CheckedOut(ctx context.Context) (string, error) {
	name, _, err := r.run(ctx, "", "symbolic-ref", "--quiet", "HEAD")
	return strings.TrimPrefix(strings.TrimSpace(name), "refs/heads/"), err
}

// Contains reports whether ancestor is reachable from the commit of, or is the same.
func (r *Repository) Contains(ctx context.Context, of, ancestor string) (bool, error) {
	_, ok, err := r.run(ctx, "", "merge-base", "--is-ancestor", ancestor, of)
	return ok, err
}

// HasNew reports whether a commit leads to commits that none of the others lead to. Those of the others that do not
// exist count for nothing.
func (r *Repository) HasNew(ctx context.Context, commit string, others ...string) (bool, error) {
	args := []string{"rev-list", "--max-count=1", "--ignore-missing", commit, "--not"}
	out, ok, err := r.run(ctx, "", append(args, others...)...)
	return !ok || out != "", err
}

// maxHistory is how many commits there may be between two that are compared.
const maxHistory = 5000

// Step is one commit of a history.
type Step struct {
	Hash    string
	Parents []string
	Author  string // as in: Kay <kay@example.com>
}

// History are the commits that head leads to and base does not, the newest first, and whether head descends from
// base. Each is read and hashed here: what says that a commit has these parents is the commit's own hash, so no file
// beside the commits can have one look like the descendant of another.
func (r *Repository) History(ctx context.Context, base, head string) (list []Step, descends bool, err error) {
	out, ok, err := r.run(ctx, "", "rev-list", fmt.Sprintf("--max-count=%d", maxHistory+1), head, "--not", base)
	if err != nil {
		return nil, false, err
	}
	names := strings.Fields(out)
	if !ok || len(names) > maxHistory {
		return nil, false, UnfitError(fmt.Sprintf("its history is broken, or has more than %d commits since the work began",
			maxHistory))
	}
	raw, ok, err := r.run(ctx, out, "cat-file", "--batch")
	if err != nil {
		return nil, false, err
	}
	parents := map[string][]string{}
	for rest := []byte(raw); len(names) > 0; names = names[1:] {
		var text []byte
		if text, rest = cutObject(rest, names[0]); text == nil || !ok {
			return nil, false, UnfitError("a commit of it is not what its hash says")
		}
		one := readStep(names[0], text)
		list, parents[one.Hash] = append(list, one), one.Parents
	}
	seen := map[string]bool{}
	for next := []string{head}; len(next) > 0; next = next[1:] {
		if next[0] == base {
			return list, true, nil
		}
		if !seen[next[0]] {
			seen[next[0]] = true
			next = append(next, parents[next[0]]...)
		}
	}
	return list, false, nil
}

// cutObject cuts the first object from the output of cat-file --batch, which has to be the commit of that hash. It is
// nil if it is something else.
func cutObject(out []byte, hash string) (text, rest []byte) {
	line, rest, _ := bytes.Cut(out, []byte("\n"))
	size, err := strconv.Atoi(strings.TrimPrefix(string(line), hash+" commit "))
	if err != nil || size < 0 || size >= len(rest) {
		return nil, nil
	}
	text = rest[:size]
	whole := append(fmt.Appendf(nil, "commit %d\x00", size), text...)
	var sum []byte
	if len(hash) == hex.EncodedLen(sha256.Size) {
		is := sha256.Sum256(whole)
		sum = is[:]
	} else {
		is := sha1.Sum(whole) //nolint:gosec // as above
		sum = is[:]
	}
	if hex.EncodeToString(sum) != hash {
		return nil, nil
	}
	return text, rest[size+1:]
}

// readStep reads the head of a commit.
func readStep(hash string, text []byte) Step {
	s := Step{Hash: hash}
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch name {
		case "":
			return s
		case "parent":
			s.Parents = append(s.Parents, value)
		case "author":
			if end := strings.LastIndexByte(value, '>'); end >= 0 {
				s.Author = value[:end+1]
			}
		}
	}
	return s
}

// Change is what a diff does to a file, in lines.
type Change struct {
	Added, Removed int64
	New, Deleted   bool
	Opaque         bool // it is no text, or its mode or kind has changed: lines do not say what was done to it
}

// Diff is what changed between two commits, by file. Renames count as a deletion and an addition,
// so that the numbers do not depend on a heuristic. Files that are not text count as 0 lines.
func (r *Repository) Diff(ctx context.Context, from, to string) (map[string]Change, error) {
	out, ok, err := r.run(ctx, "", "diff-tree", "-r", "--raw", "--numstat", "-z", "--no-renames", "--no-ext-diff",
		"--no-textconv", "--no-color", "--no-abbrev", "--ignore-submodules=none", from, to, "--")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, UnfitError("git cannot compare the commits")
	}
	files := map[string]Change{}
	records := strings.Split(out, "\x00")
	for i := 0; i < len(records); i++ {
		// :100644 100644 HASH HASH M and the name as the next record, for each file; then 1<tab>0<tab>NAME for each.
		if modes := strings.Fields(records[i]); strings.HasPrefix(records[i], ":") && len(modes) == 5 && i+1 < len(records) {
			before, after := modes[0][1:], modes[1]
			c := Change{New: before == "000000", Deleted: after == "000000"}
			// A link, a submodule, or a file that became executable or another kind of thing.
			c.Opaque = !c.New && !c.Deleted && before != after || !strings.HasPrefix(max(before, after), "100")
			files[records[i+1]] = c
			i++
			continue
		}
		parts := strings.SplitN(records[i], "\t", 3)
		if len(parts) != 3 {
			continue
		}
		c := files[parts[2]]
		c.Added, _ = strconv.ParseInt(parts[0], 10, 64) // "-" for what is not text
		c.Removed, _ = strconv.ParseInt(parts[1], 10, 64)
		c.Opaque = c.Opaque || parts[0] == "-"
		files[parts[2]] = c
	}
	return files, nil
}
