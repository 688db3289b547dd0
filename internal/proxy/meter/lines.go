package meter

import (
	"bytes"
	"math"
	"slices"
	"sync"

	"signalbox/internal/price"
	"signalbox/internal/proxy/form"
)

// maxLine is the longest line of a file that is read. A longer one counts by its bytes, at the price of an unknown
// model.
const maxLine = 8 << 20

// lines cuts a file that passes into its lines.
type lines struct {
	take func(line []byte, length int64) // line is nil if it is too long, and has no space around it
	line []byte
	size int64 // of the line, also where it is not kept
	done bool  // nothing more is wanted
}

// Write never fails: what cannot be read is passed on all the same.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for !l.done && len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece := p
		if i >= 0 {
			piece = p[:i]
		}
		if l.size += int64(len(piece)); l.size <= maxLine {
			l.line = append(l.line, piece...)
		}
		if i < 0 {
			break
		}
		l.cut()
		p = p[i+1:]
	}
	return n, nil
}

// cut ends a line.
func (l *lines) cut() {
	line := bytes.TrimSpace(l.line)
	switch {
	case l.done:
	case l.size > maxLine:
		l.take(nil, l.size)
	case len(line) > 0:
		l.take(line, l.size)
	}
	l.line, l.size = l.line[:0], 0
}

// tally adds up what lines take, by model.
type tally struct {
	m        *Meter
	provider string
	bills    []Bill
}

// add adds a line.
func (t *tally) add(model string, u price.Usage, c price.Cost) {
	i := slices.IndexFunc(t.bills, func(b Bill) bool { return b.Model == model })
	if i < 0 && len(t.bills) < maxBills {
		i, t.bills = len(t.bills), append(t.bills, Bill{Model: model, Usage: price.Usage{Tier: price.TierBatch}, Cost: price.Cost{
			Match: c.Match, As: c.As,
		}})
	}
	if i < 0 {
		i = maxBills - 1
	}
	b := &t.bills[i]
	b.Results++
	b.Add(u)
	b.Nanos = plus(b.Nanos, c.Nanos)
}

// maxBills is how many models of one file are told apart.
const maxBills = 64

// plus adds two sums of money, and stops at the largest.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Results reads the results of a batch while they are passed on.
type Results struct {
	lines
	tally
	other bool // it is another file
}

// ReadResults makes a reader of the results of a batch.
func (m *Meter) ReadResults(provider string) *Results {
	r := &Results{tally: tally{m: m, provider: provider}}
	r.take = func(line []byte, length int64) {
		about, billed, ok := form.Facts{Text: length}, true, true
		if line != nil {
			about, billed, ok = form.BatchLine(line)
		}
		if !ok { // the first lines say what kind of file it is; a broken one after them is counted by its bytes
			if r.other = len(r.bills) == 0; r.other {
				r.done = true
				return
			}
			about, billed = form.Facts{Text: length}, true
		}
		if !billed {
			return
		}
		var n Called
		about.Usage.Tier = price.TierBatch
		m.Take(&n, Sent{Provider: provider, Model: about.Model}, &about)
		r.add(Clip(about.Model), n.Usage, n.Cost)
	}
	return r
}

// Bills are what the results took. ok is false if it is another file.
func (r *Results) Bills() (bills []Bill, ok bool) {
	r.cut()
	return r.bills, !r.other
}

// Requests reads the requests of a batch while the file with them is passed on, to know what they may cost.
type Requests struct {
	mu sync.Mutex // a provider may answer while the request is still being sent
	lines
	tally
}

// Write never fails.
func (r *Requests) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(p)
}

// ReadRequests makes a reader of the requests of a batch.
func (m *Meter) ReadRequests(provider string) *Requests {
	r := &Requests{tally: tally{m: m, provider: provider}}
	r.take = func(line []byte, length int64) {
		q, ok := Request{Bytes: length}, true
		if line != nil {
			q.Model, q.MaxTokens, q.Replies, ok = form.BatchRequest(line)
			q.Bytes = length
		}
		if !ok {
			return // what is around the file in an upload
		}
		u, c := m.AtMost(provider, q, price.TierBatch)
		r.add(Clip(q.Model), u, c)
	}
	return r
}

// Due is what a batch of them may cost.
func (r *Requests) Due() *Due {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut()
	return Sum(r.bills)
}

// BatchRequests reads the requests of a batch of Anthropic while it is passed on.
type BatchRequests struct {
	mu sync.Mutex // as that of Requests
	tally
	elements
	bytes int64
}

// ReadBatch makes a reader of a batch.
func (m *Meter) ReadBatch(provider string) *BatchRequests {
	r := &BatchRequests{tally: tally{m: m, provider: provider}}
	r.take = func(element []byte, length int64) {
		q := Request{Bytes: length}
		if element != nil {
			q.Model, q.MaxTokens = form.BatchedMessage(element)
		}
		r.bills = m.AddRequest(r.bills, provider, q)
	}
	return r
}

// Write never fails.
func (r *BatchRequests) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(len(p))
	r.read(p)
	return len(p), nil
}

// Due is what the batch may cost. One in which no request was found counts by its bytes.
func (r *BatchRequests) Due() *Due {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bills) == 0 {
		r.bills = r.m.AddRequest(nil, r.provider, Request{Bytes: r.bytes})
	}
	return Sum(r.bills)
}

// elements cuts the objects out of a list in an object, by quotes and brackets alone: {"requests":[{…},{…}]}.
type elements struct {
	take    func(element []byte, length int64) // element is nil if it is too long
	depth   int
	text    bool // inside of quotes
	escaped bool
	element []byte
	size    int64
}

// inList is how deep the objects of the list are.
const inList = 3

// read reads the next bytes.
func (e *elements) read(p []byte) {
	for _, c := range p {
		switch {
		case e.escaped:
			e.escaped = false
		case e.text:
			e.escaped, e.text = c == '\\', c != '"'
		case c == '"':
			e.text = true
		case c == '{' || c == '[':
			e.depth++
		}
		if e.depth >= inList {
			e.size++
			if e.size <= maxLine {
				e.element = append(e.element, c)
			}
		}
		if (c == '}' || c == ']') && !e.text && !e.escaped {
			if e.depth == inList {
				if e.size > maxLine {
					e.element = nil
				}
				e.take(e.element, e.size)
				e.element, e.size = e.element[:0], 0
			}
			e.depth--
		}
	}
}

// Sum is what bills make together, under the name of the model that costs the most.
func Sum(bills []Bill) *Due {
	d := &Due{Usage: price.Usage{Tier: price.TierBatch, Estimated: true}}
	most := int64(-1)
	for _, b := range bills {
		d.Requests += b.Results
		d.Add(b.Usage)
		d.Nanos = plus(d.Nanos, b.Nanos)
		if b.Nanos > most {
			most, d.Model, d.Match, d.As = b.Nanos, b.Model, b.Match, b.As
		}
	}
	return d
}

// AddRequest adds what a request of a batch may take to bills.
func (m *Meter) AddRequest(bills []Bill, provider string, q Request) []Bill {
	t := tally{m: m, provider: provider, bills: bills}
	u, c := m.AtMost(provider, q, price.TierBatch)
	t.add(Clip(q.Model), u, c)
	return t.bills
}

// maxBatchFile is how many bytes a file of requests has at OpenAI at the most.
const maxBatchFile = 200 << 20

// Unseen is what a batch may cost of whose requests nothing is known: as much as the largest file of them.
func (m *Meter) Unseen(provider string) *Due {
	return Sum(m.AddRequest(nil, provider, Request{Bytes: maxBatchFile, MaxTokens: assumedOutput, Replies: mostReplies}))
}
