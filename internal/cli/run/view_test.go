package run

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/cli/output"
	"signalbox/internal/run"
)

// narrow is what a terminal has on it when it becomes narrower: the lines that no longer fit take several rows.
func narrow(lines []string, columns int) (rows []string) {
	for _, line := range lines {
		for part, rest := output.Split(line, columns); ; part, rest = output.Split(rest, columns) {
			rows = append(rows, part)
			if rest == "" {
				break
			}
		}
	}
	return rows
}

// TestErasingTakesWhatWasDrawnAndNothingAbove, whatever the terminal's width has become.
func TestErasingTakesWhatWasDrawnAndNothingAbove(t *testing.T) {
	before := []string{"$ signalbox run amp -- go", "The run is not recorded."}
	drawn := []string{"working · amp · 3s", "  " + strings.Repeat("x", 77), "  日本語" + strings.Repeat("語", 20)}
	for _, columns := range []int{200, 80, 79, 60, 40, 39, 20, 7} {
		screen := narrow(append(append([]string{}, before...), drawn...), columns)
		v := &view{}
		for _, line := range drawn {
			v.drawn = append(v.drawn, output.Width(line))
		}
		var b strings.Builder
		v.erase(&b, columns)
		var up int
		if _, err := fmt.Sscanf(b.String(), "\x1b[%dA\r\x1b[J", &up); err != nil {
			t.Fatal(err)
		}
		// A wide character that does not fit at the end of a row leaves a column empty, which is a row more at the most.
		left := screen[:len(screen)-up]
		if want := narrow(before, columns); len(left) < len(want) || len(left) > len(want)+1 ||
			strings.Join(left[:len(want)], "") != strings.Join(before, "") {
			t.Errorf("%d columns: %q is left, want %q", columns, left, want)
		}
	}
}

func TestRunsFitEightyColumns(t *testing.T) {
	for _, prompt := range []string{"fix the failing test, and then all the others that fail", "日本語で書いてください、そして全部直してください", "", "a\nb"} {
		header, rows := table([]run.Run{{
			ID: "run_01jt4k9q2m8x3v7b5n6c0d1e2f", Status: "completed", Engine: "opencode", OpenedAt: time.Now().Add(-47 * time.Hour),
			CostUSD: 123.45, Prompt: prompt,
		}}, 80)
		var b strings.Builder
		output.NewPrinter(&b).Table("", header, rows)
		for line := range strings.Lines(b.String()) {
			if wide := output.Width(strings.TrimRight(line, "\n")); wide > 80 {
				t.Errorf("%d columns: %s", wide, line)
			}
		}
	}
}
