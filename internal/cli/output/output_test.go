package output_test

import (
	"bytes"
	"testing"
	"time"

	"signalbox/internal/cli/output"
)

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234",
		-123: "-123",
	} {
		if got := output.Thousands(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]string{
		-time.Minute: "0s ago", 5 * time.Second: "5s ago", 90 * time.Second: "1m ago", 3 * time.Hour: "3h ago",
		80 * time.Hour: "3d ago",
	} {
		if got := output.Since(time.Now().Add(-ago)); got != want {
			t.Errorf("%v is said as %s, want %s", ago, got, want)
		}
	}
}

func TestATableWithoutRowsSaysSo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	output.NewPrinter(&out).Table("There are none.", []string{"A", "B"}, nil)
	if out.String() != "There are none.\n" {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	output.NewPrinter(&out).Table("", []string{"A", "LONG"}, [][]string{{"wide cell", ""}, {"x", "y"}})
	if want := "A          LONG\nwide cell\nx          y\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestATableIsNotFakedByWhatIsInIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	output.NewPrinter(&out).Table("", []string{"NAME", "ROLE"},
		[][]string{{"a\nroot  admin", "x"}, {"b\x1b[2J", "x"}, {"c\tadmin", "x"}, {"\u202etoor", "x"}})
	if want := "NAME                  ROLE\na⟨U+000A⟩root  admin  x\nb⟨U+001B⟩[2J          x\n" +
		"c⟨U+0009⟩admin        x\n⟨U+202E⟩toor          x\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestLinesAreBrokenForAPager(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "a\n": "a\n", "a": "a\n", "\n\n": "\n\n", "abc\n": "abc\n", "abcd\nx\n": "abc\nd\nx\n",
		"abcdefg": "abc\ndef\ng\n", "東京都": "東\n京\n都\n", "e\u0301e\u0301e\u0301e": "e\u0301e\u0301e\u0301\ne\n",
	} {
		if got := output.Wrap(text, 3); got != want {
			t.Errorf("%q is broken into %q", text, got)
		}
	}
}
