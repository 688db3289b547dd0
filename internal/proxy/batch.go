package proxy

import (
	"io"
	"net/http"
	"strings"

	"signalbox/internal/proxy/form"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/wire"
)

// What is read of a call that is only passed on, for what it takes.
const (
	readsUpload  = "upload"  // a file, which may have the requests of a batch
	readsResults = "results" // of a batch of Anthropic
	readsFile    = "file"    // the content of one, which may be the results of a batch
	readsJobs    = "jobs"    // batches of OpenAI, which say where their results are
)

// kindBatch is event.kind of a batch, and kindEmbeddings that of embeddings.
const (
	kindBatch      = "batch"
	kindEmbeddings = "embeddings"
)

// batchDue is what the batch in the request may cost. The requests in a file are known if it was uploaded through us;
// of one that was not, the most is taken that a file can hold.
func (x *exchange) batchDue() (*meter.Due, error) {
	if x.due != nil {
		return x.due, nil
	}
	if x.provider == OpenAI {
		d, err := x.p.meter.FileOf(x.p.core.DB.Reading(x.r.Context()), OpenAI, x.q.file)
		if err != nil {
			return nil, err
		}
		if d == nil {
			d = x.p.meter.Unseen(OpenAI)
		}
		x.due = &meter.Due{Model: d.Model, Requests: d.Requests, Usage: d.Usage, Cost: d.Cost}
		return x.due, nil
	}
	var bills []meter.Bill
	for _, params := range x.q.batch {
		one := x.batched(params)
		bills = x.p.meter.AddRequest(bills, x.provider, one.atMost(int64(len(params))))
	}
	if len(bills) == 0 { // it cannot be read
		bills = x.p.meter.AddRequest(nil, x.provider, meter.Request{Bytes: int64(len(x.q.body))})
	}
	x.due = meter.Sum(bills)
	return x.due, nil
}

// batched is a request in a batch. One that cannot be read is judged as model "unreadable", without tools.
func (x *exchange) batched(params wire.Raw) *request {
	one := &request{form: form.Messages, kind: x.kind, provider: x.provider, body: params}
	if err := one.read(x.rules.messages); err != nil {
		one.model = "unreadable"
	}
	return one
}

// passBatch passes on the answer to a batch that was made, whose id is needed to find its results.
func (x *exchange) passBatch(res *http.Response) error {
	text, err := x.passLinks(res)
	x.broke = err != nil
	about := form.Facts{}
	if err == nil {
		about.ID = wire.TextIn(text, "id")
	}
	x.recordCall(about)
	return err
}

// passesBatch reports whether the call makes a batch that no rule looks at. It is not held in memory.
func (x *exchange) passesBatch() bool {
	return x.kind == kindBatch && x.provider == Anthropic && !x.rules.prompt
}

// passNewBatch sends a batch that no rule looks at, and works out what it may cost on the way.
func (x *exchange) passNewBatch(body io.Reader) error {
	if err := x.prepare(); err != nil {
		return err
	}
	x.header.Set("Accept-Encoding", "identity") // its links may be rewritten
	requests := x.p.meter.ReadBatch(x.provider)
	if body == nil {
		body = http.NoBody
	}
	res, cancel, err := x.callProvider(io.TeeReader(body, requests), x.r.ContentLength)
	defer cancel()
	x.due = requests.Due()
	if err != nil {
		x.record.Status, x.broke = http.StatusBadGateway, true
		x.recordCall(form.Facts{})
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if x.record.Status = res.StatusCode; res.StatusCode >= http.StatusMultipleChoices {
		x.free = true
		defer x.recordCall(form.Facts{})
		return x.copyReply(res)
	}
	return x.passBatch(res)
}

// passEmbeddings passes embeddings on, and reads what they took.
func (x *exchange) passEmbeddings(res *http.Response) error {
	raw, err := readReply(res)
	if err != nil {
		x.broke = true
		x.recordCall(form.Facts{})
		return err
	}
	x.passReply(res, raw)
	var about form.Facts
	if text, err := decompress(res.Header, raw); err == nil {
		about = form.Embedded(text)
	}
	x.recordCall(about)
	return nil
}

// measure passes on a reply that says something of what batches take. It reads all of it even if the client goes: what
// was fetched is counted once, as a whole.
func (x *exchange) measure(res *http.Response, uploaded *meter.Requests) error {
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Encoding") != "" {
		return x.copyReply(res)
	}
	call := x.r.Method + " " + x.path
	switch x.reads {
	case readsUpload, readsJobs:
		text, err := x.passLinks(res)
		if err != nil {
			return err
		}
		if x.reads == readsJobs {
			x.noteJobs(text)
		} else if wire.TextIn(text, "purpose") == "batch" {
			d := uploaded.Due()
			d.What, d.ID = meter.File, wire.TextIn(text, "id")
			x.note(d)
		}
		return nil
	}
	x.detach()
	results := x.p.meter.ReadResults(x.provider)
	err := x.copyAnd(res, results)
	if bills, ok := results.Bills(); ok {
		what := meter.Batch
		if x.reads == readsFile {
			what = meter.File
		}
		x.p.meter.Settle(x.group(), meter.Result{
			Provider: x.provider, What: what, ID: x.id, Bills: bills, Call: call, Status: res.StatusCode,
		})
	}
	return err
}

// noteJobs notes where the results of batches are, and which have ended without any.
func (x *exchange) noteJobs(text []byte) {
	for _, job := range form.Jobs(text) {
		switch {
		case job.ID == "" || job.Object != "batch":
		case job.Output != "":
			x.p.meter.Filed(x.who.Actor(), x.provider, job.ID, job.Output)
		case job.Unpaid():
			x.p.meter.Unpaid(x.group(), x.provider, job.ID)
		}
	}
}

// passLinks passes on a reply that is read whole. With a key from the vault it makes a client fetch the results of a
// batch of Anthropic through us (PRX-11): SDKs use the address in the batch with the key they have, which is ours and
// must not reach the provider.
func (x *exchange) passLinks(res *http.Response) ([]byte, error) {
	text, err := readReply(res)
	if err != nil {
		return nil, err
	}
	shown := text
	if x.vaulted && x.provider == Anthropic {
		if coding := res.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
			return nil, &gatewayError{"The provider's reply has a coding that was not asked for, and its links cannot be changed."}
		}
		shown = resultsURL.ReplaceAll(text, []byte("${1}"+x.p.core.BaseURL+x.prefix))
	}
	x.writeHeader(res.StatusCode, res.Header, len(shown))
	_ = x.out.write(shown, true)
	return text, nil
}

// readsOf fills in what is read of a call on batches and files that is only passed on.
func (e *endpoint) readsOf(method string, parts []string) {
	get, post := method == http.MethodGet, method == http.MethodPost
	switch {
	case e.provider == Anthropic && get && len(parts) == 4 && parts[1] == "batches" && parts[3] == "results":
		e.reads, e.id = readsResults, unescaped(parts[2])
	case e.provider == Anthropic:
	case parts[0] == "files" && post && len(parts) == 1:
		e.reads = readsUpload
	case parts[0] == "files" && get && len(parts) == 3 && parts[2] == "content":
		e.reads, e.id = readsFile, unescaped(parts[1])
	case parts[0] == "batches" && e.kind == "":
		e.reads = readsJobs
	}
}

// isBatch reports whether a path of Anthropic is about batches, whose links are rewritten.
func (x *exchange) isBatch() bool {
	return x.provider == Anthropic && strings.HasPrefix(x.path, "/v1/messages/batches") && x.reads == ""
}
