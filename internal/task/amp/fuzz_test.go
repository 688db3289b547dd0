package amp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/task/amp"
)

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
			raw, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
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
