package proxy

import (
	"context"
	"net/http"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/price"
	"signalbox/internal/proxy/form"
	"signalbox/internal/proxy/meter"
)

// recordCall queues the record of a call, with what it took: as the reply reported it, or estimated. Call it once the
// reply is given, so that the client does not wait for pricing. A reply that can be continued by its id is remembered
// too.
func (x *exchange) recordCall(about form.Facts) {
	n := &x.record
	n.At, n.Took = x.began.UnixMicro(), time.Since(x.began).Microseconds()
	n.Provider, n.Call, n.Stream, n.Request, n.Run = x.provider, x.r.Method+" "+x.path, x.q.stream, x.fp, clean(x.run)
	if n.Model = meter.Clip(x.q.model); about.Model != "" {
		n.Model = meter.Clip(about.Model)
	}
	n.ID = clean(about.ID)
	x.countCall(n, &about)
	one := *n
	x.p.meter.Add(x.group(), &one)
	// What is sent again is another prompt, and takes something of its own.
	n.Decided, n.Usage, n.Cost, n.Priced, n.Reserve = false, price.Usage{}, price.Cost{}, false, ""
	if about.ID != "" && x.q.thread.kept && !x.q.thread.unknown {
		x.p.keepThread(x, about.ID)
	}
}

// recordUnsent records a call that was allowed and cannot be sent: nothing is reserved for it any more.
func (x *exchange) recordUnsent() {
	x.free, x.record.Status = true, http.StatusInternalServerError
	x.recordCall(form.Facts{})
}

// group is who a record is about.
func (x *exchange) group() meter.Group {
	return meter.Group{Workspace: x.who.Workspace, Actor: x.who.Actor(), Agent: x.who.ID, Project: x.project, Of: x.of}
}

// countCall sets in a record what the call took. What a batch takes, and a response that is made in the background, is
// known later: it is noted as due.
func (x *exchange) countCall(n *meter.Called, about *form.Facts) {
	switch {
	// A stored reply was counted when it was made, unless that was in the background.
	case x.kind == "":
		if x.form == form.Responses && about.Reported && !about.Later {
			x.p.meter.Settle(x.group(), meter.Result{
				Provider: x.provider, What: meter.Response, ID: about.ID, Call: n.Call, Status: n.Status,
				Bills: []meter.Bill{x.p.meter.Bill(x.provider, about)},
			})
		}
		return
	case x.free:
		return
	case x.kind == kindBatch:
		d := *x.due
		if d.What, d.ID = meter.Batch, about.ID; d.ID != "" {
			x.note(&d)
		} else { // its results cannot be found
			n.Usage, n.Cost, n.Priced = d.Usage, d.Cost, !d.Unpriced()
		}
	case about.Later && about.ID != "" && (x.q.background || !x.q.stream):
		d := meter.Due{What: meter.Response, ID: about.ID, Model: n.Model}
		d.Usage, d.Cost = x.p.meter.AtMost(x.provider, x.q.atMost(x.bytes), "")
		x.note(&d)
	default:
		x.p.meter.Take(n, meter.Sent{
			Provider: x.provider, Model: x.q.model, Bytes: x.bytes, Most: x.q.maxTokens, Took: time.Since(x.sentAt),
			Broken: x.broke,
		}, about)
	}
	if n.Unpriced() {
		x.p.meter.Notice(x.who, n.Model)
	}
}

// note writes down what is due.
func (x *exchange) note(d *meter.Due) {
	d.Of, d.Agent, d.Project, d.Run, d.Provider = x.of, x.who.ID, x.project, x.run, x.provider
	x.p.meter.Note(x.who.Workspace, x.who.Actor(), d)
	if d.Unpriced() {
		x.p.meter.Notice(x.who, d.Model)
	}
}

// Carries reports whether the proxy counts what an agent's run takes: a call of the run was carried, or is about to be.
func (p *Proxy) Carries(ctx context.Context, agentID, run string) (bool, error) {
	return meter.Carries(p.core.DB.Reading(ctx), agentID, run)
}

// appendNow writes one entry and waits until it is on disk.
func (p *Proxy) appendNow(ctx context.Context, e ledger.Event) error {
	return p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(e)
		return nil
	})
}
