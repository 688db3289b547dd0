package task

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
)

// lookAtGit looks at the repository of a message before its transaction, if it is below
// tasks.repo_roots. It returns nil if there is nothing to say. Problems refuse the message in the
// transaction, after its id and references were checked.
//
// A repository that git cannot read in time refuses the message: what cannot be checked is not
// accepted where an operator asked for checks.
func (s *Tasks) lookAtGit(ctx context.Context, w *work) *amp.GitFacts {
	m := w.in.Message
	if m == nil || len(s.RepoRoots) == 0 || m.Escalation != nil || m.From == amp.Admin {
		return nil
	}
	before, err := s.Task(ctx, w.party.Workspace, m.TaskID)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil // the transaction will say so
	}
	repo, branch := "", ""
	switch {
	case m.Dispatch != nil:
		repo, branch = m.Dispatch.Repo, amp.PlainBranch(m.Dispatch.Branch)
	case err == nil:
		repo, branch = before.Repo, before.Branch
	}
	if !git.Reachable(s.RepoRoots, repo) {
		return nil
	}
	l := &gitLook{ctx: ctx, branch: branch, task: before, facts: &amp.GitFacts{}}
	if l.repo, err = git.Open(ctx, s.RepoRoots, repo); err != nil {
		if m.Dispatch != nil {
			l.fail(amp.RepoNotGit, "/payload/repo", "No git repository at this path, or it is outside of the allowed folders.",
				"a folder with a .git in it, below "+strings.Join(s.RepoRoots, " or "))
		}
		return l.facts
	}
	switch {
	case m.Dispatch != nil:
		err = l.dispatch()
	case m.Result != nil:
		err = l.result(m.Result)
	case m.Request != nil:
		err = l.request(m.Request)
	case m.Verdict != nil:
		err = l.verdict(m.Verdict)
	}
	if err != nil {
		// A repository that git cannot read in time is as good as none.
		s.core.Log.Warn("git failed", "task", m.TaskID, "error", err.Error())
		l.fail(amp.RepoNotGit, "", "Git cannot read the repository, or takes too long.", "a repository that git can read")
	}
	return l.facts
}

// gitLook is one look at a repository, for one message.
type gitLook struct {
	ctx    context.Context //nolint:containedctx // one look, for one message
	repo   *git.Repository
	branch string
	task   *amp.Task // as it stands; nil for a new one
	facts  *amp.GitFacts
}

// fail adds a problem, which will refuse the message.
func (l *gitLook) fail(code amp.Code, pointer, detail, expected string) {
	l.facts.Problems = append(l.facts.Problems,
		amp.Problem{Code: code, Pointer: pointer, Detail: detail, Expected: expected})
}

// dispatch checks in the repository, and notes the commit where the work begins:
// later diffs are measured from there.
func (l *gitLook) dispatch() error {
	first, err := l.repo.DefaultBranch(l.ctx)
	if err != nil {
		return err
	}
	// main and master are the schema's business, the repository's own default is git's.
	if first != "" && strings.EqualFold(plainBranch(l.branch), first) {
		l.fail(amp.BranchProtected, "/payload/branch", "This is the default branch of the repository.", "a feature branch")
		return nil
	}
	if l.facts.Commit, err = l.repo.Head(l.ctx, l.branch); err == nil && l.facts.Commit == "" {
		l.facts.Commit, err = l.repo.Commit(l.ctx, "HEAD")
	}
	return err
}

// plainBranch strips the prefixes under which git names the same branch (TSK-37).
func plainBranch(name string) string {
	for _, prefix := range []string{
		"refs/heads/", "heads/", "refs/remotes/origin/", "remotes/origin/", "origin/",
		"refs/remotes/upstream/", "remotes/upstream/", "upstream/",
	} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return name
}

// result checks R-207: the commit exists and is on the branch. It notes where the branch is, to
// find out later that it moved, and compares the diff summary.
func (l *gitLook) result(r *amp.Result) (err error) {
	if l.facts.Head, err = l.repo.Head(l.ctx, l.branch); err != nil || r.Commit == "" {
		return err
	}
	const at = "/payload/commit_hash"
	full, err := l.repo.Commit(l.ctx, r.Commit)
	if err != nil {
		return err
	}
	if full == "" {
		l.fail(amp.CommitUnknown, at, "There is no such commit in the repository.", "the hash that git rev-parse HEAD prints")
		return nil
	}
	on := false
	if l.facts.Head != "" {
		if on, err = l.repo.Contains(l.ctx, l.facts.Head, full); err != nil {
			return err
		}
	}
	if !on {
		l.fail(amp.CommitNotOnBranch, at, "The commit is not on the branch "+l.branch+".", "a commit of that branch")
		return nil
	}
	l.facts.Commit = full
	if l.task == nil || l.task.Base == "" {
		return nil
	}
	files, err := l.repo.Diff(l.ctx, l.task.Base, full)
	if err != nil {
		return err
	}
	l.compare(r, files)
	return nil
}

// compare warns if git counts otherwise than the diff summary. It is a warning and no refusal,
// because generated files and renames make honest agents miscount.
func (l *gitLook) compare(r *amp.Result, files map[string]git.Change) {
	var added, removed int64
	var names []string
	for name, c := range files {
		added, removed, names = added+c.Added, removed+c.Removed, append(names, name)
	}
	slices.Sort(names)
	if added != int64(r.Diff.Added) || removed != int64(r.Diff.Removed) ||
		!slices.Equal(names, slices.Sorted(slices.Values(r.Diff.Files))) {
		l.facts.Warnings = append(l.facts.Warnings, amp.Problem{
			Code: amp.WarnDiff, Pointer: "/payload/diff_summary",
			Detail:   fmt.Sprintf("Git says %d lines added and %d removed in %d files.", added, removed, len(names)),
			Expected: clip(strings.Join(names, ", ")),
		})
	}
}

// clip cuts text from outside to what can be stored and shown: 500 bytes, valid, without NUL.
func clip(text string) string {
	cut := ""
	if len(text) > 500 {
		text, cut = text[:500], "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD") + cut
}

// request checks R-209: the branch is where the result left it.
func (l *gitLook) request(r *amp.Request) error {
	if l.task == nil {
		return nil
	}
	sub := l.task.Find(func(x *amp.Subtask) bool { return x.Result == r.ResultRef })
	if sub == nil || sub.Head == "" || !l.task.Frozen() {
		return nil
	}
	head, err := l.repo.Head(l.ctx, l.branch)
	if err == nil && head != sub.Head {
		l.fail(amp.BranchFrozen, "/payload/task_result_ref",
			"The branch has moved since the result: it was at "+sub.Head+" and is at "+head+".",
			"the branch as the result has left it, or a new dispatch")
	}
	return err
}

// verdict measures what the reviewer has fixed by itself: every changed file is named,
// each with fewer than maxFix lines. While another subtask is under way nothing is measured, since
// the executor's changes cannot be told from the reviewer's.
func (l *gitLook) verdict(v *amp.Verdict) error {
	if len(v.Fixes) == 0 || l.task == nil {
		return nil
	}
	sub := l.task.Find(func(x *amp.Subtask) bool { return x.ID == l.task.Reviewed })
	busy := slices.ContainsFunc(l.task.Subtasks, func(s amp.Subtask) bool {
		return s.ID != l.task.Reviewed && s.State != amp.Approved && s.State != amp.Queued
	})
	if sub == nil || sub.Commit == "" || busy {
		return nil // what the executor changes meanwhile cannot be told from it
	}
	head, err := l.repo.Head(l.ctx, l.branch)
	if err != nil || head == "" {
		return err
	}
	files, err := l.repo.Diff(l.ctx, sub.Commit, head)
	if err != nil {
		return err
	}
	for name, c := range files {
		listed := slices.ContainsFunc(v.Fixes, func(f amp.Fix) bool { return f.File == name })
		if lines := max(c.Added, c.Removed); !listed || lines >= maxFix {
			l.fail(amp.FixScope, "/payload/direct_fixes",
				fmt.Sprintf("Git says that %.200q was changed by %d lines.", name, lines),
				"every changed file listed, each with fewer than 5 changed lines; otherwise the decision rejected")
			return nil
		}
	}
	return nil
}

// maxFix is the number of changed lines that a direct fix must stay below.
const maxFix = 5
