package signal

import (
	"testing"
	"time"
)

var benchBody = []byte(`{"amp_version":"1.0","agent_id":"resume-tailor","run_id":"run_01jt4kzzzzzzzzzz","project_id":"job-search","status":"completed","summary":"Rewrote resume for Senior PM role at Stripe","proposed_action":"Send to applicant","artifacts":[{"type":"text","content":"Dear hiring manager, …"}],"model":"claude-sonnet-4-6","input_tokens":1842,"output_tokens":614,"cost_usd":0.007532,"started_at":"2026-03-06T22:10:38Z","completed_at":"2026-03-06T22:10:46Z","metadata":{"candidate_id":"123","source":"manual relay prompt"},"gate_required":true,"webhook_url":null}`)

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(benchBody, "", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEvent(b *testing.B) {
	s, err := Parse(benchBody, "", time.Now())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.event()
	}
}
