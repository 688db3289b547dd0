package amp

import (
	"testing"

	"signalbox/internal/fault"
)

// FuzzReadDraft: whatever comes is a message within its limits, or an error for the caller.
func FuzzReadDraft(f *testing.F) {
	for _, seed := range []string{
		`{"to":"bob","subject":"s","payload":{"type":"request","message":"m"}}`,
		`{"envelope":{"to":"b@c","subject":"s","priority":"high","expires_at":"2026-01-01T00:00:00.5+01:00"},` +
			`"payload":{"type":"t","message":"m","context":{}}}`,
		`{"to":1}`, `{"payload":[]}`, `{"to":"bob","subject":"\u0000","payload":{"type":"t","message":"m"}}`, `[]`, ``,
		`{"options":{"receipt":1}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := ReadDraft(body)
		if err != nil {
			if status := fault.From(err).Code.Status(); status != 400 && status != 413 {
				t.Fatalf("%q: %d %v", body, status, err)
			}
			return
		}
		if o.To == "" || o.Subject == "" || o.Text == "" || o.Kind == "" || len(o.Payload) == 0 || len(o.Text) > MaxText {
			t.Fatalf("%q: %+v", body, o)
		}
		if _, err := Canonical(o.Payload); err != nil {
			t.Fatalf("%q has no canonical form: %v", o.Payload, err)
		}
	})
}
