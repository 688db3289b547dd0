package form

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// cutAll feeds a stream in the given pieces and returns its frames, copied.
func cutAll(pieces ...[]byte) (all []Frame) {
	var r Frames
	take := func(f Frame) {
		all = append(all, Frame{slices.Clone(f.Raw), slices.Clone(f.Data)})
	}
	for _, piece := range pieces {
		r.Push(piece)
		for f, ok := r.Next(); ok; f, ok = r.Next() {
			take(f)
		}
	}
	if f, ok := r.Rest(); ok {
		take(f)
	}
	return all
}

var frameCmp = cmp.AllowUnexported(Frame{})

func TestAFrameHasItsFieldsAndItsBytes(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []Frame
	}{
		"event and data":    {"event: a\ndata: 1\n\n", []Frame{{[]byte("event: a\ndata: 1\n\n"), []byte("1")}}},
		"no space":          {"data:1\n\n", []Frame{{[]byte("data:1\n\n"), []byte("1")}}},
		"two lines of data": {"data: 1\ndata: 2\n\n", []Frame{{[]byte("data: 1\ndata: 2\n\n"), []byte("1\n2")}}},
		"carriage returns": {
			"data: 1\r\n\r\ndata: 2\r\n\r\n",
			[]Frame{{[]byte("data: 1\r\n\r\n"), []byte("1")}, {[]byte("data: 2\r\n\r\n"), []byte("2")}},
		},
		"only those": {
			"data: 1\r\rdata: 2\r\rx",
			[]Frame{{[]byte("data: 1\r\r"), []byte("1")}, {[]byte("data: 2\r\r"), []byte("2")}, {[]byte("x"), nil}},
		},
		"a comment":          {": hi\n\n", []Frame{{[]byte(": hi\n\n"), nil}}},
		"a mark":             {"\xef\xbb\xbfdata: 1\n\n", []Frame{{[]byte("\xef\xbb\xbfdata: 1\n\n"), []byte("1")}}},
		"not ended":          {"data: 1\n", []Frame{{[]byte("data: 1\n"), []byte("1")}}},
		"an empty line more": {"\ndata: 1\n\n", []Frame{{[]byte("\n"), nil}, {[]byte("data: 1\n\n"), []byte("1")}}},
	} {
		if diff := cmp.Diff(c.want, cutAll([]byte(c.in)), frameCmp); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Wherever the bytes are split, the frames are the same, and together they are the stream.
func TestFramesDoNotDependOnHowTheStreamIsSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(rapid.StringOf(rapid.SampledFrom([]rune("dat:e ent1\r\n\n\r"))).Draw(t, "stream"))
		whole := cutAll(text)
		var one [][]byte
		for i := range text {
			one = append(one, text[i:i+1])
		}
		if diff := cmp.Diff(whole, cutAll(one...), frameCmp); diff != "" {
			t.Fatal(diff)
		}
		var joined []byte
		for _, f := range whole {
			joined = append(joined, f.Raw...)
		}
		if !bytes.Equal(joined, text) {
			t.Fatalf("%q became %q", text, joined)
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("event: a\ndata: {\"type\":\"ping\"}\n\n"), 3)
	f.Add([]byte("data: 1\r\n\r\ndata: 2\r\r"), 1)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		at = max(0, min(at, len(text)))
		whole, parts := cutAll(text), cutAll(text[:at], text[at:])
		if diff := cmp.Diff(whole, parts, frameCmp); diff != "" {
			t.Fatal(diff)
		}
		for _, form := range []*Form{Messages, Chat, Responses} {
			m := form.Machine()
			for _, one := range whole {
				if _, err := m.Next(one); err != nil {
					break
				}
				m.Sent()
			}
			m.Ending("x", "m", "gate_1")
			m.Failing("k", "m")
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add(
		[]byte(
			`{"id":"m","model":"m","content":[{"type":"tool_use","id":"t","name":"bash","input":{"a":1}}],` +
				`"usage":{"input_tokens":1}}`,
		),
	)
	f.Add([]byte(`{"id":"c","choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{"}}]}}]}`))
	f.Add([]byte(`{"id":"r","output":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, form := range []*Form{Messages, Chat, Responses} {
			_, calls, err := form.Reply(body)
			if err == nil && len(calls) > 0 && !form.MayCall(body) {
				t.Fatalf("%s holds a call and none of the words of one", body)
			}
		}
	})
}
