package reload

import (
	"net/http"

	"signalbox/internal/kin"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Routes is the call of operators that reloads the configuration.
func (r *Reloader) Routes() []wire.Route {
	return []wire.Route{{
		Method: "POST", Path: "/ops/config/reload", Auth: wire.Admin, Request: kin.NewConfig{}, Answer: Result{},
		Summary: "Confirm the configuration file as it is now, and read it again",
		Handle:  wire.Take(http.StatusOK, 1<<10, r.post),
	}}
}

func (r *Reloader) post(req *http.Request, in kin.NewConfig) (Result, error) {
	return r.Reload(req.Context(), roster.From(req.Context()), in.SHA256)
}
