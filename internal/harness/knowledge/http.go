package knowledge

import (
	"net/http"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

const maxBody = 2 << 20

// Routes are knowledge's part of the operators' API.
func (b *Base) Routes() []wire.Route {
	list := append([]wire.Param{
		{Name: "workspace", Meaning: "the workspace; default when absent"},
		{Name: "search", Meaning: "words to look for; the best answers come first"},
	}, wire.PageParams...)
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/knowledge",
			Summary: "What a workspace's agents are told of: all of it, or the best answers to a search",
			Auth:    wire.Viewer, Query: list, Answer: KnowledgePage{}, Handle: wire.Answer(http.StatusOK, b.getPage),
		},
		{
			Method: "POST", Path: "/ops/knowledge", Summary: "Add a fact with its source, or a snippet of a file",
			Auth: wire.Operator, Request: NewKnowledge{}, Answer: Knowledge{}, Status: 201,
			Handle: wire.Take(http.StatusCreated, maxBody, b.post),
		},
		{
			Method: "GET", Path: "/ops/knowledge/{id}", Summary: "Show one piece of knowledge",
			Auth: wire.Viewer, Answer: Knowledge{}, Handle: wire.Answer(http.StatusOK, b.getOne),
		},
		{
			Method: "DELETE", Path: "/ops/knowledge/{id}", Summary: "Take a piece of knowledge away",
			Auth: wire.Operator, Status: 204, Handle: wire.Do(b.delete),
		},
	}
}

func (b *Base) getPage(r *http.Request) (KnowledgePage, error) {
	limit, err := wire.Limit(r)
	if err != nil {
		return KnowledgePage{}, err
	}
	q := r.URL.Query()
	return b.Page(r.Context(), Filter{
		Workspace: q.Get("workspace"), Search: q.Get("search"), Cursor: q.Get("cursor"), Limit: limit,
	})
}

func (b *Base) post(r *http.Request, n NewKnowledge) (Knowledge, error) {
	return b.Add(r.Context(), roster.From(r.Context()), n)
}

func (b *Base) getOne(r *http.Request) (Knowledge, error) {
	return b.Get(r.Context(), r.PathValue("id"))
}

func (b *Base) delete(r *http.Request) error {
	return b.Remove(r.Context(), roster.From(r.Context()), r.PathValue("id"))
}
