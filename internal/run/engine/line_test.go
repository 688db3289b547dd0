package engine_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"signalbox/internal/run/engine"
)

func read(r io.Reader) (lines []string, tooLong int) {
	for l := engine.NewLines(r); ; {
		line, long, err := l.Next()
		if err != nil {
			return lines, tooLong
		}
		if long {
			tooLong++
			continue
		}
		lines = append(lines, string(line))
	}
}

func TestLinesEndAtLineFeeds(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"one", "a\n", []string{"a"}},
		{"an empty one", "\n\nb\n", []string{"", "", "b"}},
		{"the last without an end", "a\nb", []string{"a", "b"}},
		{"carriage returns stay", "a\r\nb\r", []string{"a\r", "b\r"}},
		{"long ones", long + "\n" + long + "y", []string{long, long + "y"}},
		{"the size of the buffer", strings.Repeat("z", 64<<10) + "\nq", []string{strings.Repeat("z", 64<<10), "q"}},
		{"other separators", "a\u2028b\u0085c\n", []string{"a\u2028b\u0085c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{
				strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)),
				iotest.DataErrReader(strings.NewReader(c.in)),
			} {
				got, _ := read(r)
				if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
					t.Errorf("%d lines, want %d", len(got), len(c.want))
				}
			}
		})
	}
}

func TestAnErrorOfTheReaderIsTheEnd(t *testing.T) {
	l := engine.NewLines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	for _, want := range []string{"a", "b"} {
		if line, _, err := l.Next(); string(line) != want || err != nil {
			t.Errorf("%q, %v", line, err)
		}
	}
	if _, _, err := l.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}

// endless is a line of n bytes, and then another.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	k := min(e.n, len(p))
	for i := range p[:k] {
		p[i] = 'x'
	}
	e.n -= k
	return k, nil
}

// TestALineOf300MBIsLeftOutInBoundedMemory reads it between two others.
func TestALineOf300MBIsLeftOutInBoundedMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	got, tooLong := read(io.MultiReader(strings.NewReader("first\n"), &endless{300 << 20}, strings.NewReader("\nlast")))
	runtime.ReadMemStats(&after)
	if strings.Join(got, " ") != "first last" || tooLong != 1 {
		t.Errorf("%d lines, %d too long", len(got), tooLong)
	}
	if grown := after.HeapSys - before.HeapSys; after.HeapSys > before.HeapSys && grown > 32<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, _ := read(bytes.NewReader(in))
		want := strings.Split(string(in), "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
