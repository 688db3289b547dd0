package blob_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/blob/blobtest"
	"signalbox/internal/wire"
)

// stores are a folder, and a bucket of a real server.
func stores(t *testing.T) map[string]blob.Store {
	t.Helper()
	folder, err := blob.Open(t.TempDir() + "/deep/folder")
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := blob.OpenBucket(t.Context(), blobtest.S3(t))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]blob.Store{"folder": folder, "bucket": bucket}
}

func TestAStoreKeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			got, err := s.Put(t.Context(), "one", strings.NewReader("hello"), 5)
			if err != nil || got.Size != 5 || got.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
				t.Fatalf("%+v %v", got, err)
			}
			if _, err := s.Put(t.Context(), "one", strings.NewReader("other"), 5); err == nil {
				t.Error("a name was written twice")
			}
			if text := read(t, s, "one", 0); text != "hello" {
				t.Errorf("%q", text)
			}
			if text := read(t, s, "one", 3); text != "lo" {
				t.Errorf("from the fourth byte on: %q", text)
			}
			if _, err := s.Put(t.Context(), "two", strings.NewReader("123456"), 5); !errors.Is(err, blob.ErrTooLarge) {
				t.Errorf("%v", err)
			}
			if _, err := s.Put(t.Context(), "two", io.MultiReader(strings.NewReader("1"), failing{}), 5); err == nil {
				t.Error("half a file was kept")
			}
			if _, err := s.Get(t.Context(), "two"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what was too large is kept: %v", err)
			}
			if got, err := s.Put(t.Context(), "empty", strings.NewReader(""), 5); err != nil || got.Size != 0 ||
				read(t, s, "empty", 0) != "" {
				t.Errorf("%+v %v", got, err)
			}
			if names, err := s.Before(t.Context(), time.Now().Add(time.Hour)); err != nil || fmt.Sprint(names) != "[empty one]" {
				t.Errorf("%v %v", names, err)
			}
			if names, err := s.Before(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(names) != 0 {
				t.Errorf("%v %v", names, err)
			}
			for range 2 {
				if err := s.Remove(t.Context(), "one"); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Get(t.Context(), "one"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what was removed is there: %v", err)
			}
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the connection is gone") }

// read reads from a position on, by way of the end.
func read(t *testing.T, s blob.Store, name string, from int64) string {
	t.Helper()
	r, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := r.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNamesStayInTheirPlace(t *testing.T) {
	t.Parallel()
	for kind, s := range stores(t) {
		for _, name := range []string{
			"", "..", "../x", "a/b", "a.b", "a\x00b", ".hidden", "-x", "a?b", "a b",
			strings.Repeat("a", 129),
		} {
			if _, err := s.Put(t.Context(), name, strings.NewReader("x"), 1); err == nil {
				t.Errorf("%s: %q was written", kind, name)
			}
			if _, err := s.Get(t.Context(), name); err == nil {
				t.Errorf("%s: %q was read", kind, name)
			}
			if s.Remove(t.Context(), name) == nil {
				t.Errorf("%s: %q was removed", kind, name)
			}
		}
	}
}

func TestABucketOfManyPages(t *testing.T) {
	t.Parallel()
	b, err := blob.OpenBucket(t.Context(), blobtest.S3(t))
	if err != nil {
		t.Fatal(err)
	}
	const many = 1100 // a page has 1,000
	for i := range many {
		if _, err := b.Put(t.Context(), fmt.Sprintf("n%04d", i), strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := b.Before(t.Context(), time.Now().Add(time.Hour)); err != nil || len(names) != many {
		t.Errorf("%d %v", len(names), err)
	}
	if _, err := b.Put(t.Context(), "large", io.LimitReader(rand.Reader, 25<<20), 25<<20); err != nil {
		t.Errorf("the largest attachment: %v", err)
	}
}

func TestABucketThatIsNotThere(t *testing.T) {
	t.Parallel()
	o := blobtest.S3(t)
	for name, change := range map[string]func(*blob.S3){
		"another bucket":  func(o *blob.S3) { o.Bucket = "other" },
		"another secret":  func(o *blob.S3) { o.SecretKey = wire.NewSecret("guess") },
		"another address": func(o *blob.S3) { o.Endpoint = "http://127.0.0.1:9" },
	} {
		wrong := o
		change(&wrong)
		if _, err := blob.OpenBucket(t.Context(), wrong); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
}
