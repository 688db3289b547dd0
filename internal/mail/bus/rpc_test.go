package bus

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzLine: whatever a component sends, it is answered with one line of JSON-RPC, or not at
// all if it is a notification.
func FuzzLine(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","method":"bus.send","params":{"to":"a","payload":1},"id":1}`,
		`{"jsonrpc":"2.0","method":"bus.notify","params":{"event":"x"}}`,
		`[]`, `{}`, `null`, `{"jsonrpc":"2.0","id":"\u0000","method":"\ud800"}`,
		`{"id":1e999,"jsonrpc":"2.0","method":"bus.discover","params":[{}]}`, "\xff", "",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b := New(Config{Entity: "x"}, nil)
		l := &line{bus: b, out: make(chan []byte, maxWaiting), limit: newLimiter()}
		if _, err := l.register(request{params: []byte(`{"name":"me"}`)}); err != nil {
			t.Fatal(err)
		}
		r, err := parse(text)
		var result any
		if err == nil {
			result, err = l.handle(t.Context(), r)
		}
		out := answer(r.id, result, err)
		if !json.Valid(out) || bytes.Count(out, []byte("\n")) != 1 || !bytes.HasPrefix(out, []byte(`{"jsonrpc":"2.0",`)) {
			t.Errorf("%q is answered with %q", text, out)
		}
	})
}

// A line that is too long is passed over, and the next is read.
func TestLinesHaveALimit(t *testing.T) {
	t.Parallel()
	const most = 100
	for _, n := range []int{0, 1, most - 1, most, most + 1, 5000, 200_000} {
		in := bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", n)+"\nnext\n"), 16)
		got, err := readLine(in, most)
		_, tooLong := errors.AsType[*rpcError](err)
		if tooLong != (n > most) || !tooLong && len(got) != n {
			t.Errorf("%d bytes: %d %v", n, len(got), err)
		}
		if next, err := readLine(in, most); string(next) != "next" || err != nil {
			t.Errorf("after %d bytes: %q %v", n, next, err)
		}
	}
}
