package testbed

import (
	"os"
	"testing"
)

// Write writes a file that only its owner can read.
func Write[T string | []byte](t testing.TB, path string, text T) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Read reads a file that has to be there.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
