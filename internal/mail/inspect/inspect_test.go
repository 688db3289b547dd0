package inspect_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"slices"
	"testing"

	"signalbox/internal/mail/inspect"
)

// FuzzFile: whatever is in a file, it has an outcome and a reason for what is not clean.
func FuzzFile(f *testing.F) {
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	part, _ := w.Create("a.txt")
	_, _ = part.Write([]byte("x"))
	_ = w.Close()
	var g bytes.Buffer
	gz := gzip.NewWriter(&g)
	_, _ = gz.Write(z.Bytes())
	_ = gz.Close()
	for _, seed := range [][]byte{
		nil, []byte("hello"), z.Bytes(), g.Bytes(), []byte("PK\x03\x04"), []byte("\x1f\x8b"),
		[]byte("MZ"),
	} {
		f.Add(seed, "application/octet-stream")
	}
	f.Add([]byte("hello"), "text/plain")
	f.Fuzz(func(t *testing.T, data []byte, media string) {
		status, note, err := inspect.File(bytes.NewReader(data), int64(len(data)), media)
		if err != nil || !slices.Contains([]string{inspect.Clean, inspect.Suspicious, inspect.Rejected}, status) ||
			(note == "") != (status == inspect.Clean) {
			t.Fatalf("%s %q %v", status, note, err)
		}
	})
}
