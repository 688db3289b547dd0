package harness

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/gate"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Whatever is added, nothing that is kept is lost, the order of arrival holds, and what
// was dropped is counted.
func TestTheQueueKeepsWhatItMust(t *testing.T) {
	large := wire.Raw(strings.Repeat("x", maxTelemetryBytes/8))
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		q.init()
		added, kept := 0, 0
		var got []*notification
		dropped := int64(0)
		take := func() {
			all, lost := q.takeBatch()
			got = append(got, all...)
			for _, n := range lost {
				dropped += n
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			for range rapid.IntRange(0, 30).Draw(t, "burst") {
				n := &notification{who: roster.Identity{ID: "a"}, session: "s", typ: PostAction, kept: rapid.Bool().Draw(t, "kept")}
				if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
					n.event = large
				}
				added++
				if n.kept {
					kept++
				}
				q.add(n)
			}
			if rapid.Bool().Draw(t, "take") {
				take()
			}
		}
		for range 100 {
			take()
		}
		have, last := 0, int64(0)
		for _, n := range got {
			if n.kept {
				have++
			}
			if n.number <= last {
				t.Fatalf("%d after %d", n.number, last)
			}
			last = n.number
		}
		if have != kept || len(got)+int(q.lost) != added || dropped > q.lost {
			t.Fatalf("%d of %d kept; %d got, %d dropped of %d; %d told", have, kept, len(got), q.lost, added, dropped)
		}
	})
}

// What is never dropped makes those who tell it wait, when memory has no more room.
func TestWhoTellsTooMuchOfWhatIsKeptWaits(t *testing.T) {
	h := New(protocol.Core{Gates: new(gate.Gates), Now: time.Now, Log: slog.New(slog.DiscardHandler)}, Config{})
	large := wire.Raw(strings.Repeat("x", maxKeptBytes/8+1))
	for range 8 {
		h.notes.add(&notification{kept: true, event: large})
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() { defer close(waited); h.notes.waitForRoom(ctx) }()
	select {
	case <-waited:
		t.Error("it did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	h.notes.takeBatch()
	h.notes.takeBatch()
	<-waited
	cancel()
}
