package blob_test

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/blob"
)

func TestAFolderKeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	f, err := blob.Open(t.TempDir() + "/deep/folder")
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Put(t.Context(), "one", strings.NewReader("hello"), 5)
	if err != nil || got.Size != 5 || got.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := f.Put(t.Context(), "one", strings.NewReader("other"), 5); err == nil {
		t.Error("a name was written twice")
	}
	file, err := f.Get(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(file)
	_ = file.Close()
	if string(text) != "hello" {
		t.Errorf("%q", text)
	}
	if _, err := f.Put(t.Context(), "two", strings.NewReader("123456"), 5); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := f.Get(t.Context(), "two"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was too large is kept: %v", err)
	}
	if names, err := f.Before(t.Context(), time.Now().Add(time.Hour)); err != nil || len(names) != 1 || names[0] != "one" {
		t.Errorf("%v %v", names, err)
	}
	for range 2 {
		if err := f.Remove(t.Context(), "one"); err != nil {
			t.Error(err)
		}
	}
}

func TestNamesStayInTheFolder(t *testing.T) {
	t.Parallel()
	f, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "..", "../x", "a/b", "a.b", "a\x00b", ".hidden", "-x", strings.Repeat("a", 129)} {
		if _, err := f.Put(t.Context(), name, strings.NewReader("x"), 1); err == nil {
			t.Errorf("%q was written", name)
		}
		if _, err := f.Get(t.Context(), name); err == nil {
			t.Errorf("%q was read", name)
		}
		if f.Remove(t.Context(), name) == nil {
			t.Errorf("%q was removed", name)
		}
	}
}
