package knowledge

import (
	"net/http"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// maxBody is the largest request, in bytes: a piece of 64 KiB, escaped, with its source
// and path.
const maxBody = 2 << 20

// Routes are knowledge's part of the operators' API.
func (b *Base) Routes() []wire.Route {
	list := append([]wire.Param{
		{Name: "workspace", Meaning: "the workspace; default when absent"},
		{Name: "search", Meaning: "words to search for; best answers first"},
	}, wire.PageParams...)
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/knowledge",
			Summary: "The knowledge of a workspace: all of it, or the best answers to a search",
			Auth:    wire.Viewer, Query: list, Answer: KnowledgePage{}, Handle: wire.List(b.getPage),
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
			Method: "DELETE", Path: "/ops/knowledge/{id}", Summary: "Remove a piece of knowledge",
			Auth: wire.Operator, Status: 204, Handle: wire.Do(b.delete),
		},
	}
}

// getPage answers GET /ops/knowledge.
func (b *Base) getPage(r *http.Request, p wire.Paging) (KnowledgePage, error) {
	q := r.URL.Query()
	return b.Page(r.Context(), Filter{
		Workspace: q.Get("workspace"), Search: q.Get("search"), Cursor: p.Cursor, Limit: p.Limit,
	})
}

// post answers POST /ops/knowledge.
func (b *Base) post(r *http.Request, n NewKnowledge) (Knowledge, error) {
	return b.Add(r.Context(), roster.From(r.Context()), n)
}

// getOne answers GET /ops/knowledge/{id}.
func (b *Base) getOne(r *http.Request) (Knowledge, error) {
	return b.Get(r.Context(), r.PathValue("id"))
}

// delete answers DELETE /ops/knowledge/{id}.
func (b *Base) delete(r *http.Request) error {
	return b.Remove(r.Context(), roster.From(r.Context()), r.PathValue("id"))
}
