package task

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/look"
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
	facts := s.eyes(w.workspace).Completion(ctx, &w.task)
	return true, s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		return s.takeFound(tx, w.workspace, amp.Input{Kind: amp.InLooked, TaskID: w.task.ID}, facts)
	})
}

// watched is a task whose repository is looked at, as it stood when its row was read.
type watched struct {
	workspace string
	task      amp.Task
	seq       int64 // of the entry that the row follows from
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
		f := s.eyes(w.workspace).Inspect(ctx, &w.task)
		if f == nil {
			continue
		}
		if err := s.takeMoved(ctx, w, f); err != nil {
			return err
		}
	}
	return nil
}

// takeMoved takes a finding of the watcher, if the task still stands as it did before the look. What was found about a
// state that has passed may be said of the wrong state, and may be known already; the next look finds what is left.
func (s *Tasks) takeMoved(ctx context.Context, w *watched, f *amp.Finding) error {
	return s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var seq int64
		err := tx.QueryRow("SELECT seq FROM task WHERE workspace = $1 AND task_id = $2", []any{w.workspace, w.task.ID}, &seq)
		if err != nil || seq != w.seq {
			return err
		}
		return s.takeFound(tx, w.workspace, amp.Input{Kind: amp.InMoved, TaskID: w.task.ID, Moved: f}, nil)
	})
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
		if err := scan(&w.workspace, &w.seq, &state); err != nil {
			return err
		}
		err := wire.Unmarshal(state, &w.task)
		if err == nil && w.task.Place != "" {
			list = append(list, w)
		}
		return err
	}, "SELECT workspace, seq, state FROM task WHERE status IN ("+store.Marks(1, len(args))+") ORDER BY workspace, task_id",
		args...)
	return list, err
}

// lookAtGit looks at the repository of a document before its transaction: of every message but escalations, and of what
// may complete a task, which is the ack of a verdict or the admin's word about one.
func (s *Tasks) lookAtGit(ctx context.Context, w *work) *amp.GitFacts {
	m, ack, order := w.in.Message, w.in.Ack, w.in.Instruction
	if m == nil && (ack == nil || !strings.HasPrefix(ack.AckOf, string(amp.TypeVerdict)+"-")) &&
		(order == nil || order.Action != "uphold_verdict" && order.Action != "override_verdict") {
		return nil
	}
	before, err := s.Task(ctx, w.party.Workspace, w.in.TaskID)
	switch {
	case err != nil && (!fault.Is(err, fault.NotFound) || m == nil || m.Dispatch == nil):
		return nil // the transaction will say so
	case m != nil:
		return s.eyes(w.party.Workspace).Message(ctx, before, m)
	case before.Place == "":
		return nil
	}
	return s.eyes(w.party.Workspace).Completion(ctx, before)
}

// eyes look at the repositories of a workspace.
func (s *Tasks) eyes(workspace string) *look.Eyes {
	return &look.Eyes{
		Roots: s.RepoRoots, Require: s.RequireGit, FixTotal: s.Policy.FixTotal, Log: s.core.Log,
		Dispatch: func(ctx context.Context, msgID string) (*amp.Dispatch, error) {
			found, err := s.messages(ctx, "m.workspace = $1 AND m.msg_id = $2", workspace, msgID)
			if err != nil || len(found) == 0 {
				return nil, err
			}
			var m struct {
				Payload amp.Dispatch `json:"payload"`
			}
			err = wire.UnmarshalPart(found[0].Message, &m)
			return &m.Payload, err
		},
		Approved: func(ctx context.Context, place string) (commits []string, err error) {
			tasks, err := store.All(s.core.DB.Reading(ctx), scanTask,
				"SELECT state FROM task WHERE workspace = $1 AND status = $2 ORDER BY updated_at DESC, task_id DESC LIMIT 200",
				workspace, string(amp.Completed))
			for i := 0; i < len(tasks) && err == nil; i++ {
				if tasks[i].Place != place {
					continue
				}
				var t *amp.Task // as its entries prove it
				if t, err = s.Task(ctx, workspace, tasks[i].ID); err == nil && t.Phase == amp.Completed && t.Pin != "" {
					commits = append(commits, t.Pin)
				}
			}
			return commits, err
		},
	}
}
