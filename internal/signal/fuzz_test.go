package signal

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/price"
	"signalbox/internal/wire"
)

// FuzzParse: whatever comes, it is taken or refused with a reason; what is taken is kept
// byte for byte, and is read back from the ledger as it was.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"amp_version":"1.0","agent_id":"a","run_id":"r","status":"completed","summary":"s","proposed_action":"p",` +
			`"model":"m","input_tokens":1842.0,"output_tokens":0,"cost_usd":1e-9,"gate_required":true,` +
			`"started_at":"2026-03-06T22:10:38Z","completed_at":"2026-03-06T22:10:46+01:00","artifacts":[` +
			`{"type":"text"}],"metadata":{"error_code":"\u0000"}, "x":[1 , 2]}` + "\n",
		`{"amp_version":"2.0","type":"gate_request","agent_id":"a","run_id":"r","summary":"s","proposed_action":"p",` +
			`"request_id":null}`,
		`{"amp_version":"2.0","type":"failure","agent_id":"a","run_id":"r","summary":"s","error_code":"x"}`,
		`{}`, `null`, `[`, `{"type":{}}`, `{"run_id":"` + strings.Repeat("😀", 128) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	now := time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC)
	prices, err := price.NewTable(0, []price.Price{{Model: "m", Input: 3, Output: 15}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		first, err := Parse(body, "", now)
		if err != nil {
			if e := fault.From(err); e.Code != fault.InvalidPayload || e.Message == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		_ = first.event()
		cost := checkCost(prices, first)
		text, err := (&received{Type: first.Type, RunID: first.RunID, Cost: &cost}).encode(body)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(text, append(append([]byte(`"signal":`), body...), '}')) {
			t.Fatalf("the payload was changed: %q", text)
		}
		var stored received
		if err := wire.Unmarshal(text, &stored); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		second, err := Parse(stored.Signal, stored.Type, now)
		if err != nil {
			t.Fatalf("taken once and refused then: %v", err)
		}
		first.Raw, second.Raw = nil, nil
		if diff := cmp.Diff(first, second); diff != "" {
			t.Error(diff)
		}
		all, err := countRun(&ledger.Entry{Body: text})
		if err != nil || (len(all) == 0) != (first.Type == GateRequest) {
			t.Fatalf("counted as %+v %v", all, err)
		}
		if len(all) == 0 {
			return
		}
		if c := all[0]; len(all) != 1 || c.Model != first.Model ||
			(c.InputTokens != first.InputTokens || c.OutputTokens != first.OutputTokens ||
				c.CostNano != first.CostNano || c.Completed+c.Failed+c.Interrupted != 1 ||
				(c.Failed == 1) != (first.Status == Failed)) {
			t.Errorf("%+v is counted as %+v", first, c)
		}
	})
}

// What /openapi.json says of a document is what is read.
func TestTheDescribedDocumentsAreTheFormsThatAreRead(t *testing.T) {
	t.Parallel()
	for kind, form := range forms {
		described := map[string]bool{}
		for f := range reflect.TypeOf(documents[kind]).Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			described[name] = options == ""
		}
		if diff := cmp.Diff(form.fields, described); diff != "" {
			t.Errorf("%s (- read, + described):\n%s", kind, diff)
		}
	}
}
