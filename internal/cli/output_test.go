package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
)

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]string{
		-time.Minute: "0s ago", 5 * time.Second: "5s ago", 90 * time.Second: "1m ago", 3 * time.Hour: "3h ago", 80 * time.Hour: "3d ago",
	} {
		if got := since(time.Now().Add(-ago)); got != want {
			t.Errorf("%v is said as %s, want %s", ago, got, want)
		}
	}
}

func TestATableWithoutRowsSaysSo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table(&out, "There are none.", []string{"A", "B"}, nil)
	if out.String() != "There are none.\n" {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	table(&out, "", []string{"A", "LONG"}, [][]string{{"wide cell", ""}, {"x", "y"}})
	if want := "A          LONG\nwide cell\nx          y\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestATableIsNotFakedByWhatIsInIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table(&out, "", []string{"NAME", "ROLE"}, [][]string{{"a\nroot  admin", "x"}, {"b\x1b[2J", "x"}, {"c\tadmin", "x"}, {"\u202etoor", "x"}})
	if want := "NAME           ROLE\na\uFFFDroot  admin  x\nb\uFFFD[2J          x\nc\uFFFDadmin        x\n\uFFFDtoor          x\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestAnErrorChoosesItsExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{usage("like this"), 2, "signalbox: like this\n"},
		{fault.New(codeUnreachable, "gone"), 4, "signalbox: gone\n"},
		{fault.Wrap(errors.New("why\nso"), fault.Internal, "broken"), 1, "signalbox: broken\n  cause: why so\n"},
		{errors.New("plain"), 1, "signalbox: plain\n"},
	} {
		var out bytes.Buffer
		if code := report(&out, c.err); code != c.code || out.String() != c.says {
			t.Errorf("%v: exit code %d, %q", c.err, code, out.String())
		}
	}
}

func TestEveryCommandIsDescribed(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	for _, c := range root.Commands() {
		for _, sub := range append(c.Commands(), c) {
			if sub.Short == "" || strings.HasSuffix(sub.Short, ".") {
				t.Errorf("%s is described as %q", sub.CommandPath(), sub.Short)
			}
		}
	}
}
