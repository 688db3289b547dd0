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
