package alarm

import (
	"net/http"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The bodies of the operators' API.
type (
	// List is alarms, the newest first.
	List struct {
		Alarms []Alarm `json:"alarms"`
	}
	// Closing is what somebody who has looked at an alarm says.
	Closing struct {
		Note string `json:"note,omitempty"`
	}
)

const maxBody = 1 << 16

// Routes are the calls of operators about alarms.
func (a *Alarms) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/alarms", Summary: "List alarms, the newest first", Auth: wire.Viewer,
			Query:  []wire.Param{{Name: "all", Meaning: "true for those that were closed too"}},
			Answer: List{}, Handle: wire.Answer(http.StatusOK, a.getAlarms),
		},
		{
			Method: "POST", Path: "/ops/alarms/{id}/close", Summary: "Close an alarm that somebody has looked at",
			Auth: wire.Operator, Request: Closing{}, Answer: Alarm{}, Handle: wire.Take(http.StatusOK, maxBody, a.postClose),
		},
	}
}

func (a *Alarms) getAlarms(r *http.Request) (List, error) {
	all, err := a.List(r.Context(), r.URL.Query().Get("all") == "true")
	return List{all}, err
}

func (a *Alarms) postClose(r *http.Request, in Closing) (Alarm, error) {
	return a.Close(r.Context(), roster.From(r.Context()), r.PathValue("id"), in.Note)
}
