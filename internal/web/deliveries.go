package web

import (
	"signalbox/internal/address"
	"signalbox/internal/deliver"
)

func deliveryPages() []Page {
	live := []string{"delivery"}
	return []Page{
		{
			Path: string(address.Deliveries), Template: "deliveries", Title: "Deliveries", Live: live,
			Load: (*Web).loadDeliveries,
		},
		{
			Path: string(address.Delivery), Template: "delivery", Title: "Delivery", Section: string(address.Deliveries),
			Live: live, Load: (*Web).loadDelivery,
		},
	}
}

func deliveryActions() []Action {
	return []Action{{Path: address.Delivery.Of("resend"), Do: (*Web).resend}}
}

const deliveryRows = 50

// deliveryList is the outbox, or a part of it.
type deliveryList struct {
	Status, Target string
	Deliveries     []deliver.Summary
	Next           string
}

// Statuses are those that deliveries have.
func (deliveryList) Statuses() []string { return deliver.Statuses }

func (w *Web) loadDeliveries(r *Request) (any, error) {
	v := &deliveryList{Status: r.Query("status"), Target: r.Query("target")}
	var err error
	v.Deliveries, err = w.Outbox.List(r.Context(), deliver.Filter{Status: v.Status, Target: v.Target}, r.Query("cursor"),
		deliveryRows)
	if n := len(v.Deliveries); n == deliveryRows {
		v.Next = older(r, v.Deliveries[n-1].ID)
	}
	return v, err
}

func (w *Web) loadDelivery(r *Request) (any, error) {
	return w.Outbox.Get(r.Context(), r.PathValue("id"))
}

func (w *Web) resend(r *Request) (Result, error) {
	at := Result{To: address.Delivery.At(r.PathValue("id"))}
	if _, err := w.Outbox.Resend(r.Context(), r.Who, r.PathValue("id")); err != nil {
		return at, err
	}
	at.Flash = "It is sent again."
	return at, nil
}
