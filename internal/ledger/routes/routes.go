// Package routes is the ledger over HTTP: entries, proofs, exports and events for operators, and the transparency log
// for anyone. It decodes, calls the ledger and encodes; it must not know what entries mean, nor read a table.
package routes

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// surface is what the calls work with.
type surface struct {
	*ledger.Ledger
	witnessed Witnessed
	log       *slog.Logger
}

// Witnessed is the newest checkpoint that enough witnesses have cosigned, and its size.
type Witnessed func(context.Context) ([]byte, int64, error)

// The answers of the operators' API.
type (
	// ProofView is an inclusion proof. The leaf is the entry at index seq-1.
	ProofView struct {
		Seq      int64    `json:"seq"`
		Size     int64    `json:"size"`
		Root     string   `json:"root"`
		LeafHash string   `json:"leaf_hash"`
		Hashes   []string `json:"hashes"`
		Record   string   `json:"record"`
	}
	// ConsistencyView shows that one tree is a beginning of another.
	ConsistencyView struct {
		From   int64    `json:"from"`
		To     int64    `json:"to"`
		Hashes []string `json:"hashes"`
	}
)

// Of is the ledger's part of the HTTP surface. Entries are listed by package behalf, which finds them by user, too.
func Of(book *ledger.Ledger, witnessed Witnessed, log *slog.Logger) []wire.Route {
	l := surface{book, witnessed, log}
	cosigned := []wire.Param{{
		Name: "witnessed", Meaning: "true for the newest checkpoint that the quorum of witnesses has cosigned",
	}}
	after := wire.Param{Name: "after", Meaning: "only entries with a greater sequence number", Number: true}
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/ledger/{seq}", Summary: "Read one entry", Auth: wire.Viewer, Answer: ledger.EntryView{},
			Handle: l.getEntry,
		},
		{
			Method: "GET", Path: "/ops/ledger/{seq}/proof",
			Summary: "Prove that an entry is in the tree; with Accept: text/plain as a tlog-proof@v1 file", Auth: wire.Viewer,
			Query: []wire.Param{{
				Name:    "size",
				Meaning: "the size of the tree to prove it in; the newest checkpoint's when absent", Number: true,
			}, {Name: "body", Meaning: "true for a file that carries the body, too"}},
			Answer: ProofView{}, Handle: l.getProof,
		},
		{
			Method: "GET", Path: "/ops/ledger/consistency", Summary: "Prove that a smaller tree is a beginning of a larger one",
			Auth: wire.Viewer, Query: []wire.Param{
				{Name: "from", Meaning: "the smaller size", Number: true},
				{Name: "to", Meaning: "the larger size", Number: true},
			}, Answer: ConsistencyView{}, Handle: l.getConsistency,
		},
		{
			Method: "GET", Path: "/ops/ledger/export", Summary: "All entries with a checkpoint, for verifying offline",
			Auth: wire.Admin, Query: cosigned, Media: "text/plain", Handle: l.getExport,
		},
		{
			Method: "GET", Path: "/ops/events",
			Summary: "Entries as they come, as server-sent events; Last-Event-ID is understood", Auth: wire.Viewer,
			Query: []wire.Param{after}, Media: "text/event-stream", Handle: l.getEvents,
		},
		{
			Method: "GET", Path: "/ledger/checkpoint", Summary: "The newest signed checkpoint (C2SP)", Media: "text/plain",
			Query:  cosigned,
			Handle: l.getCheckpoint,
		},
		{
			Method: "GET", Path: "/ledger/key", Summary: "The key that verifies checkpoints", Media: "text/plain",
			Handle: l.getKey,
		},
		{
			Method: "GET", Path: "/ledger/tile/{path...}", Summary: "A tile of the tree's hashes (C2SP tlog-tiles)",
			Media: "application/octet-stream", Handle: l.getTile,
		},
		{
			Method: "GET", Path: "/ledger/tile/entries/{path...}", Summary: "A bundle of records (C2SP tlog-tiles)",
			Auth: wire.Viewer, Media: "application/octet-stream", Handle: l.getBundle,
		},
	}
}

func (l surface) getEntry(w http.ResponseWriter, r *http.Request) error {
	seq, err := wire.PathNumber(r, "seq")
	if err != nil {
		return err
	}
	e, err := l.Visible(r.Context(), seq)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, e.View())
}

// getProof answers with JSON, or with a file that stands alone (LED-28). The file needs a signed
// checkpoint of the tree's size, so it takes no size.
func (l surface) getProof(w http.ResponseWriter, r *http.Request) error {
	seq, err := wire.PathNumber(r, "seq")
	if err != nil {
		return err
	}
	size, err := wire.Number(r, "size", 0)
	if err != nil {
		return err
	}
	if strings.HasPrefix(r.Header.Get("Accept"), "text/plain") {
		if size != 0 {
			return fault.New(fault.InvalidRequest,
				"A proof file is made for the newest checkpoint. Leave size out.").About("size")
		}
		file, err := l.ProofFile(r.Context(), seq, r.URL.Query().Get("body") == "true")
		return replyText(w, file, err)
	}
	p, err := l.Prove(r.Context(), seq, size)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK,
		ProofView{p.Seq, p.Size, p.Root.String(), p.Leaf.String(), hashTexts(p.Hashes), string(p.Record)})
}

func (l surface) getConsistency(w http.ResponseWriter, r *http.Request) error {
	from, err := wire.Number(r, "from", 0)
	if err != nil {
		return err
	}
	to, err := wire.Number(r, "to", 0)
	if err != nil {
		return err
	}
	hashes, err := l.ProveConsistency(r.Context(), from, to)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, ConsistencyView{from, to, hashTexts(hashes)})
}

// hashTexts writes hashes in base64, as checkpoints and tools of C2SP do.
func hashTexts(hashes []tlog.Hash) []string {
	out := make([]string, len(hashes))
	for i, h := range hashes {
		out[i] = h.String()
	}
	return out
}

// getExport aborts the connection if something fails after the first byte: the client
// sees a broken transfer, and LED-31 makes sure that what it kept does not verify.
func (l surface) getExport(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	started := &startedWriter{ResponseWriter: w}
	err := l.export(r, started)
	if err != nil && started.wrote {
		l.log.Warn("export aborted", "error", err.Error())
		panic(http.ErrAbortHandler)
	}
	return err
}

// export writes the ledger under a fresh checkpoint, or under one that was witnessed.
func (l surface) export(r *http.Request, w *startedWriter) error {
	if r.URL.Query().Get("witnessed") != "true" {
		return l.Export(r.Context(), w)
	}
	signed, size, err := l.witnessed(r.Context())
	if err != nil {
		return err
	}
	return l.ExportUnder(r.Context(), w, signed, size)
}

// startedWriter remembers whether anything was written, after which no error can be sent. It
// gives each write a minute, so that a large export is not cut off by the server's timeout
// and a client that stalls is.
type startedWriter struct {
	http.ResponseWriter
	wrote bool
}

func (w *startedWriter) Write(b []byte) (int, error) {
	w.wrote = true
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(time.Minute))
	return w.ResponseWriter.Write(b)
}

// getCheckpoint is public. Caches have to ask again, since the newest checkpoint changes every
// second.
func (l surface) getCheckpoint(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-cache")
	newest := l.Signed
	if r.URL.Query().Get("witnessed") == "true" {
		newest = l.witnessed
	}
	text, _, err := newest(r.Context())
	return replyText(w, text, err)
}

func (l surface) getKey(w http.ResponseWriter, _ *http.Request) error {
	return replyText(w, []byte(l.Key()+"\n"), nil)
}

// replyText answers with text, or returns the error.
func replyText(w http.ResponseWriter, text []byte, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(text)
	return nil
}

// getBundle answers with records. LED-18: unlike tiles of hashes they need a viewer's token.
func (l surface) getBundle(w http.ResponseWriter, r *http.Request) error {
	data, err := l.Bundle(r.Context(), strings.TrimPrefix(r.URL.Path, "/ledger/"))
	return replyImmutable(w, "private", data, err)
}

func (l surface) getTile(w http.ResponseWriter, r *http.Request) error {
	data, err := l.Tile(r.Context(), strings.TrimPrefix(r.URL.Path, "/ledger/"))
	return replyImmutable(w, "public", data, err)
}

// replyImmutable answers with bytes that never change (LED-19). cache is "public" or "private":
// shared caches must not keep what needs a token.
func replyImmutable(w http.ResponseWriter, cache string, data []byte, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", cache+", max-age=31536000, immutable")
	_, _ = w.Write(data)
	return nil
}

// getEvents streams until the client disconnects or the server stops. A comment every few
// seconds keeps proxies from closing the connection. LED-33: a client that is confined to a
// workspace is sent its entries only.
func (l surface) getEvents(w http.ResponseWriter, r *http.Request) error {
	after, err := wire.Number(r, "after", -1)
	if err != nil {
		return err
	}
	if after, err = wire.LastEventID(r, after); err != nil {
		return err
	}
	if after < 0 {
		if after, err = l.Head(r.Context()); err != nil {
			return err
		}
	}
	events := wire.Events(w)
	if err := events.Flush(); err != nil {
		return fmt.Errorf("stream events: %w", err)
	}
	if r.Method == http.MethodHead {
		return nil
	}
	return l.stream(r.Context(), events, after)
}

// stream sends what the caller may see. It looks when it is woken and at each beat only: of 5,000 watchers each would
// otherwise ask the database once a second.
func (l surface) stream(ctx context.Context, events *wire.Stream, after int64) error {
	beat := time.NewTicker(wire.StreamBeat)
	defer beat.Stop()
	for ctx.Err() == nil && !wire.Stopping(ctx) {
		news := l.News()
		entries, err := l.Next(ctx, after)
		for i := range entries {
			e := &entries[i]
			if after = e.Seq; !wire.InScope(ctx, e.Workspace) {
				continue
			}
			data, err := wire.Marshal(e.View())
			if err != nil {
				return err
			}
			if events.Send(strconv.FormatInt(e.Seq, 10), e.Kind, data) != nil {
				return nil // the client has gone
			}
		}
		var soon <-chan time.Time
		if err != nil && ctx.Err() == nil {
			soon = l.Retry(err)
		}
		if len(entries) == ledger.Page {
			continue
		}
		select {
		case <-news:
		case <-soon:
		case <-beat.C:
			if events.Beat() != nil {
				return nil
			}
		case <-wire.Stop(ctx):
		case <-ctx.Done():
		}
	}
	return nil
}
