package server_test

import (
	"encoding/json" // what a stranger's client would send
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/testbed"
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

// TestTheExamplesOfTheDescriptionAreTaken sends the examples of /openapi.json as they stand there.
func TestTheExamplesOfTheDescriptionAreTaken(t *testing.T) {
	t.Parallel()
	b := start(t, "", nil)
	_, text, _ := b.do(request{call: "GET /openapi.json"})
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Example  json.RawMessage
					Examples map[string]struct{ Value json.RawMessage }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	example := func(path string) string {
		t.Helper()
		body := doc.Paths[path]["post"].RequestBody.Content["application/json"].Example
		if body == nil {
			t.Fatalf("%s has no example", path)
		}
		return string(body)
	}
	_, tailor := b.addAgent("resume-tailor")
	b.addAgent("bob")
	for path, want := range map[string]int{
		"/amp/signal": 202, "/amp/gate_request": 202, "/amp/failure": 200, "/amp/register": 200, "/amp/heartbeat": 200,
		"/v1/route": 200,
	} {
		status, answer, _ := b.do(request{call: "POST " + path, token: tailor, body: example(path)})
		if status != want {
			t.Errorf("%s: %d %s, want %d", path, status, answer, want)
		}
	}
	if status, answer, _ := b.do(request{call: "POST /runs", token: b.token(), body: example("/runs")}); status != 201 {
		t.Errorf("/runs: %d %s", status, answer)
	}
	if forms := doc.Paths["/amp/messages"]["post"].RequestBody.Content["application/json"].Examples; len(forms) != 5 {
		t.Errorf("there are examples of %d messages of tasks, want 5", len(forms))
	}
}

// pythonScript does what a stranger does with the client that a generator made.
const pythonScript = `import sys
from client import AuthenticatedClient
from client.api.default import post_amp_signal
from client.models import SignalDocument

body = SignalDocument(amp_version="1.0", agent_id="resume-tailor", run_id="run-1", status="completed",
    summary="Rewrote the resume", model="claude-sonnet-4-6", input_tokens=1842, output_tokens=614, cost_usd=0.014736,
    gate_required=True, proposed_action="Send it",
    started_at="2026-03-06T22:10:38Z", completed_at="2026-03-06T22:10:46Z")
answer = post_amp_signal.sync_detailed(client=AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2]), body=body)
print(int(answer.status_code), answer.parsed.status, answer.parsed.gate_id)
`

// TestAGeneratedClientSignals makes a Python client from /openapi.json with a generator from PyPI, without
// a warning, and signals with it.
func TestAGeneratedClientSignals(t *testing.T) {
	t.Parallel()
	bin := filepath.Dir(testbed.Installed(t, "signalbox-test-python-locked", "bin", "openapi-python-client"))
	b := start(t, "", nil)
	_, key := b.addAgent("resume-tailor")
	_, document, _ := b.do(request{call: "GET /openapi.json"})
	dir := t.TempDir()
	for name, text := range map[string]string{
		"openapi.json": document, "signal.py": pythonScript,
		// The generator does not know YAML and JSON lines as bodies; no hooks, since ruff may not be there.
		"config.yaml": "post_hooks: []\ncontent_type_overrides: {application/yaml: application/octet-stream, " +
			"application/x-ndjson: application/octet-stream}\n",
	} {
		testbed.Write(t, filepath.Join(dir, name), text)
	}
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, program), args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		return string(out)
	}
	run("openapi-python-client", "generate", "--path", "openapi.json", "--output-path", "client", "--meta", "none",
		"--config", "config.yaml", "--fail-on-warning")
	said := run("python", "signal.py", b.url, key)
	var status int
	var word, gate string
	if _, err := fmt.Sscan(said, &status, &word, &gate); err != nil || status != 202 || word != "pending" ||
		!strings.HasPrefix(gate, "gate_") {
		t.Errorf("the generated client got %s %v", said, err)
	}
}
