package rulebook

import (
	"context"
	"iter"
	"runtime"
	"sync"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
)

// step is how many entries are read at once.
const step = 2000

// page is one step of reading: what the entries up to upTo say of decisions.
type page struct {
	entries []decidedEntry
	upTo    int64
	err     error
}

// decidedEntry is an entry with what it says of decisions. A replay adds what the counters were, and
// the verdict of the other policy.
type decidedEntry struct {
	entry          *ledger.Entry
	reading        Reading
	erased, broken bool // the body is gone, or cannot be read

	// Of a replay.
	counts, reserved policy.Counts
	verdict          policy.Verdict
}

// workspace is the one of the agent that the entry is about. An entry may be of another: that of who received a
// message.
func (e *decidedEntry) workspace() string {
	if d := e.reading.Decision; d != nil && d.Agent.Workspace != "" {
		return d.Agent.Workspace
	}
	return e.entry.Workspace
}

// pages yields the pages between two entries, in order. Several are read ahead by goroutines
// of their own, so that all processors work while the caller does what has to be done in
// order. The goroutines have ended when the iteration has, also if the caller breaks off.
func (b *Book) pages(ctx context.Context, from, upTo int64) iter.Seq[page] {
	return func(yield func(page) bool) {
		ctx, stop := context.WithCancel(ctx)
		var reading sync.WaitGroup
		defer reading.Wait()
		defer stop()
		var ahead []chan page
		for from < upTo || len(ahead) > 0 {
			for from < upTo && len(ahead) < 2*runtime.GOMAXPROCS(0) {
				read, after, last := make(chan page, 1), from, min(from+step, upTo)
				reading.Go(func() { read <- b.readPage(ctx, after, last) })
				ahead, from = append(ahead, read), last
			}
			p := <-ahead[0]
			if ahead = ahead[1:]; !yield(p) || p.err != nil {
				return
			}
		}
	}
}

// readPage reads the entries between two numbers that may hold decisions. The limit is that of
// the step, so nothing is cut off.
func (b *Book) readPage(ctx context.Context, after, upTo int64) page {
	entries, err := b.ledger.Entries(ctx, ledger.Query{After: after, UpTo: upTo, Kinds: b.kinds, Limit: step})
	p := page{upTo: upTo, err: err, entries: make([]decidedEntry, len(entries))}
	for i := range entries {
		p.entries[i] = b.readEntry(&entries[i])
	}
	return p
}

// readEntry reads what an entry says of decisions. One that cannot be read is logged and marked: it
// must not stop the counting of the others.
func (b *Book) readEntry(e *ledger.Entry) decidedEntry {
	if e.Body == nil {
		return decidedEntry{entry: e, erased: true}
	}
	reading, err := b.read(e)
	if err != nil {
		b.log.Error("cannot read the decision in an entry", "error", err.Error())
	}
	return decidedEntry{entry: e, reading: reading, broken: err != nil}
}
