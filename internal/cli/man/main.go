// Command man writes the man pages of signalbox, one per command, into a folder: `make
// man`. It is not part of the program. The pages come from the same tree of commands
// that --help shows, through cobra's generator, so the two cannot differ.
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

// write makes the folder and writes the pages. It removes nothing: pages of commands that no
// longer exist stay until somebody deletes them. The pages depend on the sources alone, so two
// builds of one commit give the same files.
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
