package command_test

import (
	"bytes"
	"errors"
	"testing"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
)

func TestAnErrorChoosesItsExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{command.Usage("like this"), 2, "signalbox: like this\n"},
		{fault.New(api.Unreachable, "gone"), 4, "signalbox: gone\n"},
		{fault.Wrap(errors.New("why\nso"), fault.Internal, "broken"), 1, "signalbox: broken\n  cause: why so\n"},
		{errors.New("plain"), 1, "signalbox: plain\n"},
	} {
		var out bytes.Buffer
		if code := command.Report(output.NewPrinter(&out), c.err); code != c.code || out.String() != c.says {
			t.Errorf("%v: exit code %d, %q", c.err, code, out.String())
		}
	}
}
