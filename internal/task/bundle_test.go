package task_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/passkey/passkeytest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/proof"
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
				_, err = proof.Verify(b, n.Ledger.Key())
				return err
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

// otherKey is the verifier key of another ledger.
const otherKey = "other.example+ae8bb463+AQABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

// proven is a task of high risk with all that a bundle proves: a plan that a person has approved with a passkey, a commit
// in a repository, a review, and a verdict that a person has confirmed.
func proven(t *testing.T, address string) (n *node, r *repo, b *task.Bundle) {
	t.Helper()
	root := t.TempDir()
	n = start(t, address, requirePlan, func(o *task.Options) {
		o.RepoRoots, o.Policy.ConfirmHigh = []string{root}, true
	})
	r = newRepo(t, filepath.Join(root, "app"))
	r.git("checkout", "-q", "-b", "feature/timer")
	keys := passkey.New(n.DB, n.Ledger, "http://localhost:7446")
	c, err := keys.Create(t.Context(), n.operator)
	n.must(err)
	device := passkeytest.New(c.RPID, c.Origin)
	_, err = keys.Add(t.Context(), n.operator, "laptop", device.Create(c.Challenge), nil)
	n.must(err)
	approve := func(id string) {
		b := gate.Ballot{Approve: true}
		ask, err := n.Gates.Ask(t.Context(), n.operator, id, b)
		n.must(err)
		if ask != nil {
			b.Assertion = device.Sign(ask.Challenge)
		}
		n.vote(id, b)
	}
	d := dispatch(taskT, 1, "repo", r.path, "risk_level", "high")
	approve(n.keep(d).ID)
	n.hears(n.parties[amp.Coordinator])
	n.want("executing", amp.InAck, ack(taskT, idOf(d), amp.Executor))
	n.want("executing", amp.InHeartbeat, heartbeat(taskT, amp.Executor))
	done := result(taskT, 1, "commit_hash", r.commit("a.go", "x\n"))
	n.want("reported", amp.InMessage, done)
	n.want("review_requested", amp.InMessage, request(taskT, idOf(d), idOf(done), 0))
	v := verdict(taskT, "approved", 0.95)
	n.want("admin_hold", amp.InMessage, v)
	approve(n.only().ID)
	n.want("completed", amp.InAck, ack(taskT, idOf(v), amp.Coordinator))
	b, err = n.tasks.Bundle(t.Context(), "default", taskT)
	n.must(err)
	return n, r, b
}

// read is what is found in a bundle that went through a file.
func read(t *testing.T, b *task.Bundle, key string) ([]proof.Part, error) {
	t.Helper()
	again, err := task.ReadBundle(encode(b))
	if err != nil {
		return nil, err
	}
	return proof.Verify(again, key)
}

func TestABundleProvesPlanCommitReviewAndVerdict(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, r, b := proven(t, address)
		parts, err := read(t, b, n.Ledger.Key())
		n.must(err)
		var said []string
		for _, p := range parts {
			said = append(said, p.What+" "+string(p.State))
			if p.What == "plan" && !strings.Contains(p.Why, "kim voted for it (signed with a passkey)") {
				t.Errorf("%+v", p)
			}
		}
		want := "instruction verified, dispatch verified, plan verified, commit verified, review verified, verdict verified, " +
			"instruction verified"
		if got := strings.Join(said, ", "); got != want {
			t.Errorf("%s", got)
		}
		for name, c := range map[string]struct {
			state amp.Proof
			why   string
			make  func(path string)
		}{
			"a clone":      {amp.Verified, "descends from", func(path string) { r.git("clone", "-q", r.path, path) }},
			"a bare clone": {amp.Verified, "descends from", func(path string) { r.git("clone", "-q", "--bare", r.path, path) }},
			"of another branch": {amp.Failed, "no such commit", func(path string) {
				r.git("clone", "-q", "--single-branch", "-b", "trunk", "file://"+r.path, path)
			}},
			"shallow": {amp.Unverified, "shallow", func(path string) {
				r.git("clone", "-q", "--depth", "1", "file://"+r.path, path)
			}},
			"without the branch": {amp.Unverified, "no branch", func(path string) {
				r.git("clone", "-q", "--bare", r.path, path)
				r.git("--git-dir", path, "symbolic-ref", "HEAD", "refs/heads/trunk")
				r.git("--git-dir", path, "branch", "-q", "-D", "feature/timer")
			}},
			"with the branch elsewhere": {amp.Failed, "not on the branch", func(path string) {
				r.git("clone", "-q", "--bare", r.path, path)
				r.git("--git-dir", path, "update-ref", "refs/heads/feature/timer", "trunk")
			}},
			"with another history": {amp.Failed, "no such commit", func(path string) { newRepo(t, path) }},
		} {
			path := filepath.Join(t.TempDir(), "clone")
			c.make(path)
			n.must(proof.CheckClone(t.Context(), parts, path))
			for _, p := range parts {
				if p.What == "commit" && (p.State != c.state || !strings.Contains(p.Why, c.why)) {
					t.Errorf("%s: %s, %s", name, p.State, p.Why)
				}
			}
		}
		if err := proof.CheckClone(t.Context(), parts, t.TempDir()); err == nil {
			t.Error("a folder without a repository is taken for a clone")
		}
	})
}

// mustBody are the kinds of entries that cannot be left out unnoticed.
func mustBody(kind string) bool {
	return strings.HasPrefix(kind, "task.") || strings.HasPrefix(kind, "review.") || kind == "gate.opened" ||
		kind == "gate.voted" || kind == "gate.resolved"
}

func TestWhateverIsChangedInABundleIsFoundAndNamed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, _, b := proven(t, address)
		key := n.Ledger.Key()
		if len(b.Signers) == 0 {
			t.Fatal("the passkey is not in the bundle")
		}
		found := func(name, says string, change func(b *task.Bundle)) {
			t.Helper()
			changed := *b
			changed.Entries, changed.Signers = slices.Clone(b.Entries), slices.Clone(b.Signers)
			change(&changed)
			if _, err := read(t, &changed, key); err == nil || !strings.Contains(fault.From(err).Message, says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for i, e := range b.Entries {
			name := fmt.Sprintf("entry %d (%s)", e.Seq, e.Kind)
			if mustBody(e.Kind) {
				found(name+" dropped", "", func(b *task.Bundle) { b.Entries = slices.Delete(b.Entries, i, i+1) })
				found(name+" erased", fmt.Sprintf("Entry %d (%s): its body was erased", e.Seq, e.Kind),
					func(b *task.Bundle) { b.Entries[i].Body, b.Entries[i].Salt = nil, "" })
			}
			if i > 0 {
				found(name+" swapped", "entries were swapped", func(b *task.Bundle) {
					b.Entries[i-1], b.Entries[i] = b.Entries[i], b.Entries[i-1]
				})
			}
			found(name+" with another body", "not the one that was signed", func(b *task.Bundle) {
				body := *e.Body + " "
				b.Entries[i].Body = &body
			})
			found(name+" with another's proof", "", func(b *task.Bundle) {
				b.Entries[i].Proof = b.Entries[(i+1)%len(b.Entries)].Proof
			})
		}
		for i := range b.Signers {
			found("a signer dropped", "vote of kim", func(b *task.Bundle) { b.Signers = slices.Delete(b.Signers, i, i+1) })
		}
		found("entries twice", "one is here twice", func(b *task.Bundle) { b.Entries = append(b.Entries[:1:1], b.Entries...) })
		found("another ledger's key", "another ledger", func(b *task.Bundle) { b.Key = otherKey })
		if _, err := read(t, b, otherKey); err == nil || !strings.Contains(err.Error(), "another ledger") {
			t.Errorf("verified with another ledger's key: %v", err)
		}
		n.keep(dispatch("T-2026-045", 1))
		other, err := n.tasks.Bundle(t.Context(), "default", "T-2026-045")
		n.must(err)
		found("an entry of another task", "it belongs to task:default:T-2026-045", func(b *task.Bundle) {
			b.Entries = append(b.Entries, other.Entries[0])
		})
		found("the entries of another task", "it belongs to", func(b *task.Bundle) { b.Entries = other.Entries })
		found("the number of another task", "it belongs to", func(b *task.Bundle) { b.Task.TaskID = "T-2026-045" })
	})
}

// TestAnyByteOfABundleCounts changes bytes all over a bundle. What is not signed is the policy, which says by which rules
// the task was replayed.
func TestAnyByteOfABundleCounts(t *testing.T) {
	t.Parallel()
	n, _, b := proven(t, storetest.SQLite(t))
	text := encode(b)
	policy := bytes.Index(text, []byte(`"policy":{`))
	unsigned := policy + bytes.IndexByte(text[policy:], '}')
	for at := 0; at < len(text); at += 251 {
		if at >= policy && at <= unsigned {
			continue
		}
		changed := slices.Clone(text)
		changed[at] ^= 1
		read, err := task.ReadBundle(changed)
		if err == nil {
			_, err = proof.Verify(read, n.Ledger.Key())
		}
		if err == nil {
			t.Errorf("byte %d: %s", at, changed[max(at-60, 0):min(at+20, len(changed))])
		}
	}
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
		text := testbed.Read(t, file)
		var shown amp.Record
		if err := json.Unmarshal(text, &shown); err != nil || shown.Status != n.status(taskT) || shown.Count != 1 {
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
