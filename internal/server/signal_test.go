package server_test

import (
	"io"
	"net/http"
	"testing"

	"signalbox/internal/testbed"
)

// A stream lasts as long as nobody decides, which may be days.
func TestAStreamOfAGateEndsWhenItsKeyIsRevoked(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var agent struct{ Keys map[string]string }
		b.ops(201, "POST /ops/agents", `{"name":"writer"}`, &agent)
		key := agent.Keys["signal"]
		status, answer, _ := b.do(request{
			call: "POST /amp/gate_request", token: key,
			body: `{"amp_version":"2.0","agent_id":"writer","run_id":"r","summary":"Wrote it","proposed_action":"Send it"}`,
		})
		if status != http.StatusAccepted {
			t.Fatalf("%d %s", status, answer)
		}
		var page struct{ Gates []struct{ ID string } }
		b.ops(200, "GET /ops/gates", "", &page)
		ctx := testbed.Context(t)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/amp/gates/"+page.Gates[0].ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Accept", "text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b.ops(204, "DELETE /ops/agents/writer", "", nil)
		if text, err := io.ReadAll(res.Body); err != nil {
			t.Errorf("%v after %s", err, text)
		}
	})
}
