package look

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
)

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
