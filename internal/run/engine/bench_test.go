package engine_test

import (
	"bytes"
	"testing"

	"signalbox/internal/run/engine"
	"signalbox/internal/run/vector"
)

// ampLines is a run as amp writes it, without its end.
func ampLines(b *testing.B) (lines [][]byte) {
	b.Helper()
	cases, err := vector.Load("testdata/amp")
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range cases {
		if c.Name == "001-happy-bash" || c.Name == "005-parallel-tools-one-message" {
			for line := range bytes.Lines(c.Stream) {
				if !bytes.Contains(line, []byte(`"type":"result"`)) {
					lines = append(lines, bytes.TrimRight(line, "\n"))
				}
			}
		}
	}
	return lines
}

// BenchmarkTranslateAmp is one line into events.
func BenchmarkTranslateAmp(b *testing.B) { benchmark(b, func(engine.Event) {}) }

// BenchmarkTranslateAmpToJSON is one line into events that are written as JSON.
func BenchmarkTranslateAmpToJSON(b *testing.B) {
	var line []byte
	benchmark(b, func(e engine.Event) { line, _ = e.Line(line[:0]) })
}

func benchmark(b *testing.B, emit func(engine.Event)) {
	lines := ampLines(b)
	e, err := engine.Find("amp")
	if err != nil {
		b.Fatal(err)
	}
	s := e.NewStream(engine.Job{Dir: "/srv/demo/repo"}, emit)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Line(lines[i%len(lines)])
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
