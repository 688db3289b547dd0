package form

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/price"
)

func TestUsageIsAskedForAndNothingElseIsChanged(t *testing.T) {
	const ask = `"stream_options":{"include_usage":true}`
	for _, c := range []struct{ in, want string }{ // want is "" where nothing is to be changed
		{`{"stream":true}`, `{"stream":true,` + ask + `}`},
		{" {\n \"stream\" : true , \"x\":[1, 2] }\n", " {\n \"stream\" : true , \"x\":[1, 2] ," + ask + "}\n"},
		{`{"stream":true,"stream_options":null}`, `{"stream":true,` + ask + `}`},
		{`{"stream":true,"stream_options":{}}`, `{"stream":true,` + ask + `}`},
		{
			`{"stream_options":{"include_obfuscation":false} ,"stream":true}`,
			`{"stream_options":{"include_obfuscation":false,"include_usage":true} ,"stream":true}`,
		},
		{`{"stream":true,"stream_options":{"include_usage":false}}`, `{"stream":true,` + ask + `}`},
		{`{"stream":true,"stream_options":{"include_usage": null }}`, `{"stream":true,"stream_options":{"include_usage": true }}`},
		{`{"stream":true,"stream_options":{"include_us\u0061ge":false}}`, `{"stream":true,"stream_options":{"include_us\u0061ge":true}}`},
		// Twice: whichever the provider reads, it is asked.
		{
			`{"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}`,
			`{"stream":true,"stream_options":{"include_usage":true,"include_usage":true}}`,
		},
		{
			`{"stream_options":{"include_usage":true},"stream":true,"stream_options":{"include_usage":false}}`,
			`{"stream_options":{"include_usage":true},"stream":true,"stream_options":{"include_usage":true}}`,
		},
		// In other letters it is another member to the provider, and ours comes last for those that are not strict.
		{`{"stream":true,"Stream_Options":{"include_usage":false}}`, `{"stream":true,"Stream_Options":{"include_usage":false},` + ask + `}`},
		{
			`{"stream":true,"stream_options":{"Include_Usage":false}}`,
			`{"stream":true,"stream_options":{"Include_Usage":false,"include_usage":true}}`,
		},
		{`{"stream":true,"messages":[{"stream_options":{"include_usage":true}}]}`, `{"stream":true,"messages":[{"stream_options":{"include_usage":true}}],` + ask + `}`},
		{`{"str\u0065am":true}`, `{"str\u0065am":true,` + ask + `}`},
		{`{"stream":true,"stream_options":{"include_usage":true}}`, ``},
		{`{"stream":false}`, ``},
		{`{}`, ``},
		{`{"stream":"true"}`, ``},
		{`{"stream":true,"stream":false}`, ``},
		{`{"stream":true,"stream":true}`, ``},
		// What the provider refuses it is to refuse.
		{`{"stream":true,"stream_options":"include_usage"}`, ``},
		{`{"stream":true,"stream_options":{"include_usage":"false"}}`, ``},
		{`{"stream":true,"stream_options":[]}`, ``},
		{`{"stream":true`, ``},
		{``, ``},
	} {
		got, added := AskForUsage([]byte(c.in))
		if want := c.want; added != (want != "") || want != "" && string(got) != want || want == "" && string(got) != c.in {
			t.Errorf("%s became %s (%t), and should be %s", c.in, got, added, want)
		}
	}
}

// A stream whose usage was asked for by us reaches the client as if it had not been, wherever it is split.
func TestAStreamLosesExactlyTheUsageThatWasAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "line end")
		space := rapid.SampledFrom([]string{"", " "}).Draw(t, "space")
		var with, without []byte
		put := func(to *[]byte, data string) {
			*to = append(*to, "data:"+space+data+end+end...)
		}
		for range rapid.IntRange(0, 6).Draw(t, "chunks") {
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0: // a comment, or an event without data
				text := rapid.SampledFrom([]string{": \"usage\":null", "event: x", "id: 1"}).Draw(t, "line") + end + end
				with, without = append(with, text...), append(without, text...)
				continue
			case 1: // the first chunk of Azure
				put(&with, `{"choices":[],"prompt_filter_results":[{"usage":null}],"usage":null}`)
				put(&without, `{"choices":[],"prompt_filter_results":[{"usage":null}]}`)
				continue
			}
			words, _ := json.Marshal(rapid.StringOf(rapid.SampledFrom([]rune("\"usage\":null,{}[] é\\"))).Draw(t, "words"))
			members := []string{
				`"id":` + space + `"c"`, `"choices":[{"index":0,"delta":{"content":` + string(words) + `,"usage":null}}]`,
				`"usage"` + space + `:` + space + `null`,
			}
			members = rapid.Permutation(members).Draw(t, "order")
			comma := "," + rapid.SampledFrom([]string{"", " "}).Draw(t, "gap")
			put(&with, "{"+space+strings.Join(members, comma)+space+"}")
			members = slices.DeleteFunc(members, func(m string) bool { return strings.HasPrefix(m, `"usage"`) })
			put(&without, "{"+space+strings.Join(members, comma)+space+"}")
		}
		put(&with, rapid.SampledFrom([]string{
			`{"id":"c","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`,
			`{"usage":{"prompt_tokens":7,"completion_tokens":3},"choices": [ ] ,"id":"c"}`,
			`{"usage":{"prompt_tokens":7,"completion_tokens":3},"object":"chat.completion.chunk"}`,
		}).Draw(t, "usage"))
		put(&with, "[DONE]")
		put(&without, "[DONE]")
		var frames Frames
		var got []byte
		m := Chat.Machine()
		take := func(f Frame) {
			if _, err := m.Next(f); err != nil {
				t.Fatal(err)
			}
			got = append(got, f.WithoutUsage()...)
		}
		for rest := with; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			frames.Push(rest[:n])
			for f, ok := frames.Next(); ok; f, ok = frames.Next() {
				take(f)
			}
			rest = rest[n:]
		}
		if f, ok := frames.Rest(); ok {
			take(f)
		}
		if !bytes.Equal(got, without) {
			t.Fatalf("the client gets\n%q and not\n%q", got, without)
		}
		if u := m.Facts(); u.Usage.Input != 7 || u.Usage.Output != 3 || !u.Reported {
			t.Fatalf("%+v", u)
		}
	})
}

func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"stream":true,"stream_options":{"include_usage":false}}`))
	f.Add([]byte(`{"usage":null,"choices":[]}`))
	f.Add([]byte(`{"usage":{"prompt_tokens":1e999,"prompt_tokens_details":{"cached_tokens":-1}},"choices":[ ]}`))
	f.Add([]byte(`{"custom_id":"a","result":{"type":"succeeded","message":{"usage":{"iterations":[{"input_tokens":5}]}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		asked, added := AskForUsage(slices.Clone(text))
		if json.Valid(text) && !json.Valid(asked) {
			t.Fatalf("%s became %s", text, asked)
		}
		if _, again := AskForUsage(asked); added && again {
			t.Fatalf("%s is asked twice", asked)
		}
		for _, one := range cutAll(slices.Concat([]byte("data: "), text, []byte("\n\n"))) {
			for _, left := range cutAll(one.WithoutUsage()) {
				if json.Valid(one.Data) && !json.Valid(left.Data) {
					t.Fatalf("%s became %s", one.Data, left.Data)
				}
			}
		}
		textIn(text)
		BatchLine(text)
		BatchRequest(text)
		Jobs(text)
		var about Facts
		about.takeOpenAI(text, "x")
		about.takeMessage(readMessageUsage(text), true)
		if u := about.Usage; u.Bounded() != u || u.Tokens() < 0 {
			t.Fatalf("%s is %+v", text, u)
		}
	})
}

func TestTheTextThatAModelWroteIsMeasured(t *testing.T) {
	for in, want := range map[string]int64{
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"12345"}}`:                5,
		`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"a"}}`:             4,
		`{"type":"response.output_text.delta","delta":"1234567"}`:                                              7,
		`{"id":"text","choices":[{"delta":{"content":"abc","tool_calls":[{"function":{"arguments":"{}"}}]}}]}`: 5,
		`{"text" : "ab" , "other":"text", "text":["x"], "x":{"text":1}}`:                                       2,
		`{"text":"never ends`: 0,
		``:                    0,
	} {
		if got := textIn([]byte(in)); got != want {
			t.Errorf("%s has %d bytes, and should have %d", in, got, want)
		}
	}
}

// Numbers of a stream are sums so far, and do not fall.
func TestUsageOfAStreamDoesNotFall(t *testing.T) {
	m := newMessages()
	for _, data := range []string{
		`{"type":"message_start","message":{"id":"a","model":"m","content":[],"usage":{"input_tokens":50,"output_tokens":2,` +
			`"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"service_tier":"batch"}}}`,
		`{"type":"message_delta","usage":{"output_tokens":9,"cache_creation_input_tokens":30}}`,
		`{"type":"message_delta","usage":{"input_tokens":0,"output_tokens":-3,"cache_creation_input_tokens":0}}`,
	} {
		if _, err := m.Next(Frame{Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	want := price.Usage{Input: 50, Output: 9, CacheWrite: 10, CacheWrite1h: 20, Tier: price.TierBatch}
	if diff := cmp.Diff(want, m.Facts().Usage); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyTiersThatChangeThePriceAreKept(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "default": "", "auto": "", "standard": "", "Standard": "", "on_demand": "", "scale": "", "flex": "flex", "priority": "priority",
		"fast": "priority", "batch": "batch", "ultrafast": "ultrafast", strings.Repeat("x", 100): "priority", "\x00": "priority",
	} {
		if got := tierOf(name); got != want {
			t.Errorf("%q is %q, and should be %q", name, got, want)
		}
	}
}
