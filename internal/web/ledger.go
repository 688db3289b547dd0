package web

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/rulebook"
)

// ledgerNouns are what most entries are about: they keep the count on the page right.
var ledgerNouns = []string{
	"agent", "delivery", "message", "policy", "review", "run", "session", "signal", "step",
	"task",
}

// ledgerRows is how many entries one page lists.
const ledgerRows = 60

// ledgerView is a page of entries, newest first. Reading says how the search was understood, so
// that somebody who finds nothing can see why.
type ledgerView struct {
	Search  string
	Reading string // how the search was understood
	Entries []ledger.Entry
	Next    string
	Head    int64
	Signed  int64 // the size of the newest checkpoint
	Newest  bool  // nothing newer is left out
}

// kindForm is the form of a kind, such as gate.opened.
var kindForm = regexp.MustCompile(`^[a-z_]+\.[a-z_]+$`)

// readSearch understands what somebody looks for by its form: a kind of entry, a trace, or the id
// of something. reading says how it was understood.
func readSearch(text string) (q ledger.Query, reading string) {
	switch {
	case text == "" || userSearch(text) != "":
	case kindForm.MatchString(text):
		q.Kinds, reading = []string{text}, "entries of the kind "+text
	// Traces have a colon in them, such as task:default:T-2026-044; ids do not.
	case strings.Contains(text, ":"):
		q.Trace, reading = text, "everything in the trace "+text
	default:
		q.Subject, reading = text, entriesAbout+text
	}
	return q, reading
}

const entriesAbout = "entries about "

// loadLedger reads a page of entries. A number leads to that entry.
func (w *Web) loadLedger(r *Request) (any, error) {
	v := &ledgerView{Search: strings.TrimSpace(r.Query("q"))}
	if seq, err := strconv.ParseInt(v.Search, 10, 64); err == nil && seq > 0 {
		e, err := w.ledger.Visible(r.Context(), seq)
		if err != nil {
			return nil, err
		}
		v.Reading, v.Entries = fmt.Sprintf("entry %d", seq), []ledger.Entry{e}
		return v, w.fillHead(r, v)
	}
	var q ledger.Query
	q, v.Reading = readSearch(v.Search)
	// The query is confined to the operator's workspace, if they have one.
	q.Workspace, q.Newest, q.Limit = r.Who.Workspace, true, ledgerRows
	before, err := strconv.ParseInt(r.Query("cursor"), 10, 64)
	// Without a cursor it is the newest page.
	if v.Newest = err != nil; err == nil {
		q.UpTo = max(0, before-1)
		if q.UpTo == 0 {
			return v, w.fillHead(r, v)
		}
	}
	if kind := userSearch(v.Search); kind != "" {
		v.Entries, err = w.entriesOfUser(r, v, q, kind)
	} else {
		v.Entries, err = w.ledger.Entries(r.Context(), q)
	}
	if err == nil && len(v.Entries) == 0 && v.Search != "" && q.Subject == "" && userSearch(v.Search) == "" {
		// A tool may be called like a kind or a trace.
		q.Kinds, q.Trace, q.Subject, v.Reading = nil, "", v.Search, entriesAbout+v.Search
		v.Entries, err = w.ledger.Entries(r.Context(), q)
	}
	if err != nil {
		return nil, err
	}
	if len(v.Entries) == ledgerRows && v.Entries[0].Seq > 1 {
		v.Next = nextPage(r, strconv.FormatInt(v.Entries[0].Seq, 10))
	}
	slices.Reverse(v.Entries)
	return v, w.fillHead(r, v)
}

// fillHead reads how long the ledger is and how much of it is signed.
func (w *Web) fillHead(r *Request, v *ledgerView) (err error) {
	if v.Head, err = w.ledger.Head(r.Context()); err != nil {
		return err
	}
	_, v.Signed, err = w.ledger.Signed(r.Context())
	if fault.Is(err, fault.NotFound) {
		return nil // nothing is signed yet
	}
	return err
}

// entryView is one entry, with everything that it takes to verify it elsewhere: the record's
// bytes, the hashes of the proof, the checkpoint and the key. static/verify.js checks them in the
// browser with SHA-256 and Ed25519, so the page need not be believed.
type entryView struct {
	ledger.EntryView
	Text       string // the body
	Record     string // the bytes that are hashed
	RecordB64  string
	Proof      ledger.Proof
	Hashes     []string
	Root, Leaf string
	Checkpoint string
	Key        string
	Prev, Next int64
	Links      []link
	For        []behalf.Of         // on whose behalf it is
	HandedOn   *handedOn           // under which handoff it was decided
	Why        *rulebook.Explained // of an entry that is a decision
}

// link leads to the page of what an entry is about.
type link struct{ Text, At string }

// PageTitle is the number of the entry.
func (e *entryView) PageTitle() string { return fmt.Sprintf("Entry %d", e.Seq) }

// loadEntry reads an entry with its inclusion proof in the newest checkpoint. A new entry may not
// be covered yet; the first Prove has a checkpoint signed, the second proves against exactly that.
func (w *Web) loadEntry(r *Request) (any, error) {
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	if err != nil {
		return nil, fault.New(fault.NotFound, "There is no entry %.40q.", r.PathValue("seq"))
	}
	e, err := w.ledger.Visible(r.Context(), seq)
	if err != nil {
		return nil, err
	}
	v := &entryView{
		EntryView: e.View(), Record: string(e.Record), RecordB64: base64.StdEncoding.EncodeToString(e.Record),
		Key: w.ledger.Key(), Prev: seq - 1, Links: linksOf(&e), For: behalf.Read(&e), HandedOn: handedOnIn(&e),
	}
	switch {
	case v.Erased:
	// Bodies are JSON, apart from a few that are raw bytes.
	case len(v.Body) > 0:
		v.Text = cutBody(pretty(v.Body), seq)
	default:
		v.Text = cutBody(base64.StdEncoding.EncodeToString(v.RawBody[:min(len(v.RawBody), maxBody)]), seq)
	}
	if why, err := w.Book.Explain(r.Context(), seq); err == nil { // most entries are no decisions
		v.Why = &why
	}
	if _, err := w.ledger.Prove(r.Context(), seq, 0); err != nil { // signs, if it has to
		return nil, err
	}
	// The proof must be against exactly the checkpoint that the page carries.
	text, size, err := w.ledger.Signed(r.Context())
	if err != nil {
		return nil, err
	}
	if v.Proof, err = w.ledger.Prove(r.Context(), seq, size); err != nil {
		return nil, err
	}
	v.Checkpoint, v.Root, v.Leaf = string(text), v.Proof.Root.String(), v.Proof.Leaf.String()
	for _, h := range v.Proof.Hashes {
		v.Hashes = append(v.Hashes, h.String())
	}
	if seq < size {
		v.Next = seq + 1
	}
	return v, nil
}

// maxBody is how many bytes of HTML a body may take on a page.
const maxBody = 32 << 10

// cutBody cuts a body to maxBody, counting what escaping adds.
func cutBody(text string, seq int64) string {
	size := 0
	for i := range len(text) {
		size++
		if strings.IndexByte(`"'&<>+`, text[i]) >= 0 {
			size += 4 // of &#34; and the like
		}
		if size > maxBody {
			return strings.ToValidUTF8(text[:i], "") + fmt.Sprintf("\n… (cut here; GET /ops/ledger/%d has all of it)", seq)
		}
	}
	return text
}

// linksOf are the pages that an entry leads to.
func linksOf(e *ledger.Entry) (all []link) {
	noun, _, _ := strings.Cut(e.Kind, ".")
	// Nouns without a page of their own have no link.
	at := map[string]string{
		"gate": address.Gate.At(e.Subject), "message": address.Message.At(e.Subject), "run": address.Run.At(e.Subject),
		"delivery": address.Delivery.At(e.Subject), "handoff": address.Handoff.At(e.Subject),
		"task": address.Task.At(e.Workspace, e.Subject), "policy": layerAt(address.Policy.At(), e.Workspace, ""),
	}[noun]
	if at != "" {
		all = append(all, link{"Open the " + noun, at})
	}
	if e.Trace != "" {
		all = append(all, link{"Everything in its trace", address.Ledger.At() + "?q=" + e.Trace})
	}
	return all
}
