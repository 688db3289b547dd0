package proxy

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// cutAll feeds a stream in the given pieces and returns its frames, copied.
func cutAll(pieces ...[]byte) (all []frame) {
	var r frames
	take := func(f frame) {
		all = append(all, frame{slices.Clone(f.raw), f.event, slices.Clone(f.data)})
	}
	for _, piece := range pieces {
		r.push(piece)
		for f, ok := r.next(); ok; f, ok = r.next() {
			take(f)
		}
	}
	if f, ok := r.rest(); ok {
		take(f)
	}
	return all
}

var frameCmp = cmp.AllowUnexported(frame{})

func TestAFrameHasItsFieldsAndItsBytes(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []frame
	}{
		"event and data":     {"event: a\ndata: 1\n\n", []frame{{[]byte("event: a\ndata: 1\n\n"), "a", []byte("1")}}},
		"no space":           {"data:1\n\n", []frame{{[]byte("data:1\n\n"), "", []byte("1")}}},
		"two lines of data":  {"data: 1\ndata: 2\n\n", []frame{{[]byte("data: 1\ndata: 2\n\n"), "", []byte("1\n2")}}},
		"carriage returns":   {"data: 1\r\n\r\ndata: 2\r\n\r\n", []frame{{[]byte("data: 1\r\n\r\n"), "", []byte("1")}, {[]byte("data: 2\r\n\r\n"), "", []byte("2")}}},
		"only those":         {"data: 1\r\rdata: 2\r\rx", []frame{{[]byte("data: 1\r\r"), "", []byte("1")}, {[]byte("data: 2\r\r"), "", []byte("2")}, {[]byte("x"), "", nil}}},
		"a comment":          {": hi\n\n", []frame{{[]byte(": hi\n\n"), "", nil}}},
		"a mark":             {"\xef\xbb\xbfdata: 1\n\n", []frame{{[]byte("\xef\xbb\xbfdata: 1\n\n"), "", []byte("1")}}},
		"not ended":          {"data: 1\n", []frame{{[]byte("data: 1\n"), "", []byte("1")}}},
		"an empty line more": {"\ndata: 1\n\n", []frame{{[]byte("\n"), "", nil}, {[]byte("data: 1\n\n"), "", []byte("1")}}},
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
			joined = append(joined, f.raw...)
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
		for _, form := range []*form{messagesForm, chatForm, responsesForm} {
			m := form.machine()
			for _, one := range whole {
				if _, err := m.next(one); err != nil {
					break
				}
				m.sent()
			}
			m.ending("x", "m", "gate_1")
			m.failing("k", "m")
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true,"max_tokens":5,"tools":[{"name":"bash","type":"bash_20250124"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]}`))
	f.Add([]byte(`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"x"}],"previous_response_id":"r","conversation":{"id":"c"}}`))
	f.Add([]byte(`{"requests":[{"custom_id":"a","params":{"model":"m"}}]}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		for _, form := range []*form{messagesForm, chatForm, responsesForm, nil} {
			q := request{form: form, body: body}
			if q.read() == nil {
				e := q.event("", "")
				e.Complete()
			}
		}
		for _, form := range []*form{messagesForm, chatForm, responsesForm} {
			_, _, _ = form.reply(body)
		}
	})
}
