package task

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
	"signalbox/internal/wire"
)

// Run writes the mirror, watches the repositories of tasks, and has approved plans go out and approved work completed,
// until ctx ends.
func (s *Tasks) Run(ctx context.Context) error {
	var g errgroup.Group
	mirror := NewMirror(s.core.Ledger, s.Mirror)
	g.Go(func() error { return mirror.Run(ctx) })
	g.Go(func() error { return s.watchBranches(ctx) })
	g.Go(func() error { return s.sendApproved(ctx) })
	g.Go(func() error { return s.completeLooked(ctx) })
	return g.Wait()
}

// watchBranches looks every WatchEvery at the repositories of all tasks that are under way. It
// holds a lease, so one node at a time does it.
func (s *Tasks) watchBranches(ctx context.Context) error {
	if s.WatchEvery == 0 {
		return nil
	}
	return s.core.Ledger.Hold(ctx, "task.git", func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := s.watch(ctx); err != nil {
				return err
			}
			ledger.Pause(ctx, nil, s.WatchEvery)
		}
		return nil
	})
}

// completeLooked completes tasks whose last approval waits for a look at the branch, as after a decision at a gate,
// whose transaction cannot wait for git. Instructions wake it; the watcher does the same for what it missed.
func (s *Tasks) completeLooked(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.told.Await(ctx, kindInstructed, func(ctx context.Context) (bool, error) {
			list, err := s.watchList(ctx, string(amp.VerdictReported))
			for i := 0; i < len(list) && err == nil; i++ {
				_, err = s.tryCompletion(ctx, &list[i])
			}
			return false, err
		})
		if err != nil {
			s.core.Log.Warn("cannot complete tasks; retrying", "error", err.Error())
			ledger.Pause(ctx, nil, time.Second)
		}
	}
	return nil
}

// tryCompletion looks at the branch of a task that is about to be completed. tried is false for other tasks.
func (s *Tasks) tryCompletion(ctx context.Context, w *watched) (tried bool, err error) {
	if !w.task.Unlooked() {
		return false, nil
	}
	l := s.newLook(ctx, w.workspace, &w.task)
	l.see(l.completion)
	return true, s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		return s.takeFound(tx, w.workspace, amp.Input{Kind: amp.InLooked, TaskID: w.task.ID}, l.facts)
	})
}

// watched is a task whose repository is looked at.
type watched struct {
	workspace string
	task      amp.Task
}

// watch looks at every watched repository once. A repository that git is too slow in is logged and
// passed over; it must not hide the others.
func (s *Tasks) watch(ctx context.Context) error {
	list, err := s.watchList(ctx, watchedStates...)
	if err != nil {
		return err
	}
	for i := range list {
		w := &list[i]
		if tried, err := s.tryCompletion(ctx, w); tried || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if !git.Reachable(s.RepoRoots, w.task.Repo) {
			continue
		}
		f := s.inspect(ctx, w)
		if f == nil {
			continue
		}
		err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			return s.takeFound(tx, w.workspace, amp.Input{Kind: amp.InMoved, TaskID: w.task.ID, Moved: f}, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// watchedStates are the statuses of tasks that are under way. Held tasks are left out: they already wait for the admin.
var watchedStates = []string{
	string(amp.Queued), string(amp.Rework), string(amp.Dispatched), string(amp.Executing), string(amp.Reported),
	string(amp.Triage), string(amp.ReviewRequested), string(amp.Reviewing), string(amp.VerdictReported),
	string(amp.Approved),
}

// watchList lists the tasks of some statuses in whose repositories git has looked.
func (s *Tasks) watchList(ctx context.Context, statuses ...string) (list []watched, err error) {
	var args []any
	for _, one := range statuses {
		args = append(args, one)
	}
	err = store.Each(s.core.DB.Reading(ctx), func(scan store.Scan) error {
		var w watched
		var state []byte
		if err := scan(&w.workspace, &state); err != nil {
			return err
		}
		err := wire.Unmarshal(state, &w.task)
		if err == nil && w.task.Place != "" {
			list = append(list, w)
		}
		return err
	}, "SELECT workspace, state FROM task WHERE status IN ("+store.Marks(1, len(args))+") ORDER BY workspace, task_id", args...)
	return list, err
}

// inspect finds what nobody reported, nil if there is nothing: a repository that cannot be read any more, a protected
// branch that has moved, a frozen branch, and commits under review that are no direct fixes.
func (s *Tasks) inspect(ctx context.Context, w *watched) *amp.Finding {
	t := &w.task
	l := s.newLook(ctx, w.workspace, t)
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
func (l *gitLook) moved(head string) (*amp.Finding, error) {
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
// that completed tasks of the repository were approved with. Of what is on the way to a forge only the task's own work
// counts, since everybody fetches from there.
func (l *gitLook) protectedMoved() (*amp.Finding, error) {
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
func (l *gitLook) unexplained(name, was, is string) (string, error) {
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
	known, err := l.approvedCommits()
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

// approvedCommits are the commits with which the last tasks of the repository were completed.
func (l *gitLook) approvedCommits() (commits []string, err error) {
	tasks, err := store.All(l.core.DB.Reading(l.ctx), scanTask,
		"SELECT state FROM task WHERE workspace = $1 AND status = $2 ORDER BY updated_at DESC, task_id DESC LIMIT 200",
		l.workspace, string(amp.Completed))
	for _, t := range tasks {
		if t.Place == l.repo.Place() && t.Pin != "" {
			commits = append(commits, t.Pin)
		}
	}
	return commits, err
}
