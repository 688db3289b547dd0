package mailbox

import (
	"encoding/json"
	"strings"
	"testing"
)

// AI Maestro hashes the text in UTF-8, where the specification's own verifier hashes ASCII escapes.
func TestAProviderThatHashesUTF8IsSentThat(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	var bodies []string
	s.routed = func(body string) (int, string) {
		bodies = append(bodies, body)
		if strings.Contains(body, `\u00e9`) {
			return 403, `{"error":"invalid_signature","message":"The signature is invalid."}`
		}
		return 200, `{"id":"msg_1_abcd","status":"queued","method":"relay"}`
	}
	b := reopen(t, bobAt(t, s))
	if _, err := b.Send(t.Context(), Draft{To: "carol", Subject: "s", Body: "héllo"}); err != nil || len(bodies) != 2 {
		t.Fatalf("%v %v", bodies, err)
	}
	var first, second struct {
		Signature string
		Payload   struct{ Message, Nonce string }
	}
	for i, into := range []any{&first, &second} {
		if err := json.Unmarshal([]byte(bodies[i]), into); err != nil {
			t.Fatal(err)
		}
	}
	if first.Payload != second.Payload || first.Payload.Nonce == "" || first.Signature == second.Signature {
		t.Errorf("%+v %+v", first, second)
	}
	// What is plain ASCII has one form, and a refusal of it stands.
	bodies = nil
	s.routed = func(body string) (int, string) {
		bodies = append(bodies, body)
		return 403, `{"error":"signature_invalid","message":"No."}`
	}
	if _, err := b.Send(t.Context(), Draft{To: "carol", Subject: "s", Body: "hello"}); err == nil || len(bodies) != 1 {
		t.Errorf("%v %v", bodies, err)
	}
}

func TestAMessageThatFailedForGoodSaysWhy(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := reopen(t, bobAt(t, s))
	for answer, want := range map[string]string{
		`{"id":"msg_1_abcd","status":"failed","error":"It knows no carol."}`:  "It knows no carol.",
		`{"id":"msg_2_abcd","status":"failed"}`:                               "no reason",
		`{"id":"msg_3_abcd","status":"queued","note":"The webhook is away."}`: "",
		`{"id":"msg_4_abcd","status":"delivered","method":"websocket"}`:       "",
		`{"id":"msg_5_abcd","status":"quarantined","gate_id":"gate_1"}`:       "",
	} {
		s.routed = func(string) (int, string) { return 200, answer }
		sent, err := b.Send(t.Context(), Draft{To: "carol", Subject: "s", Body: "m"})
		if err != nil {
			t.Fatal(err)
		}
		failure := sent.Failure()
		if (failure != nil) != (want != "") || failure != nil && !strings.Contains(failure.Error(), want) {
			t.Errorf("%s: %v, want %q", answer, failure, want)
		}
		kept, err := b.Find(Sent, sent.ID)
		if state := strings.Replace(sent.Status, "quarantined", "held", 1); err != nil || kept.State != state ||
			sent.Held() != (state == "held") {
			t.Errorf("%s: kept as %q, %v", answer, kept.State, err)
		}
	}
}
