package server_test

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestOpenAPIDescribesWhatIsThere(t *testing.T) {
	t.Parallel()
	b := start(t, "", nil)
	_, answer, header := b.do(request{call: "GET /openapi.json"})
	if header.Get("Content-Type") != "application/json" {
		t.Errorf("served as %q", header.Get("Content-Type"))
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Summary    string
			Parameters []struct{ Name, In string }
			Responses  map[string]any
			Security   []any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(answer), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.Summary == "" || len(op.Responses) < 2 {
				t.Errorf("%s %s is not described: %+v", method, path, op)
			}
			if strings.HasPrefix(path, "/ops/") && len(op.Security) == 0 {
				t.Errorf("%s %s is described as open to everybody", method, path)
			}
			// What is described answers: not with "there is nothing", whatever else.
			call := strings.ToUpper(method) + " " +
				strings.NewReplacer("{name}", "x", "{id}", "x", "{seq}", "1", "{path}", "0/000.p/1").Replace(path)
			status, text, _ := b.do(request{call: call})
			// A WebSocket is there for whom it upgrades.
			if status == 405 && call != "GET /ahp" || status == 404 && strings.Contains(text, "There is nothing at") {
				t.Errorf("%s is described and not there", call)
			}
		}
	}
	for _, ref := range strings.Split(answer, `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(ref, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("the schema %s is named and not there", name)
		}
	}
	for _, path := range []string{
		"/ops/ledger", "/ops/agents", "/ops/agents/{name}", "/ops/keys", "/ops/operators",
		"/ops/ledger/{seq}/proof", "/healthz", "/readyz", "/metrics", "/ledger/checkpoint", "/ledger/tile/{path}",
	} {
		if doc.Paths[path] == nil {
			t.Errorf("%s is missing", path)
		}
	}
}

func TestMetricsCountWhatHappens(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(201, "POST /ops/agents", `{"name":"counted"}`, nil)
		_, text, _ := b.do(request{call: "GET /metrics"})
		for _, want := range []string{
			"signalbox_ledger_entries_written_total 7\n", "signalbox_ledger_head 7\n", "signalbox_ledger_refuses_writes 0\n",
			`signalbox_http_request_seconds_count{method="POST",path="/ops/agents",status="201"} 1`, "go_goroutines",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("/metrics lacks %q", want)
			}
		}
	})
}
