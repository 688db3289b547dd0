package rulebook

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/policy"
)

// step is how many entries are read at once.
const step = 2000

// page is what one processor reads at a time.
type page struct{ said []said }

// said is what an entry said of decisions.
type said struct {
	entry          *ledger.Entry
	reading        Reading
	erased, broken bool // the body is gone, or cannot be read

	// Of a replay.
	counts  policy.Counts
	verdict policy.Verdict
}

// readAhead reads the next pages in order, as many at once as there are processors.
func (b *Book) readAhead(ctx context.Context, from, upTo int64) (pages []*page, next int64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		p, after, last := &page{}, from, min(from+step, upTo)
		g.Go(func() error { return b.readPage(ctx, p, after, last) })
		pages, from = append(pages, p), last
	}
	return pages, from, g.Wait()
}

func (b *Book) readPage(ctx context.Context, p *page, after, upTo int64) error {
	entries, err := b.ledger.Entries(ctx, ledger.Query{After: after, UpTo: upTo, Kinds: b.kinds, Limit: step})
	if err != nil {
		return err
	}
	p.said = make([]said, len(entries))
	for i := range entries {
		p.said[i] = b.say(&entries[i])
	}
	return nil
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
