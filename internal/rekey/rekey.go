// Package rekey is the call by which operators have the ledger go on under another signing key. What the keys sign,
// and what becomes of the files, is the ledger's; the package must not touch a key.
package rekey

import (
	"net/http"

	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Succession is the answer: which key took over from which, and from which entry on.
type Succession struct {
	From int64  `json:"from" doc:"the entry from which on the new key signs"`
	Old  string `json:"old" doc:"the verifier key that signed until then"`
	New  string `json:"new" doc:"the verifier key that signs from then on"`
	Note string `json:"note" doc:"what both keys have signed"`
}

// Routes are the call.
func Routes(l *ledger.Ledger) []wire.Route {
	return []wire.Route{{
		Method: "POST", Path: "/ops/ledger/rotate", Auth: wire.Admin, Answer: Succession{},
		Summary: "Make a new key for the ledger; the old one and the new one sign that it takes over",
		Handle: wire.Answer(http.StatusOK, func(r *http.Request) (Succession, error) {
			if err := wire.Unconfined(r.Context(), "The ledger is that of"); err != nil {
				return Succession{}, err
			}
			s, err := l.Rotate(r.Context(), roster.From(r.Context()).Actor())
			return Succession{s.From, s.Old, s.New, string(s.Note)}, err
		}),
	}}
}
