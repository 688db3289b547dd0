// Command man writes the man pages of signalbox, one for every command, into a folder: `make man`.
// It is not part of the program: the pages are made from the same tree of commands that --help shows,
// by cobra's generator.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra/doc"

	"signalbox/internal/cli"
	"signalbox/internal/server"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "Say where the pages go: go run ./internal/cli/man FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write makes the folder and writes the pages.
func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root := cli.Commands()
	root.DisableAutoGenTag = true // the same sources give the same pages
	header := &doc.GenManHeader{Section: "1", Source: "signalbox " + server.Version, Manual: "Signalbox"}
	if err := doc.GenManTree(root, header, folder); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err == nil {
		fmt.Printf("Wrote %d pages. Read one with `man %s`.\n", len(pages), filepath.Join(folder, "signalbox.1"))
	}
	return err
}
