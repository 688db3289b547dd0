package file_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/file"
)

func TestAFileIsTheOldOneOrTheNewOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	old, changed := bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 1<<20)
	want := func(content []byte, mode fs.FileMode) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%v %v", info.Mode(), err)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("%v %v", all, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(file.Replace(path, old, 0o644))
	want(old, 0o644)

	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, old) && !bytes.Equal(got, changed) {
				t.Errorf("%d bytes, %v", len(got), err)
				return
			}
		}
	})
	for range 20 {
		must(file.Replace(path, changed, 0o600))
		must(file.Replace(path, old, 0o600))
	}
	close(done)
	reading.Wait()
	want(old, 0o600)
}

func TestAFileThatIsThereIsNotCreated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	made := make(chan string, 8)
	var creating sync.WaitGroup
	for _, who := range strings.Split("abcdefgh", "") {
		creating.Go(func() {
			switch err := file.Create(path, []byte(who), 0o600); {
			case err == nil:
				made <- who
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	creating.Wait()
	close(made)
	first := <-made
	if got, err := os.ReadFile(path); err != nil || string(got) != first {
		t.Errorf("%q %q %v", got, first, err)
	}
	for other := range made {
		t.Errorf("%s made it too", other)
	}
}

func TestTheStateOfAUserIsBelowXDGStateHomeOrHome(t *testing.T) {
	for _, c := range []struct{ state, home, want string }{
		{"/state", "/ada", "/state/signalbox/spool/one"},
		{"", "/ada", "/ada/.local/state/signalbox/spool/one"},
		{"state", "/ada", "/ada/.local/state/signalbox/spool/one"}, // the specification has relative ones ignored
	} {
		t.Setenv("XDG_STATE_HOME", c.state)
		t.Setenv("HOME", c.home)
		if got, err := file.State("spool", "one"); err != nil || got != c.want {
			t.Errorf("%+v: %s %v", c, got, err)
		}
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if got, err := file.State("spool"); err == nil || !strings.Contains(err.Error(), "Set HOME") {
		t.Errorf("%q %v", got, err)
	}
}
