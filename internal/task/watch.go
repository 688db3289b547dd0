package task

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Run writes the mirror and watches the branches of tasks under review, until ctx ends.
func (s *Tasks) Run(ctx context.Context) error {
	var g errgroup.Group
	mirror := NewMirror(s.core.Ledger, s.Mirror)
	g.Go(func() error { return mirror.Run(ctx) })
	g.Go(func() error { return s.watchBranches(ctx) })
	return g.Wait()
}

// watchBranches looks now and then whether branches that nobody may change have moved. One
// node at a time does.
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

// watched is a task whose repository is looked into.
type watched struct {
	workspace string
	task      Task
}

func (s *Tasks) watch(ctx context.Context) error {
	list, err := s.watchList(ctx)
	if err != nil {
		return err
	}
	for _, w := range list {
		f, err := s.inspect(ctx, &w.task)
		if err != nil {
			s.core.Log.Warn("a repository cannot be watched", "task", w.task.ID, "error", err.Error())
			continue
		}
		if f == nil {
			continue
		}
		err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			return s.do(tx, w.workspace, Input{Kind: InMoved, TaskID: w.task.ID, Moved: f})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Tasks) watchList(ctx context.Context) (list []watched, err error) {
	err = store.Each(s.core.DB.Reading(ctx), func(scan store.Scan) error {
		var w watched
		var state []byte
		if err := scan(&w.workspace, &state); err != nil {
			return err
		}
		err := wire.Unmarshal(state, &w.task)
		if err == nil && reachable(s.RepoRoots, w.task.Repo) {
			list = append(list, w)
		}
		return err
	}, "SELECT workspace, state FROM task WHERE status IN ($1, $2, $3, $4, $5) ORDER BY workspace, task_id",
		string(Reported), string(Triage), string(ReviewRequested), string(Reviewing), string(VerdictReported))
	return list, err
}

// inspect finds what nobody reported, nil if there is nothing.
func (s *Tasks) inspect(ctx context.Context, t *Task) (*Finding, error) {
	repo, err := openRepository(ctx, s.RepoRoots, t.Repo)
	if err != nil {
		return nil, err
	}
	first, err := repo.defaultBranch(ctx)
	if err != nil {
		return nil, err
	}
	for i := range t.Subtasks {
		sub := &t.Subtasks[i]
		if first == "" || sub.Commit == "" || sub.State == Approved || sub.Commit == t.Base {
			continue
		}
		head, err := repo.head(ctx, first)
		if err != nil || head == "" {
			return nil, err
		}
		if merged, err := repo.contains(ctx, head, sub.Commit); err != nil || merged {
			return &Finding{"branch_violation", "critical", "merged " + sub.ID, fmt.Sprintf("The work on %s is on the branch %s, and nobody has approved it.", sub.ID, first), ScopeTask}, err
		}
	}
	if !t.frozen() {
		return nil, nil
	}
	head, err := repo.head(ctx, t.Branch)
	if err != nil {
		return nil, err
	}
	for _, sub := range t.Subtasks {
		if sub.Head != "" && sub.Head != head && (sub.State == Reported || sub.State == Triage || sub.State == ReviewRequested) {
			return &Finding{"permission_denied", "warning", whyFrozen, fmt.Sprintf("The branch %s has moved while it was frozen (%s): it was at %.12s and is at %.12s.", t.Branch, BranchFrozen, sub.Head, head), "party:" + string(Executor)}, nil
		}
	}
	return nil, nil
}

// whyFrozen is why the server escalates that a frozen branch has moved.
const whyFrozen = "frozen"
