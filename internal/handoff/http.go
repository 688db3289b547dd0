package handoff

import (
	"net/http"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The bodies of the calls.
type (
	// Page is handoffs, the newest first.
	Page struct {
		Handoffs []Handoff `json:"handoffs"`
		Next     string    `json:"next,omitempty"`
	}
	// Chain is a handoff and all above it, the first one first.
	Chain struct {
		Chain []Handoff `json:"chain"`
	}
	// Ending is why a handoff is ended.
	Ending struct {
		Reason string `json:"reason,omitempty"`
	}
)

// MaxBody is the most that the body of a call about handoffs may have, in bytes.
const MaxBody = 1 << 16

// Routes are the calls of operators about handoffs, and of the agents that have them.
func (h *Handoffs) Routes() []wire.Route {
	list := append([]wire.Param{
		{Name: "workspace", Meaning: "the workspace; all that you may see when absent"},
		{Name: "agent", Meaning: "an agent that has handed on, or was handed the work: a name or an id"},
		{Name: "user", Meaning: "the user on whose behalf: a name, an id or an e-mail"},
		{Name: "work", Meaning: "what it is for, such as the id of a task"},
		{Name: "all", Meaning: "true for those that are over too"},
	}, wire.PageParams...)
	show, end := wire.Answer(http.StatusOK, h.getChain), wire.Take(http.StatusOK, MaxBody, h.postEnd)
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/handoffs", Summary: "List handoffs, the newest first", Auth: wire.Viewer,
			Query: list, Answer: Page{}, Handle: wire.List(h.getPage),
		},
		{
			Method: "GET", Path: "/ops/handoffs/{id}", Summary: "Show a handoff and those above it", Auth: wire.Viewer,
			Answer: Chain{}, Handle: show,
		},
		{
			Method: "POST", Path: "/ops/handoffs/{id}/end", Summary: "End a handoff, and all below it, at once",
			Auth: wire.Operator, Request: Ending{}, Answer: Handoff{}, Handle: end,
		},
		{
			Method: "GET", Path: "/v1/handoffs/{id}", Summary: "Show a handoff that the agent has given or got, and those above it",
			Auth: wire.Agent, Answer: Chain{}, Handle: show,
		},
		{
			Method: "POST", Path: "/v1/handoffs/{id}/end", Summary: "End a handoff that the agent has given or got",
			Auth: wire.Agent, Request: Ending{}, Answer: Handoff{}, Handle: end,
		},
	}
}

func (h *Handoffs) getPage(r *http.Request, p wire.Paging) (Page, error) {
	q := r.URL.Query()
	all, next, err := h.List(r.Context(), Filter{
		Workspace: q.Get("workspace"), Agent: q.Get("agent"), User: q.Get("user"), Work: q.Get("work"),
		All: q.Get("all") == "true",
	}, p)
	return Page{all, next}, err
}

func (h *Handoffs) getChain(r *http.Request) (Chain, error) {
	chain, err := h.Chain(r.Context(), roster.From(r.Context()), r.PathValue("id"))
	return Chain{chain}, err
}

func (h *Handoffs) postEnd(r *http.Request, in Ending) (Handoff, error) {
	return h.End(r.Context(), roster.From(r.Context()), r.PathValue("id"), in.Reason)
}
