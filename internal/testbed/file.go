package testbed

import (
	"os"
	"path/filepath"
	"testing"
)

// Write writes a file that only its owner can read, in a folder that it makes where there is none.
func Write[T string | []byte](t testing.TB, path string, text T) {
	t.Helper()
	Folder(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Folder makes a folder that only its owner can enter, and the folders above it.
func Folder(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// Script writes a program for the shell, and returns its path.
func Script(t testing.TB, path, text string) string {
	t.Helper()
	Write(t, path, "#!/bin/sh\n"+text)
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return path
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

// ReadAny is the text of a file that need not be there yet.
func ReadAny(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
