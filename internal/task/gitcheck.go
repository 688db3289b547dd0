package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
	"signalbox/internal/wire"
)

// lookAtGit looks at the repository of a document before its transaction: of every message but escalations, and of what
// may complete a task. It returns nil if there is nothing to look for. Problems refuse the message in the transaction,
// after its id and references were checked.
//
// What is below tasks.repo_roots can be looked at, so what cannot be read there is not accepted. Everything else is
// unverified, which tasks.require_git refuses.
func (s *Tasks) lookAtGit(ctx context.Context, w *work) *amp.GitFacts {
	m := w.in.Message
	if m != nil && (m.Escalation != nil || m.From == amp.Admin) || m == nil && !mayEnd(&w.in) {
		return nil
	}
	before, err := s.Task(ctx, w.party.Workspace, w.in.TaskID)
	if err != nil && (!fault.Is(err, fault.NotFound) || m == nil || m.Dispatch == nil) {
		return nil // the transaction will say so
	}
	if before == nil {
		before = &amp.Task{}
	}
	l := s.newLook(ctx, w.party.Workspace, before)
	switch {
	case m == nil && before.Place == "":
		return nil
	case m == nil:
		l.see(l.completion)
	case m.Dispatch != nil:
		l.look.Repo, l.look.Branch = m.Dispatch.Repo, amp.PlainBranch(m.Dispatch.Branch)
		l.look.Root, l.look.Base = "", ""
		l.begins = true
		l.see(l.dispatch)
	case m.Result != nil:
		l.about = before.Find(func(x *amp.Subtask) bool { return x.ID == m.Result.SubtaskID })
		l.look.Commit = m.Result.Commit
		l.see(func() error { return l.result(m.Result) })
	case m.Request != nil:
		l.about = before.Find(func(x *amp.Subtask) bool { return x.Result == m.Request.ResultRef })
		l.see(l.request)
	case m.Verdict != nil:
		l.about = before.Find(func(x *amp.Subtask) bool { return x.ID == before.Reviewed })
		l.may = m.Verdict.Decision == amp.Rejected // a reject completes nothing, so it is taken in any case
		l.see(func() error { return l.verdict(m.Verdict) })
	}
	return l.facts
}

// mayEnd reports whether a document may complete a task: the ack of a verdict, or the admin's word about one.
func mayEnd(in *amp.Input) bool {
	return in.Ack != nil && strings.HasPrefix(in.Ack.AckOf, string(amp.TypeVerdict)+"-") ||
		in.Instruction != nil && (in.Instruction.Action == "uphold_verdict" || in.Instruction.Action == "override_verdict")
}

// gitLook is one look at a repository, for one document or of the watcher.
type gitLook struct {
	*Tasks
	ctx       context.Context //nolint:containedctx // one look, for one document
	workspace string
	repo      *git.Repository
	task      *amp.Task    // as it stands; empty for a new one
	about     *amp.Subtask // that the message is about, nil if there is none
	begins    bool         // it is a dispatch
	may       bool         // the message is taken whatever git says
	heads     map[string]string
	look      *amp.Look
	facts     *amp.GitFacts
}

func (s *Tasks) newLook(ctx context.Context, workspace string, t *amp.Task) *gitLook {
	look := &amp.Look{Repo: t.Repo, Branch: t.Branch, Root: cmp.Or(t.Root, t.Base), Base: t.Base}
	return &gitLook{Tasks: s, ctx: ctx, workspace: workspace, task: t, look: look, facts: &amp.GitFacts{Look: look}}
}

// see opens the repository, has do look at it, and checks that it is still the same afterwards. Then it draws the sum
// of all checks.
func (l *gitLook) see(do func() error) {
	if !git.Reachable(l.RepoRoots, l.look.Repo) {
		l.unreachable("the repository is not below tasks.repo_roots, so nobody has looked")
		l.sum()
		return
	}
	err := l.open()
	if err == nil {
		err = do()
	}
	if err == nil {
		err = l.repo.Check(l.ctx)
	}
	if err != nil {
		l.unreadable(err)
	}
	l.sum()
}

// open opens the repository, which has to be the one that the work was dispatched in.
func (l *gitLook) open() (err error) {
	if l.repo, err = git.Open(l.ctx, l.RepoRoots, l.look.Repo); err != nil {
		return err
	}
	if !l.begins && l.task.Place != "" && l.task.Place != l.repo.Place() {
		return git.Unfit("its .git leads to another repository than when the work was dispatched")
	}
	return nil
}

// unreachable says that git cannot look here at all.
func (l *gitLook) unreachable(why string) {
	l.check("object", amp.Unverified, why)
	if !l.RequireGit || l.may {
		return
	}
	at, code := "", amp.CommitUnknown
	if l.begins {
		at, code = "/payload/repo", amp.RepoNotGit
	}
	l.fail(code, at, "Nobody can verify what is said of commits here: "+why+".",
		"a repository below "+strings.Join(l.RepoRoots, " or ")+"; an operator may set tasks.require_git to false")
}

// unreadable draws the consequences of a repository that cannot be read. If it could be read when the work was
// dispatched, somebody has seen to it: that is a failure, and a person hears of it. A git that is only slow is not
// taken for that.
func (l *gitLook) unreadable(err error) {
	why := unfit(err)
	l.Tasks.core.Log.Warn("git failed", "task", l.task.ID, "error", err.Error())
	l.check("object", amp.Failed, why)
	if l.begins {
		l.fail(amp.RepoNotGit, "/payload/repo", "The repository cannot be read: "+why+".",
			"a folder with a whole git repository in it, below "+strings.Join(l.RepoRoots, " or "))
		return
	}
	if !l.may {
		l.fail(amp.RepoNotGit, "", "The repository could be read when the work was dispatched, and cannot be now: "+why+".",
			"the repository as it was dispatched, with the commits in it")
	}
	if l.task.Place != "" && !git.Slow(err) {
		l.facts.Finding = &amp.Finding{
			Type: "permission_denied", Severity: "critical", Why: "repository", Scope: amp.ScopeTask,
			Description: fmt.Sprintf("The repository of %s could be read when the work was dispatched, and cannot be now: %s. "+
				"Mend it and resume; until then nothing that is said of commits is taken.", l.task.ID, why),
		}
	}
}

// unfit says why a repository cannot be read, without naming what is outside of it.
func unfit(err error) string {
	if why, ok := errors.AsType[git.Unfit](err); ok {
		return string(why)
	}
	if git.Slow(err) {
		return "git takes too long"
	}
	return "git cannot read it"
}

// fail adds a problem, which will refuse the message.
func (l *gitLook) fail(code amp.Code, pointer, detail, expected string) {
	l.facts.Problems = append(l.facts.Problems,
		amp.Problem{Code: code, Pointer: pointer, Detail: clip(detail), Expected: expected})
}

// check notes what became of one check. The detail of what holds says nothing, and is left out.
func (l *gitLook) check(name string, outcome amp.Proof, detail string) {
	l.look.Checks = append(l.look.Checks, amp.LookCheck{Check: name, Outcome: outcome, Detail: clip(detail)})
}

// wrong notes a check that failed, and refuses the message for it.
func (l *gitLook) wrong(name string, code amp.Code, pointer, detail, expected string) {
	l.check(name, amp.Failed, detail)
	l.fail(code, pointer, detail, expected)
}

// sum is the sum of all checks: the worst. What was forbidden in words that git does not understand makes no claim
// about commits worse.
func (l *gitLook) sum() {
	l.look.Outcome, l.look.Reason = amp.Verified, "git shows what is said"
	for _, c := range l.look.Checks {
		if c.Outcome == amp.Failed && l.look.Outcome != amp.Failed ||
			c.Outcome == amp.Unverified && l.look.Outcome == amp.Verified && c.Check != checkForbidden {
			l.look.Outcome, l.look.Reason = c.Outcome, c.Detail
		}
	}
}

// readHeads reads where the branches are: the task's own, and those that are protected.
func (l *gitLook) readHeads(protected map[string]string) (head string, err error) {
	own := "refs/heads/" + l.look.Branch
	names := append(slices.Collect(maps.Keys(protected)), own)
	if l.heads, err = l.repo.Refs(l.ctx, names...); err != nil {
		return "", err
	}
	l.look.Head = l.heads[own]
	if !l.begins || l.task.Protected != nil {
		l.facts.Finding, err = l.protectedMoved()
	}
	return l.look.Head, err
}

// dispatch checks in the repository, and notes the commit where the work begins: later diffs are
// measured from there. It also notes where the repository is and where its protected branches are, to find out later
// that something has changed.
func (l *gitLook) dispatch() error {
	first, err := l.repo.DefaultBranch(l.ctx)
	if err != nil {
		return err
	}
	// main and master are the schema's business, the repository's own default is git's.
	if first != "" && strings.EqualFold(plainBranch(l.look.Branch), first) {
		l.fail(amp.BranchProtected, "/payload/branch", "This is the default branch of the repository.", "a feature branch")
		return nil
	}
	protected := map[string]string{}
	for _, name := range []string{cmp.Or(first, "main"), "main", "master"} {
		protected["refs/heads/"+name], protected["refs/remotes/origin/"+name] = "", ""
	}
	base, err := l.readHeads(protected)
	if err != nil {
		return err
	}
	for name := range protected {
		protected[name] = l.heads[name]
	}
	// A new branch begins at the default branch, or else at whatever is checked out.
	for _, name := range []string{first, "main", "master"} {
		base = cmp.Or(base, l.heads["refs/heads/"+name])
	}
	if base == "" {
		if base, err = l.repo.Commit(l.ctx, "HEAD"); err != nil {
			return err
		}
	}
	l.check("object", amp.Verified, "")
	l.look.Base, l.facts.Commit, l.facts.Place, l.facts.Protected = base, base, l.repo.Place(), protected
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
func (l *gitLook) result(r *amp.Result) (err error) {
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
	l.look.Commit = full
	l.check("object", amp.Verified, "")
	switch on, err := l.isOnBranch(full, r.Status == "complete"); {
	case err != nil:
		return err
	case !on:
		l.wrong("branch", amp.CommitNotOnBranch, at, fmt.Sprintf("The branch %s is at %.12s, and the commit is not that one.",
			l.look.Branch, cmp.Or(l.look.Head, "no commit")), "the commit of that branch: what is reviewed has to be all of it")
		return nil
	}
	l.check("branch", amp.Verified, "")
	l.facts.Commit = full
	if l.look.Base == "" {
		l.unreachable("git was not read when the work was dispatched, so nobody knows where it began")
		return nil
	}
	if full == l.look.Base || full == l.look.Root {
		l.wrong("base", amp.CommitUnknown, at, "This is the commit at which the work began: nothing was committed since.",
			"the commit with the work in it; without one leave commit_hash out and report no changed files")
		return nil
	}
	return l.history(r, full)
}

// noCommit is a result that names no commit: nothing to verify, if nothing was changed either.
func (l *gitLook) noCommit(r *amp.Result) {
	same := l.look.Base != "" && (l.look.Head == "" || l.look.Head == l.look.Base)
	switch {
	case r.Status != "complete" || same && len(r.Diff.Files) == 0:
		l.check("object", amp.Verified, "")
	case l.RequireGit:
		l.wrong("object", amp.CommitUnknown, "/payload/commit_hash",
			"The result names no commit, so nobody can verify what was changed.", "the hash that git rev-parse HEAD prints")
	default:
		l.check("object", amp.Unverified, "the result names no commit")
	}
}

// isOnBranch reports whether a commit is on the branch. Of what is to be reviewed it has to be where the branch is, or
// there would be commits that nobody reviews.
func (l *gitLook) isOnBranch(commit string, whole bool) (bool, error) {
	if whole || l.look.Head == "" || commit == l.look.Head {
		return commit == l.look.Head, nil
	}
	return l.repo.Contains(l.ctx, l.look.Head, commit)
}

// history checks what led to the commit.
func (l *gitLook) history(r *amp.Result, full string) error {
	steps, descends, err := l.repo.History(l.ctx, l.look.Root, full)
	if err != nil {
		return err
	}
	if !descends {
		l.wrong("base", amp.CommitNotOnBranch, "/payload/commit_hash", fmt.Sprintf(
			"The commit does not descend from %.12s, at which the work began.", l.look.Root), "commits on top of that one")
		return nil
	}
	l.check("base", amp.Verified, "")
	l.look.Commits, l.look.Author = len(steps), clip(steps[0].Author)
	if len(r.Author) > 0 {
		l.author(r.Author, steps)
	}
	files, err := l.repo.Diff(l.ctx, l.look.Base, full)
	if err != nil {
		return err
	}
	whole := files
	if l.look.Root != l.look.Base {
		if whole, err = l.repo.Diff(l.ctx, l.look.Root, full); err != nil {
			return err
		}
	}
	l.compare(r, files, whole)
	return l.limits(whole)
}

// author checks that the commits are by whom the result says: a name, an e-mail, or both.
func (l *gitLook) author(raw wire.Raw, steps []git.Step) {
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

// compare warns if git counts otherwise than the diff summary, which may be of this dispatch or of the whole task. It is
// a warning and no refusal, because generated files and renames make honest agents miscount; the check has
// failed all the same, and everybody sees that.
func (l *gitLook) compare(r *amp.Result, files, whole map[string]git.Change) {
	claimed := slices.Sorted(slices.Values(r.Diff.Files))
	agrees := func(files map[string]git.Change) (added, removed int64, names []string, yes bool) {
		for name, c := range files {
			added, removed, names = added+c.Added, removed+c.Removed, append(names, name)
		}
		slices.Sort(names)
		return added, removed, names,
			added == int64(r.Diff.Added) && removed == int64(r.Diff.Removed) && slices.Equal(names, claimed)
	}
	added, removed, names, yes := agrees(files)
	l.look.Files, l.look.Added, l.look.Removed = len(names), added, removed
	if !yes {
		_, _, _, yes = agrees(whole)
	}
	if yes {
		l.check("diff", amp.Verified, "")
		return
	}
	says := fmt.Sprintf("Git says %d lines added and %d removed in %d files.", added, removed, len(names))
	l.check("diff", amp.Failed, says)
	l.facts.Warnings = append(l.facts.Warnings, amp.Problem{
		Code: amp.WarnDiff, Pointer: "/payload/diff_summary", Detail: says, Expected: clip(strings.Join(names, ", ")),
	})
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
func (l *gitLook) request() error {
	head, err := l.readHeads(l.task.Protected)
	if err != nil || l.about == nil {
		return err
	}
	l.facts.Head, l.look.Commit = head, cmp.Or(l.about.Head, head)
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
		Type: "permission_denied", Severity: "warning", Why: amp.WhyFrozen, Scope: "party:" + string(amp.Executor), Head: head,
		Description: fmt.Sprintf("The branch %s has moved while it was frozen (%s): it was at %.12s and is at %.12s.",
			t.Branch, amp.BranchFrozen, was, cmp.Or(head, "no commit")),
	}
}

// verdict binds a verdict to the commit that was pinned for its review. An approval is of that commit, so the branch has
// to be there; approved_with_fix is of what the reviewer has made of it, which is measured. While another
// subtask is under way the branch may move, and what the executor changes cannot be told from what the reviewer does.
func (l *gitLook) verdict(v *amp.Verdict) error {
	head, err := l.readHeads(l.task.Protected)
	if err != nil || l.about == nil {
		return err
	}
	pin := cmp.Or(l.task.Pin, l.about.Head)
	l.look.Commit = l.about.Commit
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
		l.look.Commit, l.facts.Head = head, head
		l.check("head", amp.Verified, "")
	}
	return nil
}

// judgedAmidst binds a verdict while another subtask is under way.
func (l *gitLook) judgedAmidst(fixes bool) error {
	if fixes {
		l.check("fixes", amp.Unverified, "the executor works on the branch, too, so nobody can tell what was fixed")
	}
	on := l.about.Commit == ""
	if !on && l.look.Head != "" {
		var err error
		if on, err = l.repo.Contains(l.ctx, l.look.Head, l.about.Commit); err != nil {
			return err
		}
	}
	if on || l.may {
		l.check("head", amp.Verified, "")
		return nil
	}
	l.wrong("head", amp.BranchFrozen, "/payload/decision", fmt.Sprintf("The review is of %.12s, which is not on the branch "+
		"any more.", l.about.Commit), "the decision rejected")
	l.facts.Finding = cmp.Or(l.facts.Finding, l.task.Overtaken(l.look.Head))
	return nil
}

// completion looks where the branch is; the step compares it with what was reviewed.
func (l *gitLook) completion() (err error) {
	l.facts.Head, err = l.readHeads(l.task.Protected)
	l.look.Commit = l.task.Pin
	if l.facts.Head == l.task.Pin {
		l.check("head", amp.Verified, "")
	} else {
		l.check("head", amp.Failed, "the branch is not where the review left it")
	}
	return err
}
