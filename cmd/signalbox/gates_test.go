package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestSeveralGatesAreDecidedAtOnce, also when one of them cannot be.
func TestSeveralGatesAreDecidedAtOnce(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	var added struct{ Keys map[string]string }
	if err := json.Unmarshal([]byte(mustRun(t, p.dir, "agents", "add", "asker", "--json")), &added); err != nil {
		t.Fatal(err)
	}
	var gates []string
	for i := range 2 {
		body := fmt.Sprintf(
			`{"amp_version":"2.0","type":"gate_request","agent_id":"asker","run_id":"r","request_id":"%d","summary":"Ready",`+
				`"proposed_action":"Send it"}`, i,
		)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/amp/gate_request",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+added.Keys["signal"])
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			GateID string `json:"gate_id"`
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		_ = res.Body.Close()
		if err != nil || answer.GateID == "" {
			t.Fatal(res.Status, err)
		}
		gates = append(gates, answer.GateID)
	}
	code, out := run(t, p.dir, "gates", "reject", gates[0], "gate_nowhere", gates[1], "--reason", "Not today")
	if code != 1 || strings.Count(out, " is rejected.") != 2 || !strings.Contains(out, "gate_nowhere") {
		t.Errorf("%d %s", code, out)
	}
	for _, id := range gates {
		if shown := mustRun(t, p.dir, "gates", "show", id); !strings.Contains(shown, "Not today") {
			t.Errorf("%s", shown)
		}
	}
	if code, out := run(t, p.dir, "gates", "approve"); code != 2 || !strings.Contains(out, "the ids of gates") {
		t.Errorf("%d %s", code, out)
	}
}
