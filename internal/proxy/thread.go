package proxy

import (
	"context"
	"slices"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// knownThread is what we have seen of a conversation that the provider keeps: the tools that it may use.
type knownThread struct {
	tools []string
	at    time.Time
}

// threaded is the body of proxy.threaded: a reply from which a conversation can go on, by its own id or
// by that of the conversation (PRX-23).
type threaded struct {
	Agent string   `json:"agent"`
	IDs   []string `json:"ids"`
	Tools []string `json:"tools"`
}

const (
	// threadsKept is how long a conversation is remembered. OpenAI keeps its own for as long
	// (PRX-24).
	threadsKept = 30 * 24 * time.Hour
	maxThreads  = 50_000 // in memory; the table has all
)

// keepThread remembers the tools of a conversation that can be continued from a reply. In memory at
// once, since the next request may follow in a millisecond; in the ledger with the records.
func (p *Proxy) keepThread(x *exchange, id string) {
	b := &threaded{Agent: x.who.ID, IDs: []string{clean(id)}, Tools: []string{}}
	if c := x.q.thread.continues; c != "" && c != id {
		b.IDs = append(b.IDs, clean(c))
	}
	for _, tool := range x.q.tools {
		if tool = clean(tool); !slices.Contains(b.Tools, tool) {
			b.Tools = append(b.Tools, tool)
		}
	}
	p.rememberThread(b, p.core.Now())
	p.meter.Append(ledger.Event{
		Workspace: x.who.Workspace, Kind: kindThreaded, Actor: x.who.Actor(), Subject: b.IDs[0], Trace: x.trace(),
		Body: b,
	})
}

// rememberThread keeps a conversation in memory. When that is full it is emptied: threadTools then
// reads the table, which costs a query and loses nothing.
func (p *Proxy) rememberThread(b *threaded, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.threads) >= maxThreads {
		clear(p.threads) // the table has them
	}
	for _, id := range b.IDs {
		p.threads[b.Agent+" "+id] = knownThread{b.Tools, at}
	}
}

// threadTools are the tools of an agent's conversation, false if it was not seen here. An agent cannot
// continue the conversation of another.
func (p *Proxy) threadTools(ctx context.Context, agent, id string) ([]string, bool) {
	p.mu.RLock()
	t, ok := p.threads[agent+" "+id]
	p.mu.RUnlock()
	oldest := p.core.Now().Add(-threadsKept)
	if ok {
		return t.tools, t.at.After(oldest)
	}
	var tools []byte
	err := p.core.DB.QueryRow(ctx, "SELECT tools FROM proxy_thread WHERE agent = $1 AND id = $2 AND at > $3",
		[]any{agent, id, oldest.UnixMicro()}, &tools)
	if err != nil || wire.Unmarshal(tools, &t.tools) != nil {
		return nil, false // what cannot be read is not known
	}
	return t.tools, true
}
