package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/run/engine"
	"signalbox/internal/run/vector"
)

// lines are what the recorded streams of all engines are made of.
func lines(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, dir := range []string{"testdata/amp", "testdata/others"} {
		cases, err := vector.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			all = append(all, bytes.Split(c.Stream, []byte("\n"))...)
		}
	}
	return all
}

// check fails when the events break a law of the event model.
func check(t interface{ Fatalf(string, ...any) }, events []engine.Event) {
	completed, sessions := 0, map[string]bool{}
	for i, e := range events {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("event %d cannot be written: %v", i, err)
		}
		var back engine.Event
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("event %d cannot be read: %v\n%s", i, err, text)
		}
		switch e.Type {
		case engine.Started:
			if e.Resume == nil || e.Resume.Value == "" {
				t.Fatalf("started without a session: %s", text)
			}
			sessions[e.Resume.Value] = true
		case engine.Completed:
			completed++
			if i != len(events)-1 {
				t.Fatalf("completed is not the last event")
			}
			if !*e.OK && e.Error == "" {
				t.Fatalf("failed without a reason: %s", text)
			}
			if *e.OK && e.Error != "" {
				t.Fatalf("went well with an error: %s", text)
			}
		default:
			if e.Action.ID == "" || (e.OK != nil) != (e.Phase == engine.Done) {
				t.Fatalf("a strange action: %s", text)
			}
		}
	}
	if completed != 1 || len(sessions) > 1 {
		t.Fatalf("%d completed, %d sessions", completed, len(sessions))
	}
}

// TestEveryStreamEndsOnce mixes lines of all engines, cuts them and ends them anyhow.
func TestEveryStreamEndsOnce(t *testing.T) {
	all := lines(t)
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom(engine.All()).Draw(t, "engine")
		j := engine.Job{Dir: "/srv/demo/repo", PID: 7}
		if rapid.Bool().Draw(t, "resumed") {
			j.Resume = engine.Resume{
				Engine: e.Name,
				Value:  rapid.SampledFrom([]string{"T-3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90", "gx12", "other"}).Draw(t, "session"),
			}
		}
		var events []engine.Event
		s := e.NewStream(j, func(e engine.Event) { events = append(events, e) })
		for _, line := range rapid.SliceOfN(rapid.SampledFrom(all), 0, 12).Draw(t, "lines") {
			if rapid.IntRange(0, 9).Draw(t, "cut") == 0 && len(line) > 0 {
				line = line[:rapid.IntRange(0, len(line)).Draw(t, "at")]
			}
			s.Line(line)
			if rapid.IntRange(0, 19).Draw(t, "long") == 0 {
				s.TooLong()
			}
		}
		s.Finish(engine.Exit{
			Code:   rapid.IntRange(-15, 3).Draw(t, "code"),
			Reason: rapid.SampledFrom([]string{"", "", "the run was cancelled"}).Draw(t, "reason"),
			Stderr: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "stderr"),
		})
		s.Finish(engine.Exit{Code: 1})
		check(t, events)
	})
}

func FuzzLine(f *testing.F) {
	for _, line := range lines(f) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, e := range engine.All() {
			var events []engine.Event
			s := e.NewStream(engine.Job{Dir: "/srv/demo/repo"}, func(e engine.Event) { events = append(events, e) })
			for range 2 {
				s.Line(line)
			}
			s.Finish(engine.Exit{})
			check(t, events)
		}
	})
}

// TestMemoryIsFlat feeds a run without end: what is kept of it has a limit.
func TestMemoryIsFlat(t *testing.T) {
	e, err := engine.Find("amp")
	if err != nil {
		t.Fatal(err)
	}
	var last engine.Event
	s := e.NewStream(engine.Job{}, func(e engine.Event) { last = e })
	text := string(bytes.Repeat([]byte("é"), 1000))
	for i := range 10_000 { // 20 MB of answer, and tools that never end
		s.Line(
			fmt.Appendf(
				nil, `{"type":"assistant","session_id":"T-1","message":{"content":[{"type":"text","text":%q},`+
					`{"type":"tool_use","id":"t%d","name":"Bash","input":{"command":%q}}]}}`, text, i, text,
			),
		)
	}
	s.Finish(engine.Exit{})
	if n := len(last.Answer); n == 0 || n > 4<<20 {
		t.Errorf("the answer has %d bytes", n)
	}
	if got := last.Answer[:2]; got != "é" {
		t.Errorf("the answer begins in the middle of a character: %q", got)
	}
}
