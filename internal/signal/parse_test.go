package signal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/signal"
	"signalbox/internal/store/storetest"
)

var moment = time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC)

// wrong are the fields that a payload is refused for.
func wrong(t *testing.T, body []byte) map[string]string {
	t.Helper()
	_, err := signal.Parse(body, "", moment)
	if err == nil {
		return nil
	}
	if !fault.Is(err, fault.InvalidPayload) {
		t.Fatalf("%v", err)
	}
	fields, _ := fault.From(err).Details["fields"].(map[string]string)
	return fields
}

func TestEveryWrongFieldIsReportedAtOnceAndNothingIsWritten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		before := n.head()
		all := payload()
		for name := range all {
			all[name] = []any{"wrong"}
		}
		for _, name := range []string{"artifacts", "metadata", "webhook_url"} {
			all[name] = 7
		}
		_, err := n.signals.Receive(t.Context(), n.agent, "", encode(all))
		e := fault.From(err)
		fields, _ := e.Details["fields"].(map[string]string)
		for name := range all {
			if !strings.Contains(fields[name], name) || !strings.Contains(fields[name], "should be") {
				t.Errorf("of %s it is said: %q", name, fields[name])
			}
		}
		if e.Code != fault.InvalidPayload || len(fields) != len(all) ||
			cmp.Diff([]string{"1.0"}, e.Details["supported"]) != "" {
			t.Errorf("%v %v", err, e.Details)
		}
		if _, err := n.signals.Receive(t.Context(), n.agent, "",
			[]byte("{}")); len(fault.From(err).Details["fields"].(map[string]string)) != 12 {
			t.Errorf("an empty object: %v", fault.From(err).Details)
		}
		if n.head() != before {
			t.Error("something was written")
		}
	})
}

// TestWhatAFieldMayBe has a row for each boundary; says is a part of what is said of the
// field, "" when it is right.
func TestWhatAFieldMayBe(t *testing.T) {
	long := strings.Repeat
	for _, c := range []struct {
		field string
		value any
		says  string
	}{
		{"amp_version", "1.1", `should be the text "1.0"`},
		{"amp_version", 1.0, `should be the text "1.0"`},
		{"agent_id", long("a", 63), ""},
		{"agent_id", long("a", 64), "1 to 63"},
		{"agent_id", "Resume-Tailor", "lower-case"},
		{"agent_id", "a--b", "single hyphens"},
		{"agent_id", "-a", "single hyphens"},
		{"run_id", long("😀", 128), ""},
		{"run_id", long("a", 129), "has 129 characters"},
		{"run_id", "", "1 to 128"},
		{"run_id", "  ", "1 to 128"},
		{"run_id", "a\x00b", "\\u0000"},
		{"project_id", nil, ""},
		{"project_id", absent, ""},
		{"project_id", "", "1 to 63"},
		{"status", "done", "one of completed, failed, interrupted"},
		{"status", nil, "is null"},
		{"summary", long("ü", 4000), ""},
		{"summary", long("ü", 4001), "has 4001 characters"},
		{"summary", absent, "is missing"},
		{"summary", "a\x00", "\\u0000"},
		{"proposed_action", nil, "With gate_required"},
		{"proposed_action", absent, "With gate_required"},
		{"proposed_action", " ", "1 to 4000"},
		{"artifacts", nil, ""},
		{"artifacts", []any{}, ""},
		{"artifacts", make([]any, 100), ""},
		{"artifacts", make([]any, 101), "has 101"},
		{"artifacts", map[string]any{}, "is an object"},
		{"model", long("m", 128), ""},
		{"model", long("m", 129), "has 129"},
		{"input_tokens", 0, ""},
		{"input_tokens", json.Number("1842.0"), ""},
		{"input_tokens", json.Number("1.842e3"), ""},
		{"input_tokens", json.Number("-0"), ""},
		{"input_tokens", json.Number("9007199254740991"), ""},
		{"input_tokens", json.Number("9007199254740992"), "whole number"},
		{"input_tokens", json.Number("1e400"), "whole number"},
		{"input_tokens", 1842.5, "whole number"},
		{"input_tokens", -1, "0 or more"},
		{"output_tokens", "614", "whole number"},
		{"cost_usd", 0, ""},
		{"cost_usd", json.Number("1e-400"), ""},
		{"cost_usd", json.Number("1e9"), ""},
		{"cost_usd", json.Number("1000000000.01"), "in dollars"},
		{"cost_usd", json.Number("1e400"), "in dollars"},
		{"cost_usd", -0.01, "0 or more"},
		{"cost_usd", "0.1", "in dollars"},
		{"gate_required", "true", "true or false"},
		{"gate_required", 1, "true or false"},
		{"started_at", "2026-03-06T22:10:38", "with its zone"},
		{"started_at", "2026-03-06", "with its zone"},
		{"started_at", "2026-02-30T00:00:00Z", "with its zone"},
		{"started_at", 1772835038, "with its zone"},
		{"started_at", "2026-03-06T22:10:38.123456789+05:30", ""},
		{"metadata", nil, ""},
		{"metadata", map[string]any{"any": []any{1, nil}}, ""},
		{"metadata", []any{}, "is a list"},
		{"webhook_url", nil, ""},
		{"webhook_url", "https://example.com/hook?x=1", ""},
		{"webhook_url", "ftp://example.com/", "http or https"},
		{"webhook_url", "/hook", "http or https"},
		{"webhook_url", "https://" + long("a", 2000), "http or https"},
	} {
		got := wrong(t, encode(payload(c.field, c.value)))
		switch {
		case c.says == "" && got != nil:
			t.Errorf("%s %.40v is refused: %v", c.field, c.value, got)
		case c.says != "" && (len(got) != 1 || !strings.Contains(got[c.field], c.says)):
			t.Errorf("%s %.40v: it should be said %q, and it is %v", c.field, c.value, c.says, got)
		}
	}
	if got := wrong(t, encode(payload("gate_required", false, "proposed_action", absent))); got != nil {
		t.Errorf("without gate_required a proposal is not required: %v", got)
	}
}

func TestWhatIsNoObjectIsRefusedAsAWhole(t *testing.T) {
	for body, says := range map[string]string{
		"": "empty", "null": "null", "[]": "object", "7": "object", `{"a":1}{}`: "", `{"a":`: "middle",
		`{"run_id":"a","run_id":"b"}`: "Duplicate",
		`{"metadata":{"a":1,"a":2}}`:  "Duplicate", "{\"summary\":\"\xff\"}": "UTF-8", `{"a\u0000":1}`: `\u0000`,
		`{"metadata":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}": "nest",
	} {
		_, err := signal.Parse([]byte(body), "", moment)
		if !fault.Is(err, fault.InvalidPayload) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v", body, err)
		}
	}
}

func TestMoneyIsKeptInWholeNanoDollars(t *testing.T) {
	for text, want := range map[string]int64{
		"0.007532": 7_532_000, "0.0000000014": 1, "0.0000000015": 2, "1e-10": 0, "1e-9": 1, "12.345678901": 12_345_678_901,
		"1E9": 1e18, "0.1": 100_000_000, "-0": 0,
	} {
		s, err := signal.Parse(encode(payload("cost_usd", json.Number(text))), "", moment)
		if err != nil || s.CostNano != want {
			t.Errorf("%s is %+v %v, want %d", text, s, err, want)
		}
	}
}

func TestWhatIsOddIsWarnedOfAndTaken(t *testing.T) {
	for _, c := range []struct {
		pairs []any
		says  string
	}{
		{nil, ""},
		{[]any{"colour", "red"}, `unknown field "colour"`},
		{[]any{"completed_at", "2026-03-06T22:10:37Z"}, "completed_at is before started_at"},
		{[]any{"completed_at", "2026-03-08T00:00:01Z"}, "more than a day in the future"},
		{[]any{"completed_at", "2026-03-07T23:59:59Z"}, ""},
		{[]any{"status", "failed"}, "metadata.error_code"},
		{[]any{"status", "failed", "metadata", map[string]any{"error_code": "timeout"}}, ""},
	} {
		s, err := signal.Parse(encode(payload(c.pairs...)), "", moment)
		if err != nil || strings.Join(s.Warnings, "; ") != c.says &&
			(c.says == "" || !strings.Contains(strings.Join(s.Warnings, "; "), c.says)) {
			t.Errorf("%v: %v %v", c.pairs, s, err)
		}
	}
}

// sample is the example of the protocol's document, without its comments.
const sample = `{
  "amp_version":     "1.0",
  "agent_id":        "resume-tailor",
  "run_id":          "run_01jt4k...",
  "project_id":      "job-search",
  "status":          "completed",
  "summary":         "Rewrote resume for Senior PM role at Stripe",
  "proposed_action": "Send to applicant",
  "artifacts":       [],
  "model":           "claude-sonnet-4-6",
  "input_tokens":    1842,
  "output_tokens":   614,
  "cost_usd":        0.007532,
  "started_at":      "2026-03-06T22:10:38Z",
  "completed_at":    "2026-03-06T22:10:46Z",
  "metadata": {
    "candidate_id":  "123",
    "source":        "manual relay prompt"
  },
  "gate_required":   true,
  "webhook_url":     null
}`

func TestTheSampleOfTheDocumentIsTakenAndKeptByteForByte(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		got, err := n.signals.Receive(t.Context(), n.agent, "", []byte(sample))
		if err != nil || got.Status != "pending" || got.GateID == nil || len(got.Warnings) != 0 {
			t.Fatalf("%+v %v", got, err)
		}
		entry := n.Entries("signal.received")[0]
		if !bytes.Contains(entry.Body, []byte(`"signal":`+sample+"}")) {
			t.Errorf("the entry has %s", entry.Body)
		}
		var body struct{ Cost signal.CostCheck }
		if err := json.Unmarshal(entry.Body, &body); err != nil || body.Cost.Verdict != signal.CostUnder ||
			body.Cost.ExpectedNano != 14_736_000 {
			t.Errorf("%+v %v", body, err)
		}
		g, err := n.Gates.Get(t.Context(), *got.GateID)
		if err != nil || g.Project != "job-search" || g.Agent != "resume-tailor" || g.Title != "Send to applicant" ||
			g.Summary == "" || g.Origin.Reference != "run_01jt4k..." {
			t.Errorf("%+v %v", g, err)
		}
		n.WantClean()
	})
}

func TestARunMayHaveTheLongestIDThereIs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		id := strings.Repeat("😀", 128)
		first, again := n.send("run_id", id), n.send("run_id", id)
		if !again.Duplicate || *again.GateID != *first.GateID {
			t.Errorf("%+v %+v", first, again)
		}
		if a, b := n.send("run_id", id[4:]+"a"), n.send("run_id", id[4:]+"b"); *a.GateID == *b.GateID {
			t.Error("two runs have one gate")
		}
		g, err := n.Gates.Get(t.Context(), *first.GateID)
		if err != nil || g.Trace == "" {
			t.Errorf("%+v %v", g, err)
		}
		n.WantClean()
	})
}

func TestTextThatARuleCannotReadDoesNotSpoilTheLedger(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.Apply(
			`rules: [` +
				`{name: number, on: [signal], when: 'int(event.metadata.x) > 3 || event.metadata.y[event.metadata.x] == 1 ` +
				`|| timestamp(event.metadata.x) > now', then: gate}]`,
		)
		for i, x := range []string{"a\x00b", "\x00", "7\x00"} {
			got := n.send("run_id", strings.Repeat("r", i+1), "metadata", map[string]any{"x": x, "y": map[string]any{}})
			if got.Status != "rejected" || strings.Contains(got.Message, "\x00") {
				t.Errorf("%+v", got.Answer)
			}
			n.send("run_id", strings.Repeat("r", i+1), "metadata", map[string]any{"x": x, "y": map[string]any{}})
		}
		n.WantClean()
	})
}

func TestTheTypesOfTheRoadmapAreUnderstood(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		receive := func(kind signal.Type, text string) (signal.Received, error) {
			return n.signals.Receive(context.Background(), n.agent, kind, []byte(text))
		}
		ask := `{"amp_version":"2.0","agent_id":"resume-tailor","run_id":"r","request_id":"%","summary":"Half way",` +
			`"proposed_action":"Send it"}`
		first, err := receive(signal.GateRequest, strings.Replace(ask, "%", "1", 1))
		if err != nil || first.GateID == nil {
			t.Fatalf("%+v %v", first, err)
		}
		second, err := receive("", `{"type":"gate_request",`+strings.Replace(ask, "%", "2", 1)[1:])
		if err != nil || second.GateID == nil || *second.GateID == *first.GateID {
			t.Errorf("a second question of one run: %+v %v", second, err)
		}
		failed, err := receive(signal.Failure,
			`{"amp_version":"2.0","agent_id":"resume-tailor","run_id":"r","summary":"It broke","error_code":"timeout"}`)
		if err != nil || failed.Status != "approved" || failed.Message != "No gate required" {
			t.Errorf("%+v %v", failed, err)
		}
		if got := n.send("run_id", "other"); got.Status != "pending" {
			t.Errorf("%+v", got)
		}
		if _, err := receive("",
			`{"type":"gossip"}`); !strings.Contains(fault.From(err).Details["fields"].(map[string]string)["type"],
			"completion") {
			t.Errorf("%v", err)
		}
		n.WantClean()
	})
}
