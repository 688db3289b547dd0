package task

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
	"signalbox/internal/wire"
)

// Run writes the mirror, watches the branches of tasks under review, and has approved plans go out,
// until ctx ends.
func (s *Tasks) Run(ctx context.Context) error {
	var g errgroup.Group
	mirror := NewMirror(s.core.Ledger, s.Mirror)
	g.Go(func() error { return mirror.Run(ctx) })
	g.Go(func() error { return s.watchBranches(ctx) })
	g.Go(func() error { return s.sendApproved(ctx) })
	return g.Wait()
}

// watchBranches looks every WatchEvery whether branches that nobody may change have moved. It
// holds a lease, so one node at a time does it.
func (s *Tasks) watchBranches(ctx context.Context) error {
	if len(s.RepoRoots) == 0 || s.WatchEvery == 0 {
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

// watched is a task whose repository is looked at.
type watched struct {
	workspace string
	task      amp.Task
}

// watch looks at every watched repository once. A repository that cannot be read is logged and
// passed over; it must not hide the others.
func (s *Tasks) watch(ctx context.Context) error {
	list, err := s.watchList(ctx)
	if err != nil {
		return err
	}
	for _, w := range list {
		f, err := s.inspect(ctx, &w.task)
		if err != nil {
			s.core.Log.Warn("cannot watch repository", "task", w.task.ID, "error", err.Error())
			continue
		}
		if f == nil {
			continue
		}
		err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			return s.takeFound(tx, w.workspace, amp.Input{Kind: amp.InMoved, TaskID: w.task.ID, Moved: f})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// watchList lists the tasks whose branch may be frozen, in repositories that may be looked
// at. Held tasks are left out: they already wait for the admin.
func (s *Tasks) watchList(ctx context.Context) (list []watched, err error) {
	err = store.Each(s.core.DB.Reading(ctx), func(scan store.Scan) error {
		var w watched
		var state []byte
		if err := scan(&w.workspace, &state); err != nil {
			return err
		}
		err := wire.Unmarshal(state, &w.task)
		if err == nil && git.Reachable(s.RepoRoots, w.task.Repo) {
			list = append(list, w)
		}
		return err
	}, "SELECT workspace, state FROM task WHERE status IN ($1, $2, $3, $4, $5) ORDER BY workspace, task_id",
		string(amp.Reported), string(amp.Triage), string(amp.ReviewRequested), string(amp.Reviewing),
		string(amp.VerdictReported))
	return list, err
}

// inspect finds what nobody reported, nil if there is nothing. Unapproved work on the default
// branch comes first, because it is worse: it may already be deployed.
func (s *Tasks) inspect(ctx context.Context, t *amp.Task) (*amp.Finding, error) {
	repo, err := git.Open(ctx, s.RepoRoots, t.Repo)
	if err != nil {
		return nil, err
	}
	first, err := repo.DefaultBranch(ctx)
	if err != nil {
		return nil, err
	}
	for i := range t.Subtasks {
		sub := &t.Subtasks[i]
		// Nothing to look for: no default branch is known, or the work has no commit of its own.
		if first == "" || sub.Commit == "" || sub.State == amp.Approved || sub.Commit == t.Base {
			continue
		}
		head, err := repo.Head(ctx, first)
		if err != nil || head == "" {
			return nil, err
		}
		if merged, err := repo.Contains(ctx, head, sub.Commit); err != nil || merged {
			return &amp.Finding{
				Type: "branch_violation", Severity: "critical", Why: "merged " + sub.ID, Scope: amp.ScopeTask,
				Description: fmt.Sprintf("The work on %s is on the branch %s, and nobody has approved it.", sub.ID, first),
			}, err
		}
	}
	// From here on it is about the task's own branch, which may move while somebody works on it.
	if !t.Frozen() {
		return nil, nil
	}
	head, err := repo.Head(ctx, t.Branch)
	if err != nil {
		return nil, err
	}
	for _, sub := range t.Subtasks {
		if sub.Head != "" && sub.Head != head &&
			(sub.State == amp.Reported || sub.State == amp.Triage || sub.State == amp.ReviewRequested) {
			return &amp.Finding{
				Type: "permission_denied", Severity: "warning", Why: amp.WhyFrozen, Scope: "party:" + string(amp.Executor),
				Description: fmt.Sprintf("The branch %s has moved while it was frozen (%s): it was at %.12s and is at %.12s.",
					t.Branch, amp.BranchFrozen, sub.Head, head),
			}, nil
		}
	}
	return nil, nil
}
