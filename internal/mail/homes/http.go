package homes

import (
	"net/http"

	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/wire"
)

// Routes are the calls of other hosts, which prove themselves.
func (h *Homes) Routes() []wire.Route {
	return []wire.Route{{
		Method: "POST", Path: Path, Summary: "Hosts of this provider agree on who has which address",
		Request: Asking{}, Answer: Told{}, Handle: h.post, Proof: []string{federation.ProofHeader},
	}}
}

// post answers another host. Unlike a message, a claim is never taken from a host that has proved nothing.
func (h *Homes) post(w http.ResponseWriter, r *http.Request) error {
	call := federation.ReadHostCall(r)
	if err := h.options.Federation.AdmitHost(call); err != nil {
		return err
	}
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	told, err := h.Serve(r.Context(), call, body)
	if err != nil {
		return err
	}
	return h.options.Federation.AnswerHost(w, call, told)
}
