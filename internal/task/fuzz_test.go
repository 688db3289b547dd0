package task_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/task"
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
	schemas := map[task.Kind]string{task.InMessage: "message", task.InAck: "ack", task.InHeartbeat: "heartbeat", task.InInstruction: "admin_instruction"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		kind := task.KindOf(raw)
		engine := task.NewEngine(task.Defaults())
		in, refusal := engine.Policy.Read(kind, raw)
		if refusal == nil {
			if problems := task.CheckRecord(schemas[kind], raw); len(problems) > 0 {
				t.Fatalf("taken against its schema: %+v", problems)
			}
			_, refusal = engine.Do(in, task.World{Now: 1})
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
		if id, lost, matters := task.LostOf(kind, raw, refusal); matters {
			_, _ = engine.Do(task.Input{Kind: task.InRefusal, TaskID: id, Lost: &lost}, task.World{Now: 2})
		}
	})
}
