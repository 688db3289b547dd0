package deliver

import (
	"net/http"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Page is a page of deliveries, newest first.
type Page struct {
	Deliveries []Summary `json:"deliveries"`
	Next       string    `json:"next"`
}

// Routes are the calls of operators about deliveries.
func (o *Outbox) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/deliveries", Summary: "List deliveries, newest first", Auth: wire.Viewer,
			Query: append([]wire.Param{
				{Name: "workspace", Meaning: "only deliveries of this workspace"},
				{Name: "status", Meaning: "only deliveries that are pending, delivered or dead"},
				{Name: "target", Meaning: "only deliveries to exactly this address"},
			}, wire.PageParams...), Answer: Page{}, Handle: wire.List(o.getDeliveries),
		},
		{
			Method: "GET", Path: "/ops/deliveries/{id}", Summary: "Show a delivery and every try", Auth: wire.Viewer,
			Answer: Detail{}, Handle: wire.Answer(http.StatusOK, o.getDelivery),
		},
		{
			Method: "POST", Path: "/ops/deliveries/{id}/resend",
			Summary: "Revive a dead delivery, or try a pending one now", Auth: wire.Operator, Answer: Summary{},
			Handle: wire.Answer(http.StatusOK, o.postResend),
		},
	}
}

// getDeliveries answers GET /ops/deliveries. Ids are sortable, so the last id is the cursor.
func (o *Outbox) getDeliveries(req *http.Request, p wire.Paging) (Page, error) {
	before, err := wire.ParseCursor(p.Cursor, 1)
	if err != nil {
		return Page{}, err
	}
	q := req.URL.Query()
	all, err := o.List(req.Context(),
		Filter{Workspace: q.Get("workspace"), Status: q.Get("status"), Target: q.Get("target")}, before[0], p.Limit)
	page := Page{Deliveries: all}
	if err == nil && len(all) == p.Limit {
		page.Next = wire.Cursor(all[p.Limit-1].ID)
	}
	return page, err
}

func (o *Outbox) getDelivery(req *http.Request) (Detail, error) {
	return o.Get(req.Context(), req.PathValue("id"))
}

// postResend answers POST /ops/deliveries/{id}/resend.
func (o *Outbox) postResend(req *http.Request) (Summary, error) {
	return o.Resend(req.Context(), roster.From(req.Context()), req.PathValue("id"))
}
