//go:build linux

package proc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Processes end while their line is read. Half a line is never the answer: it would hide who started them.
func TestALineIsWholeOrNothing(t *testing.T) {
	first := Process{ID: ID{1, 1}}
	shell := Process{ID: ID{10, 100}, Parent: 1}
	tool := Process{ID: ID{20, 200}, Parent: 10}
	orphan := Process{ID: ID{20, 200}, Parent: 1}
	younger := Process{ID: ID{10, 900}, Parent: 1}
	for _, c := range []struct {
		name string
		seen []map[int]Process // at each time that the process itself is read; the last one stays
		want []Process
	}{
		{"nothing happens", []map[int]Process{{1: first, 10: shell, 20: tool}}, []Process{tool, shell, first}},
		{"its parent ends", []map[int]Process{{1: first, 20: tool}, {1: first, 20: orphan}}, []Process{orphan, first}},
		{
			"the number of its parent is used again",
			[]map[int]Process{{1: first, 10: younger, 20: tool}, {1: first, 20: orphan}},
			[]Process{orphan, first},
		},
		{"it ends", []map[int]Process{{1: first, 10: shell}}, nil},
		{"it ends after its parent", []map[int]Process{{1: first, 20: tool}, {1: first}}, nil},
		{"its parent cannot be seen", []map[int]Process{{1: first, 20: tool}}, nil},
		{"it came from outside", []map[int]Process{{20: {ID: ID{20, 200}}}}, []Process{{ID: ID{20, 200}}}},
	} {
		round := -1
		got := wholeLine(20, func(pid int) (Process, bool) {
			if pid == 20 {
				round = min(round+1, len(c.seen)-1)
			}
			p, ok := c.seen[round][pid]
			return p, ok
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
