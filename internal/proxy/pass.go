package proxy

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"

	"signalbox/internal/fault"
	"signalbox/internal/proxy/form"
	"signalbox/internal/proxy/meter"
)

// passThrough carries a call that the policy does not judge, byte for byte, without holding it in
// memory (PRX-2). The policy would refuse a suspended agent; here that has to be done by hand.
func (x *exchange) passThrough() error {
	if x.who.Suspended {
		return fault.New(fault.AgentSuspended, "This agent is suspended. An operator can resume it.")
	}
	body := io.Reader(nil)
	if x.r.Body != nil && x.r.Body != http.NoBody {
		// A provider may begin to answer before it has all of the request.
		_ = x.control.EnableFullDuplex()
		body = http.MaxBytesReader(x.w, x.r.Body, x.most)
	}
	links := x.vaulted && x.isBatch()
	if links || x.reads != "" {
		x.header.Set("Accept-Encoding", "identity") // what is read, or rewritten, has to be plain text
	}
	if x.passesBatch() {
		return x.passNewBatch(body)
	}
	var uploaded *meter.Requests
	if x.reads == readsUpload && body != nil {
		uploaded = x.p.meter.ReadRequests(x.provider)
		body = io.TeeReader(body, uploaded)
	}
	res, cancel, err := x.callProvider(body, x.r.ContentLength)
	defer cancel()
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	x.record.Status = res.StatusCode
	defer x.recordCall(form.Facts{})
	switch {
	case x.reads != "" && (x.reads != readsUpload || uploaded != nil):
		return x.measure(res, uploaded)
	case links && form.IsJSON(res.Header):
		_, err := x.passLinks(res)
		return err
	}
	return x.copyReply(res)
}

// resultsURL finds scheme and host of the address from which a client fetches a batch's results,
// with slashes plain or escaped.
var resultsURL = regexp.MustCompile(`("results_url"\s*:\s*")https?:(?:\\?/){2}[^/"\\]+`)

// buffers are reused for copying replies, since a server may carry thousands of streams.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

type buffer [32 << 10]byte

// copyReply passes the reply on as it arrives, flushing each piece if its length is not known. If it
// breaks off, so does the answer (PRX-13). A client that has gone is not an error.
func (x *exchange) copyReply(res *http.Response) error { return x.copyAnd(res, nil) }

// copyAnd is copyReply that gives everything to another writer too, and then goes on when the client has gone.
func (x *exchange) copyAnd(res *http.Response, also io.Writer) error {
	length := int(res.ContentLength)
	x.writeHeader(res.StatusCode, res.Header, length)
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	for {
		n, err := res.Body.Read(buf[:])
		x.received += int64(n)
		if n > 0 {
			if gone := x.out.write(buf[:n], length < 0); gone != nil && also == nil {
				return nil // there is nobody to tell
			}
			if also != nil {
				_, _ = also.Write(buf[:n])
			}
		}
		if errors.Is(err, io.EOF) {
			_ = x.out.write(nil, length >= 0) // the call is recorded after this
			return nil
		}
		if err != nil {
			return abort(err)
		}
	}
}

// abort breaks the client's connection if err is not nil, so that it does not take a part for the
// whole. It does not return then.
func abort(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// writeHeader sends the status and the headers of the provider's reply, and none of ours (PRX-10).
// length is that of the body, negative if it is not known.
func (x *exchange) writeHeader(status int, from http.Header, length int) {
	h := x.w.Header()
	clear(h)
	for name, values := range from {
		h[name] = values
	}
	dropHops(h)
	h.Del("Content-Length")
	if length >= 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	x.out.committed = true
	x.w.WriteHeader(status)
}
