package task_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// story is a task with a little of everything.
func (n *node) story(id string) {
	n.T.Helper()
	n.toVerdict(id, verdict(id, "rejected", 0.5))
	n.vote(n.only().ID, gate.Ballot{Approve: true})
	// as it came, with its spaces
	n.take(n.parties[amp.Coordinator], amp.InMessage,
		[]byte(" "+string(with(dispatch(id, 1), "context_ref", []string{}))+"\n"))
}

func TestABundleIsVerifiedWithNothingButTheKey(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		n.story(taskT)
		n.want("dispatched", amp.InMessage, with(dispatch("T-2026-045", 1), "context_ref", []string{n.firstOf(taskT)}))
		for _, id := range []string{taskT, "T-2026-045"} {
			b, err := n.tasks.Bundle(t.Context(), "default", id)
			if err != nil {
				t.Fatal(err)
			}
			text := encode(b)
			read := func(text string) error {
				b, err := task.ReadBundle([]byte(text))
				if err != nil {
					return err
				}
				return b.Verify(n.Ledger.Key())
			}
			if err := read(string(text)); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			if id != taskT {
				continue
			}
			for name, changed := range map[string]string{
				"another status":    strings.Replace(string(text), `"task_status":"dispatched"`, `"task_status":"completed"`, 1),
				"another content":   strings.Replace(string(text), `Rework the timer`, `Repaint the timer`, 1),
				"another count":     strings.Replace(string(text), `"reject_count":1`, `"reject_count":0`, 1),
				"an entry less":     without(t, b, 3),
				"an entry's kind":   strings.Replace(string(text), `"kind":"task.dispatched"`, `"kind":"task.noted"`, 1),
				"another signature": strings.Replace(string(text), `\n— test.example`, `\n— best.example`, 1),
			} {
				if changed == string(text) {
					t.Fatalf("%s: nothing was changed", name)
				}
				if err := read(changed); err == nil {
					t.Errorf("%s is not found out", name)
				}
			}
		}
	})
}

// firstOf is the id of a task's first dispatch.
func (n *node) firstOf(id string) string {
	n.T.Helper()
	s, err := n.tasks.Task(context.Background(), "default", id)
	if err != nil {
		n.T.Fatal(err)
	}
	return s.Dispatch
}

func without(t *testing.T, b *task.Bundle, i int) string {
	t.Helper()
	less := *b
	less.Entries = append(append([]task.Proved{}, b.Entries[:i]...), b.Entries[i+1:]...)
	text, err := json.Marshal(less)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheMirrorHasACommitForEveryEvent(t *testing.T) {
	eachNode(t, func(t *testing.T, n *node) {
		dir := filepath.Join(t.TempDir(), "mirror")
		m := task.NewMirror(n.Ledger, dir)
		n.toVerdict(taskT, verdict(taskT, "rejected", 0.5))
		entries := n.Entries()
		write := func(list []ledger.Entry) {
			t.Helper()
			if err := m.Write(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		write(entries[:len(entries)-3])
		write(entries) // some of them again
		n.vote(n.only().ID, gate.Ballot{Approve: true})
		file := filepath.Join(dir, "default", taskT+".json")
		testbed.Write(t, file, "somebody's own")
		entries = n.Entries()
		write(entries)
		write(entries)

		events := 0
		for _, e := range entries {
			if strings.HasPrefix(e.Trace, "task:") && !strings.HasPrefix(e.Kind, "gate.") {
				events++
			}
		}
		r := &repo{t, dir}
		if commits := len(strings.Split(r.git("log", "--format=%H"), "\n")); commits != events || events < 8 {
			t.Errorf("%d commits for %d events", commits, events)
		}
		if dirty := r.git("status", "--porcelain"); dirty != "" {
			t.Errorf("the folder is not what was committed: %s", dirty)
		}
		text, err := os.ReadFile(file)
		var shown amp.Record
		if err == nil {
			err = json.Unmarshal(text, &shown)
		}
		if err != nil || shown.Status != n.status(taskT) || shown.Count != 1 {
			t.Errorf("%s %v", text, err)
		}
		if problems := amp.CheckRecord("task_record", text); len(problems) > 0 {
			t.Errorf("%+v", problems)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "default", taskT, "*-task-dispatched.json")); len(found) != 1 {
			t.Errorf("%v", found)
		}
		if author := r.git("log", "--reverse", "--format=%an"); !strings.HasPrefix(author, "agent:coordinator\n") {
			t.Errorf("%s", author)
		}
	})
}
