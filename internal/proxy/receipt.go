package proxy

import (
	"context"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/proxy/form"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// receipted is the body of proxy.receipted: released calls whose results are known, so that nothing
// more is expected of them. Its subject is the gate.
type receipted struct {
	Agent string   `json:"agent"`
	Calls []string `json:"calls"`
}

// awaited is the gate of a released tool call whose result is expected in a later request.
type awaited struct {
	gate  string
	until time.Time
}

// loadAwaited reads which results are expected, in place of those in memory.
func (p *Proxy) loadAwaited(ctx context.Context) error {
	all := map[string]awaited{}
	err := store.Each(p.core.DB.Reading(ctx), func(scan store.Scan) error {
		var agent, call, gateID string
		var at int64
		err := scan(&agent, &call, &gateID, &at)
		all[agent+" "+call] = awaited{gateID, time.UnixMicro(at).Add(resultsAwaited)}
		return err
	}, "SELECT agent, call, gate, at FROM proxy_call WHERE at > $1", p.core.Now().Add(-resultsAwaited).UnixMicro())
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited = all
	return nil
}

// takeResults finds the results of released tool calls in a request, and records them as receipts of
// their gates (PRX-45). It writes in the background, since the request need not wait for it. A
// result that cannot be written is lost with a log line: every later request of the conversation
// repeats it, but it is no longer awaited on this node.
func (p *Proxy) takeResults(x *exchange) {
	// Most servers await nothing most of the time; do not decode the conversation for it.
	p.mu.RLock()
	none := len(p.awaited) == 0
	p.mu.RUnlock()
	if none {
		return
	}
	results := form.Results(x.q.listed)
	found := map[string][]form.Result{}
	p.mu.Lock()
	for _, r := range results {
		name := x.who.ID + " " + r.ID
		if a, ok := p.awaited[name]; ok {
			found[a.gate] = append(found[a.gate], r)
			delete(p.awaited, name) // later requests repeat the result; it counts once
		}
	}
	p.mu.Unlock()
	if len(found) == 0 {
		return
	}
	who, trace := x.who, x.trace()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for gateID, results := range found {
			err := p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
				b := receipted{Agent: who.ID}
				for _, r := range results {
					b.Calls = append(b.Calls, r.ID)
					summary := "The tool has run"
					if r.Failed {
						summary = "The tool has failed"
					}
					if err := gate.AddReceipt(tx, gateID, who.Actor(),
						gate.Receipt{
							Succeeded: !r.Failed, Summary: summary + " (" + clean(r.ID) + ")",
							Detail: shownResult(r),
						}); err != nil {
						return err
					}
				}
				tx.Append(ledger.Event{
					Workspace: who.Workspace, Kind: kindReceipted, Actor: who.Actor(), Subject: gateID,
					Trace: trace, Body: b,
				})
				return nil
			})
			if err != nil {
				p.core.Log.Warn("tool result lost: receipt not written", "gate", gateID, "error", err.Error())
			}
		}
	}()
}

// maxShown is how many bytes of a result a receipt has. Nobody decides by it.
const maxShown = 64 << 10

// shownResult is a result as the receipt shows it.
func shownResult(r form.Result) wire.Raw {
	return gate.NewArtifact(r.ID, r.Content[:min(len(r.Content), maxShown)])
}
