package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/fault"
)

const (
	// maxReply is the largest reply that is read as a whole.
	maxReply = 64 << 20
	// maxKept is how much of a reply is kept for a decision.
	maxKept = 32 << 20
	// writeTime is how long a client may take to read what is written.
	writeTime = 2 * time.Minute
)

// callProvider sends the request to the provider. It ends when the client goes, unless it is
// detached, and when the provider is silent for too long. Call end when the reply is read.
func (x *exchange) callProvider(body io.Reader, length int64) (res *http.Response, end context.CancelFunc, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	client := x.r.Context()
	x.detach = context.AfterFunc(client, func() { cancel(client.Err()) })
	end = func() { x.detach(); cancel(nil) }
	base := x.p.upstreams[x.provider]
	plain, err := url.PathUnescape(x.path)
	if err != nil {
		return nil, end, fault.New(fault.InvalidRequest, "The path is not escaped as it should be.")
	}
	at := *base
	at.Path, at.RawPath, at.RawQuery = base.Path+plain, base.EscapedPath()+x.path, x.r.URL.RawQuery
	req := &http.Request{
		Method: x.r.Method, URL: &at, Host: base.Host, Header: x.header, ContentLength: length, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1,
	}
	if body != nil {
		req.Body = io.NopCloser(body)
		if text, ok := body.(*bytes.Reader); ok { // so that the transport can send it again on a new connection
			whole := *text
			req.GetBody = func() (io.ReadCloser, error) { again := whole; return io.NopCloser(&again), nil }
		}
	}
	if res, err = x.p.transport.RoundTrip(req.WithContext(ctx)); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, end, x.tooLarge()
		}
		if client.Err() != nil {
			return nil, end, fault.New(fault.Cancelled, "The client has ended the call.")
		}
		return nil, end, &gatewayError{"The provider cannot be reached: " + reason(err)}
	}
	res.Body = &patient{res.Body, time.AfterFunc(x.p.Idle, func() { cancel(errSilent) }), x.p.Idle}
	if res.Header.Get("Location") != "" && res.StatusCode/100 == 3 {
		_ = res.Body.Close()
		// A client that follows it sends its key there, and its calls pass the rules.
		return nil, end, &gatewayError{"The provider answers with a redirect, which is neither followed nor passed on. Set " +
			"the provider's address to where it is now."}
	}
	return res, end, nil
}

// patient is the body of a reply that ends when nothing comes for too long.
type patient struct {
	io.ReadCloser
	silence *time.Timer
	most    time.Duration
}

// errSilent says that the provider was silent for too long.
var errSilent = errors.New("it has said nothing for too long")

func (p *patient) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err == nil {
		p.silence.Reset(p.most)
	}
	return n, err
}

func (p *patient) Close() error {
	p.silence.Stop()
	return p.ReadCloser.Close()
}

// reason is the text of an error without the URL, which the caller knows.
func reason(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error() + "."
}

// gatewayError is a provider that does not answer as it should.
type gatewayError struct{ text string }

func (b *gatewayError) Error() string { return b.text }

// setAcceptEncoding asks for a reply that we can decode: plain, or gzip if the client takes it.
func (x *exchange) setAcceptEncoding() {
	coding := "identity"
	if strings.Contains(x.header.Get("Accept-Encoding"), "gzip") {
		coding = "gzip"
	}
	x.header.Set("Accept-Encoding", coding)
}

// readReply reads a whole reply. One that is shorter than it says is an error.
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
		return nil, &gatewayError{"The provider's reply broke off: " + reason(err)}
	}
	if len(body) > maxReply {
		return nil, &gatewayError{"The provider's reply is too large."}
	}
	return body, nil
}

// plain is the decoded body of a reply.
func plain(header http.Header, body []byte) ([]byte, error) {
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
