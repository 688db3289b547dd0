package deliver

import (
	"cmp"
	"net/http"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Page is a page of deliveries.
type Page struct {
	Deliveries []Summary `json:"deliveries"`
	Next       string    `json:"next"`
}

// Routes are the outbox's part of the operators' API.
func (o *Outbox) Routes() []wire.Route {
	return []wire.Route{
		{Method: "GET", Path: "/ops/deliveries", Summary: "List deliveries, the newest first", Auth: wire.Viewer, Query: []wire.Param{
			{Name: "workspace", Meaning: "only deliveries of this workspace"},
			{Name: "status", Meaning: "only those that are pending, delivered or dead (given up)"},
			{Name: "target", Meaning: "only those to exactly this address"},
			{Name: "limit", Meaning: "how many at the most, 1 to 1000; 100 when absent", Number: true},
			{Name: "cursor", Meaning: "the value of next from the page before"},
		}, Answer: Page{}, Handle: o.getDeliveries},
		{Method: "GET", Path: "/ops/deliveries/{id}", Summary: "Show a delivery and every try", Auth: wire.Viewer, Answer: Detail{}, Handle: o.getDelivery},
		{Method: "POST", Path: "/ops/deliveries/{id}/resend", Summary: "Send a dead letter again, or one that waits for its next try now", Auth: wire.Operator, Answer: Summary{}, Handle: o.postResend},
	}
}

func (o *Outbox) getDeliveries(w http.ResponseWriter, req *http.Request) error {
	limit, err := wire.Limit(req)
	if err != nil {
		return err
	}
	before, err := wire.ReadCursor(req, 1)
	if err != nil {
		return err
	}
	q := req.URL.Query()
	workspace := cmp.Or(q.Get("workspace"), wire.Scope(req.Context()))
	if !wire.InScope(req.Context(), workspace) {
		return wire.Reply(w, http.StatusOK, Page{Deliveries: []Summary{}})
	}
	all, err := o.List(req.Context(), Filter{Workspace: workspace, Status: q.Get("status"), Target: q.Get("target")}, before[0], limit)
	if err != nil {
		return err
	}
	page := Page{Deliveries: all}
	if len(all) == limit {
		page.Next = wire.Cursor(all[limit-1].ID)
	}
	return wire.Reply(w, http.StatusOK, page)
}

func (o *Outbox) getDelivery(w http.ResponseWriter, req *http.Request) error {
	d, err := o.inScope(req)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, d)
}

// inScope finds the delivery that a call is about. One of another workspace is not
// there for it.
func (o *Outbox) inScope(req *http.Request) (Detail, error) {
	d, err := o.Get(req.Context(), req.PathValue("id"))
	if err == nil && !wire.InScope(req.Context(), d.Workspace) {
		return Detail{}, noDelivery(d.ID)
	}
	return d, err
}

func (o *Outbox) postResend(w http.ResponseWriter, req *http.Request) error {
	if _, err := o.inScope(req); err != nil {
		return err
	}
	s, err := o.Resend(req.Context(), roster.From(req.Context()), req.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, s)
}
