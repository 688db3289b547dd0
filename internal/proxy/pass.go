package proxy

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"signalbox/internal/fault"
	"signalbox/internal/proxy/form"
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
	links := x.vaulted && x.provider == Anthropic && strings.HasPrefix(x.path, "/v1/messages/batches") &&
		!strings.HasSuffix(x.path, "/results")
	if links {
		x.header.Set("Accept-Encoding", "identity") // rewriteLinks needs plain text
	}
	res, cancel, err := x.callProvider(body, x.r.ContentLength)
	defer cancel()
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	x.record.Status = res.StatusCode
	defer x.recordCall(form.Facts{})
	if links && form.IsJSON(res.Header) {
		return x.rewriteLinks(res)
	}
	return x.copyReply(res)
}

// resultsURL finds scheme and host of the address from which a client fetches a batch's results,
// with slashes plain or escaped.
var resultsURL = regexp.MustCompile(`("results_url"\s*:\s*")https?:(?:\\?/){2}[^/"\\]+`)

// rewriteLinks makes a client fetch the results of a batch through us (PRX-11): SDKs use the address
// in the batch with the key they have, which is ours and must not reach the provider.
func (x *exchange) rewriteLinks(res *http.Response) error {
	text, err := readReply(res)
	if err != nil {
		return err
	}
	if coding := res.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return &gatewayError{"The provider's reply has a coding that was not asked for, and its links cannot be changed."}
	}
	text = resultsURL.ReplaceAll(text, []byte("${1}"+x.p.core.BaseURL+x.prefix))
	x.writeHeader(res.StatusCode, res.Header, len(text))
	_, err = x.w.Write(text)
	return abort(err)
}

// buffers are reused for copying replies, since a server may carry thousands of streams.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

type buffer [32 << 10]byte

// copyReply passes the reply on as it arrives, flushing each piece if its length is not known. If it
// breaks off, so does the answer (PRX-13). A client that has gone is not an error.
func (x *exchange) copyReply(res *http.Response) error {
	length := int(res.ContentLength)
	x.writeHeader(res.StatusCode, res.Header, length)
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	for {
		n, err := res.Body.Read(buf[:])
		if n > 0 {
			if gone := x.out.write(buf[:n], length < 0); gone != nil {
				return nil // there is nobody to tell
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
