package run

import (
	"context"
	"os"
	"strings"
	"time"

	"signalbox/internal/cli/output"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/worktree"
)

// planting is what a run has of a worktree.
type planting struct {
	wanted bool
	tree   *worktree.Tree
	diff   *worktree.Diff // what was changed, nil until it is known
}

// shownDiff is how many lines of a difference a terminal shows.
const shownDiff = 60

// lookTime is how long it may take to find out what was changed.
const lookTime = 5 * time.Minute

// plant gives the run its worktree, if it is to have one. One in which nothing was changed goes away with uproot.
func (r *runner) plant(ctx context.Context) (uproot func(), err error) {
	if !r.wanted {
		return func() {}, nil
	}
	if r.tree, err = worktree.Open(ctx, r.spec.Job.Dir, r.spec.ID); err != nil {
		return nil, err
	}
	if r.tree.Left {
		r.Err.Print("Changes without a commit stay in %s, and are not in the worktree of the run.", r.tree.Repository)
	}
	r.spec.Job.Dir = r.tree.Work
	return func() {
		if r.diff != nil && r.diff.IsEmpty() {
			r.tree.Remove(context.WithoutCancel(ctx))
		}
	}, nil
}

// grown is the event that says what was changed, before the last event of the run. The agent is done by then.
func (r *runner) grown(last engine.Event) (e engine.Event, ok bool) {
	if r.tree == nil || last.Type != engine.Completed {
		return e, false
	}
	// The run may have been told to stop, and what it has done is shown all the same.
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	diff, err := r.tree.Changes(ctx)
	action := &engine.Action{ID: engine.WorktreeAction, Kind: engine.Note, Detail: map[string]any{
		"worktree": r.tree.Dir, "branch": r.tree.Branch, "base": r.tree.Base,
	}}
	done := err == nil
	e = engine.Event{Type: engine.Acted, Engine: last.Engine, Action: action, Phase: engine.Done, OK: &done}
	switch {
	case err != nil:
		action.Title = "what was changed in the worktree cannot be found out: " + err.Error()
		action.Kind, e.Level, e.Message = engine.Warning, "warning", action.Title
	case diff.IsEmpty():
		r.diff, action.Title = &diff, "nothing was changed in the worktree, which is removed"
	default:
		r.diff, action.Title = &diff, "the worktree: "+diff.Summary()
		action.Detail["stat"], action.Detail["diff"], action.Detail["cut"] = diff.Stat, diff.Text, diff.Cut
	}
	return e, true
}

// showTree shows the person what was changed, and what to do with it.
func (r *runner) showTree() {
	if r.JSON || r.tree == nil {
		return
	}
	t := r.tree
	switch {
	case r.diff == nil:
		r.Err.Print("\nThe worktree of the run is %s, on the branch %s.", t.Dir, t.Branch)
		return
	case r.diff.IsEmpty():
		r.Err.Print("\nNothing was changed in the worktree, which is removed.")
		return
	}
	r.Err.Print("\n%s", output.Lines(strings.TrimRight(r.diff.Stat, "\n")))
	lines := strings.Split(strings.TrimRight(r.diff.Text, "\n"), "\n")
	more := len(lines) > shownDiff || r.diff.Cut
	r.Err.Print("\n%s", output.Lines(strings.Join(lines[:min(len(lines), shownDiff)], "\n")))
	if more {
		r.Err.Print("… This is the beginning.")
	}
	r.Err.Print("\nAll of it: git -C %s diff %.12s\nTake it:   commit it there, then git merge %s\n"+
		"Remove it: git worktree remove --force %s && git branch -D %s", quoted(t.Dir), t.Base, t.Branch, quoted(t.Dir), t.Branch)
	if _, err := os.Stat(t.Dir); err != nil {
		r.Err.Print("The folder %s is gone.", t.Dir)
	}
}

// quoted is a word as a shell reads it, quoted where it has to be.
func quoted(word string) string {
	if strings.ContainsAny(word, " \t\n'\"\\$&;|<>()*?[]#~`!{}") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
