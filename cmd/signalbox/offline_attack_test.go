package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/testbed"
)

// What an agent that may write to the folder can do to its spool is seen.
func TestASpoolThatWasChangedIsAnAlarm(t *testing.T) {
	t.Parallel()
	edit := func(change func(lines []string) []string) func(*testing.T, string) {
		return func(t *testing.T, folder string) {
			file := filepath.Join(folder, "steps")
			text := testbed.Read(t, file)
			lines := change(strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n"))
			for i := range lines {
				lines[i] = strings.TrimSuffix(lines[i], "\n") + "\n"
			}
			testbed.Write(t, file, strings.Join(lines, ""))
		}
	}
	all := []string{"/1", "/2", "/3", "/4"}
	for _, c := range []struct {
		name   string
		change func(*testing.T, string)
		alarm  string
		left   []string // what is recorded all the same
	}{
		{"edited", edit(func(l []string) []string { l[2] = strings.Replace(l[2], "/2", "/9", 1); return l }), "spool_broken", []string{"/1", "/3", "/4"}},
		{"removed", edit(func(l []string) []string { return slices.Delete(l, 2, 3) }), "spool_broken", []string{"/1", "/3", "/4"}},
		{"the beginning removed", edit(func(l []string) []string { return l[3:] }), "spool_broken", []string{"/3", "/4"}},
		{"reordered", edit(func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }), "spool_broken", []string{"/1", "/3", "/2", "/4"}},
		{"made up", edit(func(l []string) []string { return append(l, `{"n":5,"decision":"allow"}`) }), "spool_broken", all},
		{"the file removed", func(t *testing.T, folder string) { remove(t, filepath.Join(folder, "steps")) }, "spool_replaced", nil},
		{"emptied", edit(func([]string) []string { return nil }), "spool_replaced", nil},
		{"the key removed", func(t *testing.T, folder string) { remove(t, filepath.Join(folder, "key")) }, "spool_replaced", nil},
		{"all removed", func(t *testing.T, folder string) {
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
		}, "spool_replaced", nil},
		{"a link instead", func(t *testing.T, folder string) {
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			if err := os.Rename(filepath.Join(folder, "steps"), elsewhere); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(elsewhere, filepath.Join(folder, "steps")); err != nil {
				t.Fatal(err)
			}
		}, "spool_replaced", nil},
	} {
		testbed.Parallel(t, c.name, func(t *testing.T) {
			o := goOfflineListed(t)
			o.kill()
			for _, path := range all {
				if !o.use("Read", path) {
					t.Fatalf("%s is refused", path)
				}
			}
			c.change(t, o.spool)
			o.again()
			o.use("Read", "/online")
			o.use("Read", "/online") // the first one finds out, and the second one says so
			var left []string
			for _, s := range o.steps() {
				left = append(left, s.Path)
			}
			if diff := cmp.Diff(c.left, left); diff != "" {
				t.Error(diff)
			}
			if kinds := o.alarms(); !slices.Contains(kinds, c.alarm) {
				t.Errorf("the alarms are %v, and should have %s", kinds, c.alarm)
			}
			// The spool is good again.
			o.kill()
			if !o.use("Read", "/after") {
				t.Error("the spool cannot be used any more")
			}
			o.again()
			o.use("Read", "/online")
			steps := o.steps()
			if last := steps[len(steps)-1]; last.Path != "/after" || last.Problem != "" {
				t.Errorf("the last step is %+v", last)
			}
		})
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// A list is what the server signed, for this spool, and until it ends.
func TestAListCannotBeMadeWider(t *testing.T) {
	t.Parallel()
	o := goOfflineListed(t)
	file := filepath.Join(o.spool, "list")
	good := testbed.Read(t, file)
	// Another server's list, for this very spool.
	other := goOffline(t, strings.Replace(offlinePolicy, `"Grep"]`, `"Grep", "TodoRead"]`, 1))
	for _, name := range []string{"key", "steps"} {
		text := testbed.Read(t, filepath.Join(o.spool, name))
		testbed.Write(t, filepath.Join(other.spool, name), text)
	}
	other.use("Read", "/0")
	foreign := testbed.Read(t, filepath.Join(other.spool, "list"))
	if !bytes.Contains(foreign, []byte("TodoRead")) {
		t.Fatalf("%s", foreign)
	}
	o.kill()
	for name, list := range map[string][]byte{
		"wider":             bytes.Replace(good, []byte(`"Grep"`), []byte(`"Bash"`), 1),
		"longer":            bytes.Replace(good, []byte(`"until":"20`), []byte(`"until":"21`), 1),
		"of another server": foreign,
		"none":              []byte("{}"),
		"empty":             nil,
		"twice":             append(slices.Clone(good), good...),
	} {
		testbed.Write(t, file, list)
		for _, tool := range []string{"Read", "Bash", "TodoRead"} {
			if o.use(tool, "/x") {
				t.Errorf("with a list that is %s, %s is allowed", name, tool)
			}
		}
	}
	testbed.Write(t, file, good)
	if !o.use("Read", "/x") || o.use("TodoRead", "/x") {
		t.Error("the list of the server is not taken")
	}
	// A hook with another key of a server, as a client that was told to trust somebody else.
	i := slices.Index(o.args, "--trust") + 1
	o.args = slices.Clone(o.args)
	o.args[i] = other.args[slices.Index(other.args, "--trust")+1]
	if o.use("Read", "/x") {
		t.Error("the list of a server that is not trusted is taken")
	}
}

// The spool of another agent is refused, and seen.
func TestTheSpoolOfAnotherAgentIsRefused(t *testing.T) {
	t.Parallel()
	o := goOfflineListed(t)
	secret := regexp.MustCompile(`rs-amp-[0-9a-z]+`).FindString(mustRun(t, o.dir, "agents", "add", "other"))
	key := filepath.Join(t.TempDir(), "key")
	testbed.Write(t, key, secret)
	o.kill()
	o.use("Read", "/1")
	o.again()
	if !o.use("Read", "/2", "--key-file", key) {
		t.Error("the server does not decide about an agent with the spool of another")
	}
	if steps := o.steps(); steps != nil {
		t.Errorf("the steps of one agent were taken from another: %+v", steps)
	}
	if kinds := o.alarms(); !slices.Contains(kinds, "spool_foreign") {
		t.Errorf("the alarms are %v", kinds)
	}
	o.use("Read", "/3")
	o.wantSteps(unsupervised{1, "Read", "/1", "allow", ""})
}

// An agent that takes the socket away gets what the rule allows, and nothing else.
func TestBlockingTheSocketGetsWhatTheRuleAllows(t *testing.T) {
	t.Parallel()
	o := goOfflineListed(t)
	socket := filepath.Join(o.dir, "ahp.sock")
	if err := os.Rename(socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	if !o.use("Read", "/1") || o.use("Bash", "/2") || o.use("WebFetch", "/3") {
		t.Error("without the socket other tools are allowed than the rule names")
	}
	if err := os.Rename(socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	o.use("Read", "/4")
	o.wantSteps(unsupervised{1, "Read", "/1", "allow", ""}, unsupervised{2, "Bash", "/2", "refused", ""},
		unsupervised{3, "WebFetch", "/3", "refused", ""})
}
