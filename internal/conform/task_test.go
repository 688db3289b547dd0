package conform_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"signalbox/internal/conform"
	"signalbox/internal/server/servertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task/amp"
)

// startMovable runs a server whose clock can be set forward.
func startMovable(t *testing.T, address string) (url, token string) {
	t.Helper()
	b := servertest.Start(t, map[string]string{"db": address, "clock.movable": "true"})
	return b.URL, b.Token()
}

func TestTheEngineKeepsToEveryVectorOfTasks(t *testing.T) {
	report, err := conform.RunTasks(t.Context(), amp.Vectors(), &conform.TaskEngine{})
	if err != nil || report.Passed < 100 || report.Skipped != 0 {
		t.Errorf("%d passed, %d skipped: %v", report.Passed, report.Skipped, err)
	}
	for _, c := range report.Cases {
		if c.Outcome != "passed" {
			t.Errorf("%s: %s", c.Name, c.Problem)
		}
	}
}

// TestAWrongExpectationOfATaskIsFoundOut changes one expectation at a time.
func TestAWrongExpectationOfATaskIsFoundOut(t *testing.T) {
	for _, c := range []struct{ file, from, to string }{
		{"scenarios/s07-hallucination-lock-at-three.json", `"expect_status": "locked"`, `"expect_status": "rework"`},
		{"scenarios/s10-heartbeat-timeout.json", `"heartbeat_timeout"`, `"ack_timeout"`},
		{"scenarios/s14-idempotent-resubmit.json", `"expect_duplicate": true`, `"expect_duplicate": false`},
		{"scenarios/s19-terminate.json", `"AMP_E_STATE"`, `"AMP_E_LOCKED"`},
		{"scenarios/s09-low-confidence-held.json", `"expect_counts": [`, `"expect_counts": [7,`},
		{"invalid/i38-dispatch-branch-main.expect.json", `"branch_violation"`, `"conflict"`},
		{"invalid/i103-request-wrong-reject-count.expect.json", `"/payload/reject_count"`, `"/payload"`},
		{"invalid/i79-msg-id-other-type.expect.json", `"semantic"`, `"schema"`},
		{"invalid/i130-dispatch-forged-by-executor.expect.json", `"principal": "executor"`, `"principal": "coordinator"`},
		{"valid/v13-result-without-commit.expect.json", "AMP_W_NO_COMMIT", "AMP_W_DIFF_MISMATCH"},
	} {
		files := fstest.MapFS{}
		for _, name := range []string{c.file, strings.Replace(c.file, ".expect", "", 1)} {
			text, err := fs.ReadFile(amp.Vectors(), name)
			if err != nil {
				t.Fatal(err)
			}
			if name == c.file {
				changed := strings.Replace(string(text), c.from, c.to, 1)
				if changed == string(text) {
					t.Fatalf("%s does not contain %s", name, c.from)
				}
				text = []byte(changed)
			}
			files[name] = &fstest.MapFile{Data: text}
		}
		report, err := conform.RunTasks(t.Context(), files, &conform.TaskEngine{})
		if err != nil || report.Failed != 1 {
			t.Errorf("%s with %s: %+v %v", c.file, c.to, report, err)
		}
	}
}

func TestTheServerKeepsToEveryVectorOfTasks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		host := &conform.TaskServer{}
		host.URL, host.Token = startMovable(t, address)
		if err := host.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		report, err := conform.RunTasks(t.Context(), amp.Vectors(), host)
		if err != nil || report.Passed < 100 || report.Skipped != 0 {
			t.Errorf("%d passed, %d skipped: %v", report.Passed, report.Skipped, err)
		}
		for _, c := range report.Cases {
			if c.Outcome != "passed" {
				t.Errorf("%s: %s", c.Name, c.Problem)
			}
		}
		if err := host.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAFolderThatIsNotUnderstoodIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"valid/a.json": `{}`, "scenarios/a.json": `{"story": []}`, "invalid/a.json": `{}`,
	} {
		files := fstest.MapFS{name: &fstest.MapFile{Data: []byte(text)}}
		files[strings.TrimSuffix(name, ".json")+".expect.json"] = &fstest.MapFile{Data: []byte(`{"expected": "ok"}`)}
		if report, err := conform.RunTasks(t.Context(), files, &conform.TaskEngine{}); err == nil {
			t.Errorf("%s: %d passed", name, report.Passed)
		}
	}
	// A principal that is no role would be sent with no key, and refused for that.
	files := fstest.MapFS{
		"invalid/a.json":        &fstest.MapFile{Data: []byte(`{}`)},
		"invalid/a.expect.json": &fstest.MapFile{Data: []byte(`{"errors": [{"code": "AMP_E_AUTH_ROLE"}], "principal": "Executor"}`)},
	}
	report, err := conform.RunTasks(t.Context(), files, &conform.TaskEngine{})
	if err != nil || report.Failed != 1 || !strings.Contains(report.Cases[0].Problem, "principal should be") {
		t.Errorf("%+v %v", report, err)
	}
}
