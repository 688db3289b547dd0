package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

const (
	// maxReply is the largest reply that is read as a whole, in bytes; plain or decompressed.
	maxReply = 64 << 20
	// maxKept is how many bytes of a stream are buffered to be judged, and of a reply that needs a
	// person: that has to fit into an entry of the ledger, in base64 and with its headers.
	maxKept = ledger.MaxBody/4*3 - 64<<10
	// writeTime is how long a client may take to read one write. It is renewed with each.
	writeTime = 2 * time.Minute
)

// callProvider sends the request to the provider and returns when the headers of the reply are
// there. The call ends when the client goes, unless it is detached (PRX-28), and when the
// provider is silent for too long (PRX-14). The caller closes the body and calls end when the
// reply is read; end may be called even if err is set.
func (x *exchange) callProvider(body io.Reader, length int64) (res *http.Response, end context.CancelFunc, err error) {
	// Not derived from the client's context, which AfterFunc ends it with: detach cuts that tie.
	ctx, cancel := context.WithCancelCause(context.Background())
	client := x.r.Context()
	x.detach = context.AfterFunc(client, func() { cancel(client.Err()) })
	end = func() { x.detach(); cancel(nil) }
	base := x.p.upstreams[x.provider]
	plain, err := url.PathUnescape(x.path)
	if err != nil {
		return nil, end, fault.New(fault.InvalidRequest, "The path is not escaped as it should be.")
	}
	// The escaped path is sent as the client wrote it; Path has to be its decoded form.
	at := *base
	at.Path, at.RawPath, at.RawQuery = base.Path+plain, base.EscapedPath()+x.path, x.r.URL.RawQuery
	// A body in memory can be read again, which lets the transport retry on a new connection.
	req, err := http.NewRequestWithContext(ctx, x.r.Method, "", body)
	if err != nil {
		return nil, end, err
	}
	req.URL, req.Host, req.Header, req.ContentLength = &at, base.Host, x.header, length
	if res, err = x.p.transport.RoundTrip(req); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, end, x.tooLarge()
		}
		if client.Err() != nil {
			return nil, end, fault.New(fault.Cancelled, "The client has ended the call.")
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			x.free = true // nothing was sent
		}
		return nil, end, &gatewayError{"The provider cannot be reached: " + errorText(err)}
	}
	res.Body = &idleReader{res.Body, time.AfterFunc(x.p.Idle, func() { cancel(errSilent) }), x.p.Idle}
	if res.Header.Get("Location") != "" && res.StatusCode/100 == 3 {
		_ = res.Body.Close()
		x.free = true
		// PRX-12: a client that follows it sends its key there, and its calls evade the rules.
		return nil, end, &gatewayError{"The provider answers with a redirect, which is neither followed nor passed on. Set " +
			"the provider's address to where it is now."}
	}
	return res, end, nil
}

// idleReader is the body of a reply whose call is cancelled when nothing arrives for most. The timer
// runs from the headers on, and each read that brings bytes starts it anew.
type idleReader struct {
	io.ReadCloser
	silence *time.Timer
	most    time.Duration
}

// errSilent is the cause of a call that was cancelled because the provider was silent for too long.
var errSilent = errors.New("the provider was silent for too long")

// Read reads, and starts the timer of silence anew.
func (p *idleReader) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err == nil {
		p.silence.Reset(p.most)
	}
	return n, err
}

// Close closes the body and stops the timer.
func (p *idleReader) Close() error {
	p.silence.Stop()
	return p.ReadCloser.Close()
}

// errorText is the text of an error without the URL of the provider.
func errorText(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error() + "."
}

// gatewayError says that the provider did not answer as it should. The client gets it as 502.
type gatewayError struct{ text string }

func (b *gatewayError) Error() string { return b.text }

// setAcceptEncoding asks for a reply that we can decode: plain, or gzip if the client accepts it.
// Clients also offer br and zstd, which we do not read.
func (x *exchange) setAcceptEncoding() {
	coding := "identity"
	if strings.Contains(x.header.Get("Accept-Encoding"), "gzip") {
		coding = "gzip"
	}
	x.header.Set("Accept-Encoding", coding)
}

// readReply reads a whole reply. A reply that is shorter than its Content-Length is an error
// (PRX-13).
func readReply(res *http.Response) ([]byte, error) {
	var body []byte
	var err error
	if n := res.ContentLength; n >= 0 && n <= largeBody {
		body = make([]byte, n)
		_, err = io.ReadFull(res.Body, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	}
	if err != nil {
		return nil, &gatewayError{"The provider's reply broke off: " + errorText(err)}
	}
	if len(body) > maxReply {
		return nil, &gatewayError{"The provider's reply is too large."}
	}
	return body, nil
}

// decompress is the body of a reply, decompressed. The result is limited too: a small reply must not
// become a huge one.
func decompress(header http.Header, body []byte) ([]byte, error) {
	switch strings.ToLower(header.Get("Content-Encoding")) {
	case "", "identity":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(z, maxReply+1))
		if err == nil && len(text) > maxReply {
			err = &gatewayError{"The provider's reply is too large."}
		}
		return text, err
	}
	return nil, &gatewayError{"The provider's reply has a coding that was not asked for."}
}
