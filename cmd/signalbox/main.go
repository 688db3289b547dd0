// Command signalbox is a self-hosted control plane for AI agents. It calls package
// cli and does nothing else.
package main

import (
	"os"

	"signalbox/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
