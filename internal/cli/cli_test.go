package cli

import (
	"strings"
	"testing"

	"signalbox/internal/cli/command"
)

func TestEveryCommandIsDescribed(t *testing.T) {
	t.Parallel()
	root := newRoot(&command.App{})
	for _, c := range root.Commands() {
		for _, sub := range append(c.Commands(), c) {
			if sub.Short == "" || strings.HasSuffix(sub.Short, ".") {
				t.Errorf("%s is described as %q", sub.CommandPath(), sub.Short)
			}
		}
	}
}
