package task

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
)

// Diff is the work on a task, as git has it: from the commit where the work began to the one that is pinned for the
// review, or else to where the branch is. Why says why there is none, or why the text is not whole.
type Diff struct {
	From  string       `json:"from,omitempty"`
	To    string       `json:"to,omitempty"`
	Files []FileChange `json:"files"`
	Text  string       `json:"text,omitempty"`
	Why   string       `json:"why,omitempty"`
}

// FileChange is what a Diff does to one file, in lines.
type FileChange struct {
	File    string `json:"file"`
	Added   int64  `json:"added"`
	Removed int64  `json:"removed"`
}

const (
	// maxPatch is how many bytes of a patch are shown, and maxFiles of how many files: more would fill a model's context.
	maxPatch = 48 << 10
	maxFiles = 500
)

// Diff reads the work on a task from its repository. It reads nothing outside of tasks.repo_roots.
func (s *Tasks) Diff(ctx context.Context, p Party, taskID string) (Diff, error) {
	t, err := s.Task(ctx, p.Workspace, taskID)
	if err != nil {
		return Diff{}, err
	}
	none := func(why string) (Diff, error) { return Diff{Files: []FileChange{}, Why: why}, nil }
	if t.Base == "" || !git.Reachable(s.RepoRoots, t.Repo) {
		return none("The server does not look into this repository: it was not below tasks.repo_roots at the dispatch. " +
			"Read the diff where the review request says, or run git diff in the repository.")
	}
	repo, err := git.Open(ctx, s.RepoRoots, t.Repo)
	if err != nil {
		return none("The server cannot open the repository.")
	}
	to, err := pinned(ctx, repo, t)
	if err != nil || to == "" {
		return none("The branch " + t.Branch + " does not exist yet, or git cannot read it.")
	}
	files, err := repo.Diff(ctx, t.Base, to)
	if err != nil {
		return none("Git cannot compare " + t.Base + " with " + to + ".")
	}
	out := Diff{From: t.Base, To: to, Files: []FileChange{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		out.Files = append(out.Files, FileChange{name, files[name].Added, files[name].Removed})
	}
	text, err := repo.Patch(ctx, t.Base, to)
	switch {
	case err != nil:
		out.Why = "The text of the diff is too large, or git takes too long. Run git diff in the repository."
	case len(text) > maxPatch:
		text, out.Why = text[:maxPatch], "The text of the diff is cut off. Run git diff in the repository for the rest."
	}
	if len(out.Files) > maxFiles {
		out.Files, out.Why = out.Files[:maxFiles], "Not all files are listed. Run git diff in the repository."
	}
	out.Text = strings.ToValidUTF8(text, "\uFFFD")
	return out, nil
}

// pinned is the commit that the last result of a task names, or else the one that its branch points to.
func pinned(ctx context.Context, repo *git.Repository, t *amp.Task) (string, error) {
	commit := ""
	for _, sub := range t.Subtasks {
		if sub.ID == t.Reviewed && sub.Commit != "" {
			commit = sub.Commit
			break
		}
		commit = cmp.Or(sub.Commit, commit)
	}
	if commit != "" {
		return repo.Commit(ctx, commit)
	}
	return repo.Branch(ctx, t.Branch)
}
