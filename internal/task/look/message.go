package look

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
	"signalbox/internal/wire"
)

// dispatch checks in the repository, and notes the commit where the work begins: later diffs are
// measured from there. It also notes where the repository is and where its protected branches are, to find out later
// that something has changed.
func (l *look) dispatch() error {
	first, err := l.repo.DefaultBranch(l.ctx)
	if err != nil {
		return err
	}
	// main and master are the schema's business, the repository's own default is git's.
	if first != "" && strings.EqualFold(plainBranch(l.seen.Branch), first) {
		l.fail(amp.BranchProtected, "/payload/branch", "This is the default branch of the repository.", "a feature branch")
		return nil
	}
	out, err := l.repo.CheckedOut(l.ctx)
	if err != nil {
		return err
	}
	protected := map[string]string{}
	maps.Copy(protected, l.task.Protected) // what was protected stays so
	names := []string{cmp.Or(first, "main"), "main", "master", cmp.Or(out, "main")}
	for _, name := range names {
		protected["refs/heads/"+name], protected["refs/remotes/origin/"+name] = "", ""
	}
	base, err := l.readHeads(protected)
	if err != nil {
		return err
	}
	// A new branch begins at the default branch, or else at what is checked out, which is protected only if there is
	// nothing else to protect.
	for _, name := range names[:3] {
		base = cmp.Or(base, l.heads["refs/heads/"+name])
	}
	other := first != "" || l.heads["refs/heads/main"]+l.heads["refs/heads/master"] != "" || l.task.Protected != nil
	for name := range protected {
		_, was := l.task.Protected[name]
		if protected[name] = l.heads[name]; other && !was && !slices.Contains(names[:3], out) &&
			(name == "refs/heads/"+out || name == "refs/remotes/origin/"+out) || name == "refs/heads/"+l.seen.Branch {
			delete(protected, name)
		}
	}
	if base == "" {
		if base, err = l.repo.Commit(l.ctx, "HEAD"); err != nil {
			return err
		}
	}
	l.check("object", amp.Verified, "")
	l.seen.Base, l.facts.Commit, l.facts.Place, l.facts.Protected = base, base, l.repo.Place(), protected
	return nil
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

// result checks R-207: the commit exists, is the branch's, is new, and descends from where the work began, by who and
// with the diff that was reported. It notes where the branch is, to find out later that it moved.
func (l *look) result(r *amp.Result) (err error) {
	if l.facts.Head, err = l.readHeads(l.task.Protected); err != nil {
		return err
	}
	const at = "/payload/commit_hash"
	if r.Commit == "" {
		l.noCommit(r)
		return nil
	}
	full, err := l.repo.Commit(l.ctx, r.Commit)
	if err != nil {
		return err
	}
	if full == "" {
		l.wrong("object", amp.CommitUnknown, at, fmt.Sprintf("There is no commit %.64s in the repository.", r.Commit),
			"the hash that git rev-parse HEAD prints")
		return nil
	}
	l.seen.Commit = full
	l.check("object", amp.Verified, "")
	switch on, err := l.isOnBranch(full, r.Status == "complete"); {
	case err != nil:
		return err
	case !on:
		l.wrong("branch", amp.CommitNotOnBranch, at, fmt.Sprintf("The branch %s is at %.12s, and the commit is not that one.",
			l.seen.Branch, cmp.Or(l.seen.Head, "no commit")), "the commit of that branch: what is reviewed has to be all of it")
		return nil
	}
	l.check("branch", amp.Verified, "")
	l.facts.Commit = full
	if l.seen.Base == "" {
		l.unreachable("git was not read when the work was dispatched, so nobody knows where it began")
		return nil
	}
	if full == l.seen.Base || full == l.seen.Root {
		l.wrong("base", amp.CommitUnknown, at, "This is the commit at which the work began: nothing was committed since.",
			"the commit with the work in it; without one leave commit_hash out and report no changed files")
		return nil
	}
	return l.history(r, full)
}

// noCommit is a result that names no commit: nothing to verify, if nothing was changed either.
func (l *look) noCommit(r *amp.Result) {
	same := l.seen.Base != "" && (l.seen.Head == "" || l.seen.Head == l.seen.Base)
	switch {
	case r.Status != "complete" || same && len(r.Diff.Files) == 0:
		l.check("object", amp.Verified, "")
	case l.Require:
		l.wrong("object", amp.CommitUnknown, "/payload/commit_hash",
			"The result names no commit, so nobody can verify what was changed.", "the hash that git rev-parse HEAD prints")
	default:
		l.check("object", amp.Unverified, "the result names no commit")
	}
}

// isOnBranch reports whether a commit is on the branch. Of what is to be reviewed it has to be where the branch is,
// or there would be commits that nobody reviews.
func (l *look) isOnBranch(commit string, whole bool) (bool, error) {
	if whole || l.seen.Head == "" || commit == l.seen.Head {
		return commit == l.seen.Head, nil
	}
	return l.repo.Contains(l.ctx, l.seen.Head, commit)
}

// history checks what led to the commit.
func (l *look) history(r *amp.Result, full string) error {
	steps, descends, err := l.repo.History(l.ctx, l.seen.Root, full)
	if err != nil {
		return err
	}
	if !descends {
		l.wrong("base", amp.CommitNotOnBranch, "/payload/commit_hash", fmt.Sprintf(
			"The commit does not descend from %.12s, at which the work began.", l.seen.Root), "commits on top of that one")
		return nil
	}
	l.check("base", amp.Verified, "")
	l.seen.Commits, l.seen.Author = len(steps), amp.Clip(steps[0].Author)
	if len(r.Author) > 0 {
		l.author(r.Author, steps)
	}
	whole, err := l.repo.Diff(l.ctx, l.seen.Root, full)
	if err != nil {
		return err
	}
	if err := l.compare(r, full); err != nil {
		return err
	}
	return l.limits(whole)
}

// author checks that the commits are by whom the result says: a name, an e-mail, or both.
func (l *look) author(raw wire.Raw, steps []git.Step) {
	var said string
	_ = wire.Unmarshal(raw, &said) // what is no text is nobody's name
	for _, s := range steps {
		name, mail, _ := strings.Cut(strings.TrimSuffix(s.Author, ">"), " <")
		if said == "" || said != s.Author && said != name && !strings.EqualFold(said, mail) {
			l.wrong("author", amp.CommitUnknown, "/payload/x_author",
				fmt.Sprintf("The commit %.12s is by %.100q.", s.Hash, s.Author), "the author of all commits, or no x_author")
			return
		}
	}
	l.check("author", amp.Verified, "")
}

// compare warns if git counts otherwise than the diff summary, which may be of this dispatch, of the whole task, or
// of one subtask of several. It is a warning and no refusal, because generated files and renames make honest
// agents miscount; the check has failed all the same, and everybody sees that.
func (l *look) compare(r *amp.Result, full string) error {
	claimed, says, names := slices.Sorted(slices.Values(r.Diff.Files)), "", []string(nil)
	for i, from := range slices.Compact([]string{l.seen.Base, l.seen.Root, cmp.Or(l.task.Pin, l.seen.Root)}) {
		files, err := l.repo.Diff(l.ctx, from, full)
		if _, seen := unfit(err); err != nil && !seen {
			return err // else it was rewritten and is gone, so there is nothing to compare with
		}
		var added, removed int64
		for _, c := range files {
			added, removed = added+c.Added, removed+c.Removed
		}
		are := slices.Sorted(maps.Keys(files))
		if i == 0 {
			names, says = are, fmt.Sprintf("Git says %d lines added and %d removed in %d files.", added, removed, len(are))
			l.seen.Files, l.seen.Added, l.seen.Removed = len(are), added, removed
		}
		if added == int64(r.Diff.Added) && removed == int64(r.Diff.Removed) && slices.Equal(are, claimed) {
			l.check("diff", amp.Verified, "")
			return nil
		}
	}
	l.check("diff", amp.Failed, says)
	l.facts.Warnings = append(l.facts.Warnings, amp.Problem{
		Code: amp.WarnDiff, Pointer: "/payload/diff_summary", Detail: says, Expected: amp.Clip(strings.Join(names, ", ")),
	})
	return nil
}

// request checks R-209: the branch is where the result left it.
func (l *look) request() error {
	head, err := l.readHeads(l.task.Protected)
	if err != nil || l.about == nil {
		return err
	}
	l.facts.Head, l.seen.Commit = head, cmp.Or(l.about.Head, head)
	if l.about.Head == "" || !l.task.Frozen() || head == l.about.Head {
		l.check("head", amp.Verified, "")
		return nil
	}
	l.wrong("head", amp.BranchFrozen, "/payload/task_result_ref",
		"The branch has moved since the result: it was at "+l.about.Head+" and is at "+head+".",
		"the branch as the result has left it, or a new dispatch")
	l.facts.Finding = cmp.Or(l.facts.Finding, frozen(l.task, l.about.Head, head))
	return nil
}

// frozen is the finding that a branch has moved after a result.
func frozen(t *amp.Task, was, head string) *amp.Finding {
	return &amp.Finding{
		Type: "permission_denied", Severity: "warning", Why: amp.WhyFrozen, Scope: "party:" + string(amp.Executor),
		Head: head,
		Description: fmt.Sprintf("The branch %s has moved while it was frozen (%s): it was at %.12s and is at %.12s.",
			t.Branch, amp.BranchFrozen, was, cmp.Or(head, "no commit")),
	}
}

// verdict binds a verdict to the commit that was pinned for its review. An approval is of that commit, so the branch
// has to be there; approved_with_fix is of what the reviewer has made of it, which is measured. While another
// subtask is under way the branch may move, and what the executor changes cannot be told from what the reviewer does.
func (l *look) verdict(v *amp.Verdict) error {
	head, err := l.readHeads(l.task.Protected)
	if err != nil || l.about == nil {
		return err
	}
	pin := cmp.Or(l.task.Pin, l.about.Head)
	l.seen.Commit = l.about.Commit
	switch fixes := v.Decision == "approved_with_fix"; {
	case pin == "" && l.task.Place == "":
		l.unreachable("git was not read when the result came")
	case !l.task.Settled():
		return l.judgedAmidst(fixes)
	case fixes:
		return l.fixes(v, pin, head)
	case head != pin && l.may:
		l.check("head", amp.Verified, "")
		moved := l.task.Overtaken(head)
		moved.Severity = "info"
		l.facts.Finding = cmp.Or(l.facts.Finding, moved)
	case head != pin:
		l.wrong("head", amp.BranchFrozen, "/payload/decision", fmt.Sprintf(
			"The review is of %.12s, and the branch is at %.12s.", pin, cmp.Or(head, "no commit")),
			"the decision rejected; or approved_with_fix, if the commits since are direct fixes of yours")
		l.facts.Finding = cmp.Or(l.facts.Finding, l.task.Overtaken(head))
	default:
		l.seen.Commit, l.facts.Head = head, head
		l.check("head", amp.Verified, "")
	}
	return nil
}

// judgedAmidst binds a verdict while another subtask is under way.
func (l *look) judgedAmidst(fixes bool) error {
	if fixes {
		l.check("fixes", amp.Unverified, "the executor works on the branch, too, so nobody can tell what was fixed")
	}
	on := l.about.Commit == ""
	if !on && l.seen.Head != "" {
		var err error
		if on, err = l.repo.Contains(l.ctx, l.seen.Head, l.about.Commit); err != nil {
			return err
		}
	}
	if on || l.may {
		l.check("head", amp.Verified, "")
		return nil
	}
	l.wrong("head", amp.BranchFrozen, "/payload/decision",
		fmt.Sprintf("The review is of %.12s, which is not on the branch any more.", l.about.Commit), "the decision rejected")
	l.facts.Finding = cmp.Or(l.facts.Finding, l.task.Overtaken(l.seen.Head))
	return nil
}

// completion looks where the branch is; the step compares it with what was reviewed.
func (l *look) completion() (err error) {
	l.facts.Head, err = l.readHeads(l.task.Protected)
	l.seen.Commit = l.task.Pin
	if l.facts.Head == l.task.Pin {
		l.check("head", amp.Verified, "")
	} else {
		l.check("head", amp.Failed, "the branch is not where the review left it")
	}
	return err
}
