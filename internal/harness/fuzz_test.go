package harness_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"

	"signalbox/internal/harness"
	"signalbox/internal/testbed"
)

// What is read of a stream is what was written to it, line by line.
func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"))
	f.Add([]byte{0xff, '\n', 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(text), 16)
		var got [][]byte
		for {
			line, err := harness.ReadLine(r)
			if err != nil {
				break
			}
			got = append(got, line)
		}
		want := bytes.Split(text, []byte("\n"))
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		if len(got) != len(want) {
			t.Fatalf("%d lines of %d", len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], bytes.TrimSuffix(want[i], []byte("\r"))) {
				t.Fatalf("%q is %q", want[i], got[i])
			}
		}
	})
}

// Whatever comes, it is read without a panic, and what is taken is JSON.
func FuzzEvent(f *testing.F) {
	text := testbed.Read(f, "../conform/harness.json")
	var file struct {
		Cases []struct{ Send json.RawMessage }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		f.Fatal(err)
	}
	for _, c := range file.Cases {
		f.Add([]byte(c.Send))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if harness.Checks(text) && !json.Valid(text) {
			t.Fatalf("%q is taken and is no JSON", text)
		}
	})
}
