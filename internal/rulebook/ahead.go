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

// page is what is read at once, up to an entry.
type page struct {
	said []said
	upTo int64
	err  error
}

// said is what an entry said of decisions.
type said struct {
	entry          *ledger.Entry
	reading        Reading
	erased, broken bool // the body is gone, or cannot be read

	// Of a replay.
	counts  policy.Counts
	verdict policy.Verdict
}

// pages reads pages in order. Several are read ahead, so that the processors have
// something to do while the caller does what only one can.
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

func (b *Book) readPage(ctx context.Context, after, upTo int64) page {
	entries, err := b.ledger.Entries(ctx, ledger.Query{After: after, UpTo: upTo, Kinds: b.kinds, Limit: step})
	p := page{upTo: upTo, err: err, said: make([]said, len(entries))}
	for i := range entries {
		p.said[i] = b.say(&entries[i])
	}
	return p
}

func (b *Book) say(e *ledger.Entry) said {
	if e.Body == nil {
		return said{entry: e, erased: true}
	}
	reading, err := b.read(e)
	if err != nil {
		b.log.Error("an entry cannot be read for its decision", "error", err.Error())
	}
	return said{entry: e, reading: reading, broken: err != nil}
}
