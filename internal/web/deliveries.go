package web

import (
	"signalbox/internal/address"
	"signalbox/internal/deliver"
	"signalbox/internal/mail/links"
)

// deliveryRows is how many deliveries one page lists.
const deliveryRows = 50

// deliveryList is the outbox, or a part of it.
type deliveryList struct {
	Status, Target string
	Deliveries     []deliver.Summary
	Next           string
	Links          []links.Link // other providers and hosts of the mesh, on the first page
}

// Statuses are those that deliveries have.
func (deliveryList) Statuses() []string { return deliver.Statuses }

// loadDeliveries reads a page of the outbox.
func (w *Web) loadDeliveries(r *Request) (any, error) {
	v := &deliveryList{Status: r.Query("status"), Target: r.Query("target")}
	var err error
	v.Deliveries, err = w.Outbox.List(r.Context(), deliver.Filter{Status: v.Status, Target: v.Target}, r.Query("cursor"),
		deliveryRows)
	// A full page may be the last one; then the next is empty, which is harmless.
	if n := len(v.Deliveries); n == deliveryRows {
		v.Next = nextPage(r, v.Deliveries[n-1].ID)
	}
	if err == nil && v.Status == "" && v.Target == "" && r.Query("cursor") == "" {
		var all links.Links
		all, err = w.Mail.Links.List(r.Context())
		v.Links = all.Links
	}
	return v, err
}

// loadDelivery reads one delivery with its tries.
func (w *Web) loadDelivery(r *Request) (any, error) {
	return w.Outbox.Get(r.Context(), r.PathValue("id"))
}

// resend queues a delivery again.
func (w *Web) resend(r *Request) (Result, error) {
	at := Result{To: address.Delivery.At(r.PathValue("id"))}
	if _, err := w.Outbox.Resend(r.Context(), r.Who, r.PathValue("id")); err != nil {
		return at, err
	}
	at.Flash = "Queued to be sent again."
	return at, nil
}
