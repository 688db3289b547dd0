package harness

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Knowledge is something that operators have put into a workspace for its agents: a fact
// with its source, or with a path a snippet of a file.
type Knowledge struct {
	ID         string    `json:"id"`
	Workspace  string    `json:"workspace"`
	Content    string    `json:"content"`
	Source     string    `json:"source,omitempty"`
	Path       string    `json:"path,omitempty"`
	Confidence float64   `json:"confidence"`
	AddedAt    time.Time `json:"added_at"`
	AddedBy    string    `json:"added_by"`
	Score      float64   `json:"score,omitempty"` // how well it answers a search
}

// NewKnowledge is what is sent to add it.
type NewKnowledge struct {
	Workspace  string   `json:"workspace,omitempty"`
	Content    string   `json:"content"`
	Source     string   `json:"source,omitempty"`
	Path       string   `json:"path,omitempty"`
	Confidence *float64 `json:"confidence,omitempty"` // 1 when absent
}

// KnowledgePage is a page of knowledge.
type KnowledgePage struct {
	Knowledge []Knowledge `json:"knowledge"`
	Next      string      `json:"next"`
}

// known is the body of knowledge.added.
type known struct {
	Content    string  `json:"content"`
	Source     string  `json:"source,omitzero"`
	Path       string  `json:"path,omitzero"`
	Confidence float64 `json:"confidence"`
}

const (
	maxContent = 64 << 10
	maxSource  = 2000
)

func (n *NewKnowledge) check() (known, error) {
	k := known{strings.TrimSpace(n.Content), n.Source, n.Path, 1}
	if n.Confidence != nil {
		k.Confidence = *n.Confidence
	}
	wrong := func(field, format string, args ...any) (known, error) {
		return k, fault.New(fault.InvalidPayload, format, args...).About(field)
	}
	switch {
	case k.Content == "" || len(k.Content) > maxContent:
		return wrong("content", "The content should be a fact or a snippet of a file, of 1 to %d bytes.", maxContent)
	case k.Source == "" && k.Path == "":
		return wrong("source", "Say where this is from, such as \"source\": \"runbook.md\", or give the path of the file that it is a part of.")
	case len(k.Source) > maxSource || len(k.Path) > maxSource:
		return wrong("source", "The source and the path have at most %d bytes.", maxSource)
	case k.Confidence < 0 || k.Confidence > 1:
		return wrong("confidence", "The confidence should be a number from 0 to 1.")
	}
	return k, nil
}

// AddKnowledge puts something into a workspace.
func (h *Harness) AddKnowledge(ctx context.Context, by roster.Identity, n NewKnowledge) (Knowledge, error) {
	k, err := n.check()
	if err != nil {
		return Knowledge{}, err
	}
	name := id.New("fact")
	err = h.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		if err := roster.RequireWorkspace(tx, n.Workspace); err != nil {
			return err
		}
		tx.Append(ledger.Event{Workspace: n.Workspace, Kind: kindKnown, Actor: by.Actor(), Subject: name, Body: k})
		return nil
	})
	if err != nil {
		return Knowledge{}, err
	}
	return h.Knowledge(ctx, name)
}

// applyKnown indexes what was added by its words.
func applyKnown(tx *store.Tx, e *ledger.Entry) error {
	var k known
	if err := e.Decode(&k); err != nil {
		return err
	}
	words := wordsOf(k.Content + "\n" + k.Source + "\n" + k.Path)
	times := map[string]int64{}
	for _, w := range words {
		times[w]++
	}
	tx.Exec("INSERT INTO knowledge (id, workspace, seq, words) VALUES ($1, $2, $3, $4)", e.Subject, e.Workspace, e.Seq, len(words))
	for w, n := range times {
		tx.Exec("INSERT INTO knowledge_word (workspace, word, id, times) VALUES ($1, $2, $3, $4)", e.Workspace, w, e.Subject, n)
	}
	return nil
}

const selectKnowledge = "SELECT k.seq, " + ledger.EntryColumns + " FROM knowledge k JOIN " + ledger.EntryTable + " ON e.seq = k.seq "

func scanKnowledge(scan func(...any) error) (k Knowledge, seq int64, err error) {
	var row ledger.Row
	if err := scan(row.After(&seq)...); err != nil {
		return k, 0, err
	}
	e, err := row.Entry()
	if err != nil {
		return k, 0, err
	}
	var b known
	err = e.Decode(&b)
	return Knowledge{e.Subject, e.Workspace, b.Content, b.Source, b.Path, b.Confidence, e.At, e.Actor, 0}, seq, err
}

func (h *Harness) listKnowledge(ctx context.Context, where string, args ...any) (all []Knowledge, last int64, err error) {
	all, err = store.All(h.core.DB.Reading(ctx), func(scan store.Scan) (k Knowledge, err error) {
		k, last, err = scanKnowledge(scan)
		return k, err
	}, selectKnowledge+where, args...)
	return all, last, err
}

// Knowledge reads one piece of knowledge.
func (h *Harness) Knowledge(ctx context.Context, name string) (Knowledge, error) {
	found, _, err := h.listKnowledge(ctx, "WHERE k.id = $1", name)
	if err == nil && (len(found) == 0 || !wire.InScope(ctx, found[0].Workspace)) {
		err = fault.New(fault.NotFound, "There is no knowledge %.80q. GET /ops/knowledge lists what there is.", name)
	}
	if err != nil {
		return Knowledge{}, err
	}
	return found[0], nil
}

// Search finds what answers a question best, in one workspace.
func (h *Harness) Search(ctx context.Context, workspace, question string, limit int) ([]Knowledge, error) {
	words := asked(question)
	if len(words) == 0 || limit <= 0 {
		return []Knowledge{}, nil
	}
	scores, err := h.score(ctx, workspace, words)
	if err != nil {
		return nil, err
	}
	best := make([]string, 0, len(scores))
	for name := range scores {
		best = append(best, name)
	}
	slices.SortFunc(best, func(a, b string) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	best = best[:min(len(best), limit, maxFound)]
	if len(best) == 0 {
		return []Knowledge{}, nil
	}
	marks, args := []string{}, []any{}
	for i, name := range best {
		marks, args = append(marks, fmt.Sprintf("$%d", i+1)), append(args, name)
	}
	found, _, err := h.listKnowledge(ctx, "WHERE k.id IN ("+strings.Join(marks, ", ")+")", args...)
	for i := range found {
		found[i].Score = scores[found[i].ID]
	}
	slices.SortFunc(found, func(a, b Knowledge) int { return slices.Index(best, a.ID) - slices.Index(best, b.ID) })
	return found, err
}

// maxFound is the most that a search finds.
const maxFound = 100

// score adds up, over the words of a question, how well each text answers it.
func (h *Harness) score(ctx context.Context, workspace string, words []string) (map[string]float64, error) {
	var texts, total int64
	err := h.core.DB.QueryRow(ctx, "SELECT count(*), COALESCE(sum(words), 0) FROM knowledge WHERE workspace = $1", []any{workspace}, &texts, &total)
	if err != nil || texts == 0 {
		return nil, err
	}
	marks, args := []string{}, []any{workspace}
	for i, w := range words {
		marks, args = append(marks, fmt.Sprintf("$%d", i+2)), append(args, w)
	}
	type hit struct {
		word, id      string
		times, length int64
	}
	having := map[string]int64{}
	hits, err := store.All(h.core.DB.Reading(ctx), func(scan store.Scan) (one hit, err error) {
		err = scan(&one.word, &one.id, &one.times, &one.length)
		having[one.word]++
		return one, err
	}, "SELECT w.word, w.id, w.times, k.words FROM knowledge_word w JOIN knowledge k ON k.id = w.id WHERE w.workspace = $1 AND w.word IN ("+strings.Join(marks, ", ")+") ORDER BY w.word, w.id", args...)
	if err != nil {
		return nil, err
	}
	scores := map[string]float64{}
	for _, one := range hits {
		scores[one.id] += relevance(one.times, one.length, float64(total)/float64(texts), texts, having[one.word])
	}
	return scores, nil
}

func (h *Harness) getKnowledge(w http.ResponseWriter, r *http.Request) error {
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	workspace, err := roster.QueryWorkspace(r)
	if err != nil {
		return err
	}
	page := KnowledgePage{Knowledge: []Knowledge{}}
	if question := r.URL.Query().Get("search"); question != "" {
		if page.Knowledge, err = h.Search(r.Context(), workspace, question, limit); err != nil {
			return err
		}
		return wire.Reply(w, http.StatusOK, page)
	}
	at, err := wire.ReadCursor(r, 1)
	if err != nil {
		return err
	}
	after := int64(0)
	if at[0] != "" {
		if after, err = strconv.ParseInt(at[0], 10, 64); err != nil {
			return wire.BadCursor()
		}
	}
	var last int64
	if page.Knowledge, last, err = h.listKnowledge(r.Context(), "WHERE k.workspace = $1 AND k.seq > $2 ORDER BY k.seq LIMIT $3", workspace, after, limit); err != nil {
		return err
	}
	if len(page.Knowledge) == limit {
		page.Next = wire.Cursor(strconv.FormatInt(last, 10))
	}
	return wire.Reply(w, http.StatusOK, page)
}

func (h *Harness) postKnowledge(w http.ResponseWriter, r *http.Request) error {
	var in NewKnowledge
	if err := wire.ReadJSON(w, r, maxPost, &in); err != nil {
		return err
	}
	var err error
	if in.Workspace, err = roster.WorkspaceOf(r.Context(), in.Workspace); err != nil {
		return err
	}
	added, err := h.AddKnowledge(r.Context(), roster.From(r.Context()), in)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, added)
}

func (h *Harness) getOneKnowledge(w http.ResponseWriter, r *http.Request) error {
	found, err := h.Knowledge(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, found)
}

func (h *Harness) deleteKnowledge(w http.ResponseWriter, r *http.Request) error {
	found, err := h.Knowledge(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	err = h.core.Ledger.Write(r.Context(), func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: found.Workspace, Kind: kindForgotten, Actor: roster.From(r.Context()).Actor(), Subject: found.ID, Body: struct{}{}})
		return nil
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
