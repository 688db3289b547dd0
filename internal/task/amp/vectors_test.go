package amp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/ledger"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// expectation is what stands beside a document of the vectors.
type expectation struct {
	Layer    amp.Layer
	Errors   []amp.Problem
	Warnings []amp.Problem
	Given    []json.RawMessage
	Policy   struct {
		RequirePlan bool `json:"require_plan_approval"`
	}
}

// vectors calls fn with every document in a folder of the vectors.
func vectors(t *testing.T, folder string, fn func(t *testing.T, raw []byte, want expectation)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("vectors", folder, "*.expect.json"))
	if err != nil || len(names) < 10 {
		t.Fatalf("%d vectors, %v", len(names), err)
	}
	for _, name := range names {
		document := strings.TrimSuffix(name, ".expect.json") + ".json"
		t.Run(strings.TrimSuffix(filepath.Base(document), ".json"), func(t *testing.T) {
			raw := testbed.Read(t, document)
			var want expectation
			text, err := os.ReadFile(name)
			if err == nil {
				err = json.Unmarshal(text, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			fn(t, raw, want)
		})
	}
}

// places are problems without their texts.
func places(list []amp.Problem) (out []amp.Problem) {
	for _, p := range list {
		out = append(out, amp.Problem{Code: p.Code, Pointer: p.Pointer})
	}
	return out
}

func TestEveryValidDocumentIsTakenWithItsWarnings(t *testing.T) {
	vectors(t, "valid", func(t *testing.T, raw []byte, want expectation) {
		warnings, refusal := amp.Check(raw, amp.Defaults())
		if refusal != nil {
			t.Fatalf("refused: %+v", refusal)
		}
		if diff := cmp.Diff(places(want.Warnings), places(warnings)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestEveryInvalidDocumentIsRefusedWithItsCodeAndPlace(t *testing.T) {
	vectors(t, "invalid", func(t *testing.T, raw []byte, want expectation) {
		if want.Layer == amp.LayerAuth || want.Layer == amp.LayerContext {
			if _, refusal := amp.Check(raw, amp.Defaults()); refusal != nil {
				t.Fatalf("refused before the layer %s: %+v", want.Layer, refusal)
			}
			return
		}
		_, refusal := amp.Check(raw, amp.Defaults())
		if refusal == nil {
			t.Fatal("taken")
		}
		if diff := cmp.Diff(want.Errors, places(refusal.Problems)); diff != "" || refusal.Layer != want.Layer {
			t.Errorf("layer %s, want %s\n%s", refusal.Layer, want.Layer, diff)
		}
		for _, p := range refusal.Problems {
			if p.Detail == "" {
				t.Errorf("%+v says nothing that a model could repair", p)
			}
		}
	})
}

// FuzzTheIngress: whatever comes is taken or refused, never both and never neither; what
// is taken keeps to its schema; and both can be written into the ledger.
func FuzzTheIngress(f *testing.F) {
	for _, folder := range []string{"valid", "invalid"} {
		names, err := filepath.Glob(filepath.Join("vectors", folder, "*.json"))
		if err != nil || len(names) == 0 {
			f.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".expect.json") {
				continue
			}
			raw := testbed.Read(f, name)
			f.Add(raw)
		}
	}
	schemas := map[amp.Kind]string{
		amp.InMessage: "message", amp.InAck: "ack", amp.InHeartbeat: "heartbeat",
		amp.InInstruction: "admin_instruction",
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		kind := amp.KindOf(raw)
		engine := amp.NewEngine(amp.Defaults())
		in, refusal := engine.Policy.Read(kind, raw)
		if refusal == nil {
			if problems := amp.CheckRecord(schemas[kind], raw); len(problems) > 0 {
				t.Fatalf("taken against its schema: %+v", problems)
			}
			_, refusal = engine.Do(in, amp.World{Now: 1})
			if s := engine.Tasks[in.TaskID]; s != nil {
				if _, err := ledger.Encode(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		if refusal == nil {
			return
		}
		if len(refusal.Problems) == 0 || refusal.Problems[0].Code == "" || refusal.Problems[0].Detail == "" {
			t.Fatalf("refused without a reason: %+v", refusal)
		}
		if id, lost, matters := amp.LostOf(kind, raw, refusal); matters {
			_, _ = engine.Do(amp.Input{Kind: amp.InRefusal, TaskID: id, Lost: &lost}, amp.World{Now: 2})
		}
	})
}
