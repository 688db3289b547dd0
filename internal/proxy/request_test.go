package proxy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"signalbox/internal/proxy/form"
	"signalbox/internal/wire"
)

func FuzzRequest(f *testing.F) {
	f.Add(
		[]byte(
			`{"model":"m","stream":true,"max_tokens":5,"tools":[{"name":"bash","type":"bash_20250124"}],"messages":[` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]}`,
		),
	)
	f.Add(
		[]byte(
			`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"x"}],` +
				`"previous_response_id":"r","conversation":{"id":"c"}}`,
		),
	)
	f.Add([]byte(`{"requests":[{"custom_id":"a","params":{"model":"m"}}]}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		for _, f := range []*form.Form{form.Messages, form.Chat, form.Responses, nil} {
			q := request{form: f, body: body}
			if q.read(false) == nil {
				e := q.event("", "")
				e.Complete()
			}
		}
	})
}

// What the light reader takes, a decoder reads the same in.
func TestALightRequestIsReadAsADecoderReadsIt(t *testing.T) {
	values := map[string][]string{
		"model": {`"m"`, `"\u006d"`, `1`}, "stream": {`true`, `false`, `null`, `"true"`, `tru`},
		"max_tokens": {`5`, `1e3`, `-1`, `5.0`, `05`, `99999999999`, `null`},
		"tools": {
			`[]`, `[{"name":"bash","type":"bash_20250124","input_schema":{"a":[1]}}]`, `[{"type":"function","function":{"name":"a",` +
				`"parameters":{}}}]`, `[{"function":{"arguments":1}}]`, `[{"server_url":"x"}]`, `null`, `[null]`, `{}`, `[{"name":"a"},]`,
		},
		"n": {`2`}, "store": {`false`}, "system": {`"x"`}, "temperature": {`0.5`, `.5`}, "Model": {`"other"`}, `\u006dodel`: {`"m"`},
		"metadata": {`{"a":1,"a":2}`, `{"a":1}`},
	}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(values))), 0, 5).Draw(t, "names") {
			parts = append(parts, `"`+name+`":`+rapid.SampledFrom(values[name]).Draw(t, "value"))
		}
		text := []byte("{" + strings.Join(parts, ", ") + "}" + rapid.SampledFrom([]string{"", "", " ", "{}"}).Draw(t, "after"))
		var light, decoded anyRequest
		if !light.light(text) {
			return
		}
		taken++
		if err := wire.UnmarshalPart(text, &decoded); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(decoded, light, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s (-decoded +light):\n%s", text, diff)
		}
	})
	if taken == 0 {
		t.Error("nothing was taken")
	}
}

func BenchmarkReadRequest(b *testing.B) {
	body := []byte(
		`{"model":"m","max_tokens":5,"tools":[{"name":"bash","input_schema":{"type":"object"}}],"messages":[` +
			`{"role":"user","content":"` + strings.Repeat("Some words of a text. ", 5000) + `"}]}`,
	)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		q := request{form: form.Messages, body: body}
		if err := q.read(false); err != nil {
			b.Fatal(err)
		}
	}
}

// The words of Claude Code 2.1.197, Codex and an agent of somebody, and those that others put there.
func TestWhereAClientWorksIsReadFromItsOwnWords(t *testing.T) {
	const (
		codex = `{"type":"message","role":"user","content":[{"type":"input_text","text":` +
			`"<environment_context>\n  <cwd>/srv/app</cwd>\n  <shell>bash</shell>\n</environment_context>"}]}`
		result  = `{"type":"function_call_output","call_id":"c","output":"<cwd>/</cwd>"}`
		spoken  = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"<cwd>/</cwd>"}]}`
		another = `{"type":"message","role":"user","content":"<cwd>/srv</cwd>"}`
		prompt  = `You are told.\n\n# Environment\n - Primary working directory: /srv/my app\n - Platform: linux\n`
	)
	for body, c := range map[string]struct {
		form *form.Form
		want string
	}{
		`{"system":[{"type":"text","text":"You are."},{"type":"text","text":"` + prompt + `"}],"messages":[]}`: {
			form.Messages, "/srv/my app",
		},
		`{"system":"<env>\nWorking directory: /srv/app\n</env>","messages":[]}`:        {form.Messages, "/srv/app"},
		`{"messages":[{"role":"user","content":"Working directory: /"}]}`:              {form.Messages, ""},
		`{"system":"Mind the Working directory: / of others.","messages":[]}`:          {form.Messages, ""},
		`{"messages":[{"role":"system","content":"` + prompt + `"}]}`:                  {form.Chat, "/srv/my app"},
		`{"messages":[{"role":"tool","tool_call_id":"c","content":"` + prompt + `"}]}`: {form.Chat, ""},
		`{"input":[` + codex + `,` + spoken + `,` + result + `,` + codex + `]}`:        {form.Responses, "/srv/app"},
		`{"input":[` + codex + `,` + another + `]}`:                                    {form.Responses, ""},
		`{"input":"<cwd>/srv/app</cwd>"}`:                                              {form.Responses, ""},
	} {
		q := request{form: c.form, body: []byte(body)}
		if err := q.read(false); err != nil || q.cwd != c.want {
			t.Errorf("%s: %q, want %q %v", body, q.cwd, c.want, err)
		}
	}
}
