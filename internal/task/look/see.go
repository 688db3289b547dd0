// Package look finds out whether what a task's messages say of commits is so: it looks at the repository before a
// message is taken, before a task is completed, and whenever the watcher asks. What it has seen is an amp.GitFacts,
// which the rules take as given and every entry keeps.
//
// A claim is verified, unverified where nobody can look, or failed. What is below the roots can be looked at, so what
// cannot be read there any more has failed: the repository is in the hands of agents. It must not know of tables or
// the ledger, and changes nothing.
package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
)

// Eyes are what looks need to know beside the task, of one workspace.
type Eyes struct {
	Roots    []string // the folders below which repositories are looked at
	Require  bool     // what is unverified is refused
	FixTotal int64    // lines that all direct fixes of a verdict may have together
	Log      *slog.Logger
	// Dispatch reads a dispatch, nil if there is none; Approved are the commits with which tasks in a repository, by its
	// place, were completed.
	Dispatch func(ctx context.Context, msgID string) (*amp.Dispatch, error)
	Approved func(ctx context.Context, place string) ([]string, error)
}

// Message looks at the repository of a message, for a task as it stands; before is nil for a new one. It returns nil
// if there is nothing to look for. Problems refuse the message in the transaction, after its id and references were
// checked.
func (e *Eyes) Message(ctx context.Context, before *amp.Task, m *amp.Message) *amp.GitFacts {
	if before == nil {
		before = &amp.Task{ID: m.TaskID}
	}
	l := e.begin(ctx, before)
	switch {
	case m.Dispatch != nil && m.From != amp.Admin:
		l.seen.Repo, l.seen.Branch = m.Dispatch.Repo, amp.PlainBranch(m.Dispatch.Branch)
		l.seen.Root, l.seen.Base = "", ""
		l.begins = true
		l.see(l.dispatch)
	case m.Result != nil:
		l.about = before.Find(func(x *amp.Subtask) bool { return x.ID == m.Result.SubtaskID })
		l.seen.Commit = m.Result.Commit
		l.see(func() error { return l.result(m.Result) })
	case m.Request != nil:
		l.about = before.Find(func(x *amp.Subtask) bool { return x.Result == m.Request.ResultRef })
		l.see(l.request)
	case m.Verdict != nil:
		l.about = before.Find(func(x *amp.Subtask) bool { return x.ID == before.Reviewed })
		l.may = m.Verdict.Decision == amp.Rejected // a reject completes nothing, so it is taken in any case
		l.see(func() error { return l.verdict(m.Verdict) })
	default:
		return nil
	}
	return l.facts
}

// Completion looks where the branch is of a task that may be about to be completed.
func (e *Eyes) Completion(ctx context.Context, t *amp.Task) *amp.GitFacts {
	l := e.begin(ctx, t)
	l.see(l.completion)
	return l.facts
}

// look is one look at a repository, for one message or of the watcher.
type look struct {
	*Eyes
	ctx    context.Context //nolint:containedctx // one look, for one message
	repo   *git.Repository
	task   *amp.Task    // as it stands; empty for a new one
	about  *amp.Subtask // that the message is about, nil if there is none
	begins bool         // it is a dispatch
	may    bool         // the message is taken whatever git says
	heads  map[string]string
	seen   *amp.Look
	facts  *amp.GitFacts
}

func (e *Eyes) begin(ctx context.Context, t *amp.Task) *look {
	seen := &amp.Look{Repo: t.Repo, Branch: t.Branch, Root: cmp.Or(t.Root, t.Base), Base: t.Base}
	return &look{Eyes: e, ctx: ctx, task: t, seen: seen, facts: &amp.GitFacts{Look: seen}}
}

// see opens the repository, has do look at it, and checks that it is still the same afterwards. Then it draws the sum
// of all checks.
func (l *look) see(do func() error) {
	if !git.Reachable(l.Roots, l.seen.Repo) {
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
func (l *look) open() (err error) {
	if l.repo, err = git.Open(l.ctx, l.Roots, l.seen.Repo); err != nil {
		return err
	}
	if !l.begins && l.task.Place != "" && l.task.Place != l.repo.Place() {
		return git.UnfitError("its .git leads to another repository than when the work was dispatched")
	}
	return nil
}

// unreachable says that git cannot look here at all.
func (l *look) unreachable(why string) {
	l.check("object", amp.Unverified, why)
	if !l.Require || l.may {
		return
	}
	at, code := "", amp.CommitUnknown
	if l.begins {
		at, code = "/payload/repo", amp.RepoNotGit
	}
	l.fail(code, at, "Nobody can verify what is said of commits here: "+why+".",
		"a repository below "+strings.Join(l.Roots, " or ")+"; an operator may set tasks.require_git to false")
}

// unreadable draws the consequences of a repository that cannot be read. If it could be read when the work was
// dispatched, somebody has seen to it: that is a failure, and a person hears of it. A git that is only slow, or
// cannot be run, is not taken for that.
func (l *look) unreadable(err error) {
	why, seen := unfit(err)
	l.Log.Warn("git failed", "task", l.task.ID, "error", err.Error())
	l.check("object", amp.Failed, why)
	if l.begins {
		l.fail(amp.RepoNotGit, "/payload/repo", "The repository cannot be read: "+why+".",
			"a folder with a whole git repository in it, below "+strings.Join(l.Roots, " or "))
		return
	}
	if !l.may {
		l.fail(amp.RepoNotGit, "", "The repository could be read when the work was dispatched, and cannot be now: "+why+".",
			"the repository as it was dispatched, with the commits in it")
	}
	if l.task.Place != "" && seen {
		l.facts.Finding = &amp.Finding{
			Type: "permission_denied", Severity: "critical", Why: "repository", Scope: amp.ScopeTask,
			Description: fmt.Sprintf("The repository of %s could be read when the work was dispatched, and cannot be now: %s. "+
				"Mend it and resume; until then nothing that is said of commits is taken.", l.task.ID, why),
		}
	}
}

// unfit says why a repository cannot be read, without naming what is outside of it, and whether that was seen in the
// repository itself.
func unfit(err error) (why string, seen bool) {
	if why, ok := errors.AsType[git.UnfitError](err); ok {
		return string(why), true
	}
	if git.Slow(err) {
		return "git takes too long", false
	}
	return "git cannot be run", false
}

// fail adds a problem, which will refuse the message.
func (l *look) fail(code amp.Code, pointer, detail, expected string) {
	l.facts.Problems = append(l.facts.Problems,
		amp.Problem{Code: code, Pointer: pointer, Detail: amp.Clip(detail), Expected: expected})
}

// check notes what became of one check. The detail of what holds says nothing, and is left out.
func (l *look) check(name string, outcome amp.Proof, detail string) {
	l.seen.Checks = append(l.seen.Checks, amp.LookCheck{Check: name, Outcome: outcome, Detail: amp.Clip(detail)})
}

// wrong notes a check that failed, and refuses the message for it.
func (l *look) wrong(name string, code amp.Code, pointer, detail, expected string) {
	l.check(name, amp.Failed, detail)
	l.fail(code, pointer, detail, expected)
}

// sum is the sum of all checks: the worst. What was forbidden in words that git does not understand makes no claim
// about commits worse.
func (l *look) sum() {
	l.seen.Outcome, l.seen.Reason = amp.Verified, "git shows what is said"
	for _, c := range l.seen.Checks {
		if c.Outcome == amp.Failed && l.seen.Outcome != amp.Failed ||
			c.Outcome == amp.Unverified && l.seen.Outcome == amp.Verified && c.Check != checkForbidden {
			l.seen.Outcome, l.seen.Reason = c.Outcome, c.Detail
		}
	}
}

// readHeads reads where the branches are: the task's own, and those that are protected.
func (l *look) readHeads(protected map[string]string) (head string, err error) {
	own := "refs/heads/" + l.seen.Branch
	names := append(slices.Collect(maps.Keys(protected)), own)
	if l.heads, err = l.repo.Refs(l.ctx, names...); err != nil {
		return "", err
	}
	l.seen.Head = l.heads[own]
	if !l.begins || l.task.Protected != nil {
		l.facts.Finding, err = l.protectedMoved()
	}
	return l.seen.Head, err
}

// Inspect finds what nobody reported, nil if there is nothing: a repository that cannot be read any more, a protected
// branch that has moved, a frozen branch, and commits under review that are no direct fixes.
func (e *Eyes) Inspect(ctx context.Context, t *amp.Task) *amp.Finding {
	if !git.Reachable(e.Roots, t.Repo) {
		return nil
	}
	l := e.begin(ctx, t)
	l.may = true // there is no message to refuse
	l.see(func() error {
		head, err := l.readHeads(t.Protected)
		if err != nil || l.facts.Finding != nil || !t.Settled() || head == t.Pin || head == t.Told {
			return err
		}
		l.facts.Finding, err = l.moved(head)
		return err
	})
	return l.facts.Finding
}

// moved is the finding about a branch that is not where it should be, nil for what a reviewer may fix.
func (l *look) moved(head string) (*amp.Finding, error) {
	in := func(states ...amp.State) bool {
		return l.task.Find(func(x *amp.Subtask) bool { return slices.Contains(states, x.State) }) != nil
	}
	switch {
	case in(amp.Reviewing) && head != "" && l.task.Pin != "":
		if _, why, err := l.smallFix(l.task.Pin, head); why == "" || err != nil {
			return nil, err
		}
	case !in(amp.ReviewRequested, amp.Reviewing, amp.VerdictReported):
		return frozen(l.task, l.task.Pin, head), nil
	}
	return l.task.Overtaken(head), nil
}

// protectedMoved is the finding that a protected branch is not where it was when the work was dispatched, nil if none
// has moved. It is not known who has moved it, so whatever no approval explains is for a person: commits beyond those
// that completed tasks of the repository were approved with. Of what is on the way to a forge only the task's own
// work counts, since everybody fetches from there.
func (l *look) protectedMoved() (*amp.Finding, error) {
	now := maps.Clone(l.task.Protected)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, is := now[name], l.heads[name]
		if was == is {
			continue
		}
		now[name] = is
		what, err := l.unexplained(name, was, is)
		if err != nil {
			return nil, err
		}
		if what != "" {
			for other := range now {
				now[other] = l.heads[other]
			}
			return &amp.Finding{
				Type: "branch_violation", Severity: "critical", Why: "protected " + name, Scope: amp.ScopeTask, Protected: now,
				Description: fmt.Sprintf("The protected branch %s has moved from %.12s to %.12s before %s is completed: %s",
					strings.TrimPrefix(strings.TrimPrefix(name, "refs/heads/"), "refs/remotes/"), cmp.Or(was, "nowhere"),
					cmp.Or(is, "nowhere"), l.task.ID, what),
			}, nil
		}
	}
	return nil, nil
}

// unexplained says what is wrong with a protected branch that has moved, "" if nothing is.
func (l *look) unexplained(name, was, is string) (string, error) {
	for _, sub := range l.task.Subtasks {
		if is == "" || sub.Commit == "" || sub.Commit == l.task.Base || sub.Commit == l.task.Root {
			continue
		}
		if merged, err := l.repo.Contains(l.ctx, is, sub.Commit); err != nil || merged {
			return "the work on " + sub.ID + " is on it.", err
		}
	}
	if strings.HasPrefix(name, "refs/remotes/") {
		return "", nil
	}
	const nobody = "nobody has approved what is on it now. Resume if it was you."
	if is == "" {
		return nobody, nil
	}
	known, err := l.Approved(l.ctx, l.repo.Place())
	if err != nil {
		return "", err
	}
	if was != "" {
		known = append(known, was)
		// A branch that was set back has nothing new, and lost something.
		if kept, err := l.repo.Contains(l.ctx, is, was); err != nil || !kept {
			return nobody, err
		}
	}
	if more, err := l.repo.HasNew(l.ctx, is, known...); err != nil || more {
		return nobody, err
	}
	return "", nil
}
