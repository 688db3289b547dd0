package proxy

import (
	"strings"
	"testing"

	"signalbox/internal/proxy/form"
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
