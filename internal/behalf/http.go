package behalf

import (
	"net/http"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// UserParams are how a listing is asked for by user.
var UserParams = []wire.Param{
	{Name: "user", Meaning: "only what is on behalf of this user: a name, an id or an e-mail"},
	{Name: "claimed", Meaning: "1 for what only claims to be on behalf of the user, instead"},
}

// Routes are the calls that list entries.
func (x *Index) Routes() []wire.Route {
	return []wire.Route{{
		Method: "GET", Path: "/ops/ledger", Summary: "Read entries, in order", Auth: wire.Viewer,
		Query: append([]wire.Param{
			{Name: "after", Meaning: "only entries with a greater sequence number", Number: true},
			{Name: "limit", Meaning: "how many at the most, 1 to 1000; 100 when absent", Number: true},
			{Name: "newest", Meaning: "1 for the last entries instead of the first"},
			{Name: "workspace", Meaning: "only entries of this workspace"},
			{Name: "kind", Meaning: "only entries of this kind; several with commas between them"},
			{Name: "subject", Meaning: "only entries about this id"},
			{Name: "trace", Meaning: "only entries of this trace"},
			{Name: "handoff", Meaning: "only decisions that were made under this handoff, or under one below it"},
		}, UserParams...), Answer: ledger.EntryPage{}, Handle: x.getEntries,
	}}
}

func (x *Index) getEntries(w http.ResponseWriter, r *http.Request) error {
	after, err := wire.Number(r, "after", 0)
	if err != nil {
		return err
	}
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	newest, err := flag(r, "newest")
	if err != nil {
		return err
	}
	user, claimed, err := Asked(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	page, err := x.List(r.Context(), Query{User: user, Claimed: claimed, Handoff: q.Get("handoff"), Query: ledger.Query{
		After: after, Limit: limit, Newest: newest, Workspace: q.Get("workspace"),
		Kinds:   strings.FieldsFunc(q.Get("kind"), func(c rune) bool { return c == ',' }),
		Subject: q.Get("subject"), Trace: q.Get("trace"),
	}})
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, page)
}

// Asked reads UserParams.
func Asked(r *http.Request) (user string, claimed bool, err error) {
	claimed, err = flag(r, "claimed")
	return r.URL.Query().Get("user"), claimed, err
}

// flag is a parameter that is 1 or 0.
func flag(r *http.Request, name string) (bool, error) {
	n := r.URL.Query().Get(name)
	if n != "" && n != "0" && n != "1" {
		return false, fault.New(fault.InvalidRequest, "The parameter %s should be 1 or 0, and is %.40q.", name, n).About(name)
	}
	return n == "1", nil
}
