// Package api is the client with which commands call the server: requests and answers,
// errors, lists in pages, and streams of events. It uses addresses and tokens as given;
// package command finds them in flags, the environment and the data folder. It prints
// nothing and reads no flag.
//
// The client never retries: a command that failed is repeated by its user, who knows
// whether that is safe. Answers are decoded strictly, so a server of another version is
// noticed and not half understood.
package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Unreachable is the code of a server that does not answer. It is the command line's own: no
// server sends it.
const Unreachable fault.Code = "unreachable"

// Client calls one server with one token, of an operator or of an agent. The zero HTTP
// client has no timeout of its own: Call bounds the time, and streams and downloads must
// not be bounded.
type Client struct {
	Base, Token string
	// Within is the token of the handoff to the process that calls, as the environment of a run or of a task's worker
	// has it; "" for none.
	Within string
	HTTP   http.Client
}

// As is a client of the same server with another token.
func (c *Client) As(token string) *Client {
	return &Client{Base: c.Base, Token: token, Within: c.Within, HTTP: c.HTTP}
}

// Request is one call. Its body is sent as JSON, or as it is if it is [YAML].
type Request struct {
	Method, Path string
	Body         any
	header       http.Header
}

// Get reads what is at the path.
func Get(path string) Request { return Request{Method: http.MethodGet, Path: path} }

// Delete removes what is at the path.
func Delete(path string) Request { return Request{Method: http.MethodDelete, Path: path} }

// Post does what the path names, nil for a call without a body.
func Post(path string, body any) Request {
	return Request{Method: http.MethodPost, Path: path, Body: body}
}

// Put replaces what is at the path.
func Put(path string, body any) Request {
	return Request{Method: http.MethodPut, Path: path, Body: body}
}

// Patch changes some of what is at the path.
func Patch(path string, body any) Request {
	return Request{Method: http.MethodPatch, Path: path, Body: body}
}

// With returns the request with one more header. The original stays as it is.
func (r Request) With(name, value string) Request {
	r.header = r.header.Clone()
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set(name, value)
	return r
}

// YAML is a body that is sent as it is.
type YAML []byte

// encode is the body as it goes over the wire, and its media type.
func (r Request) encode() (io.Reader, string, error) {
	switch body := r.Body.(type) {
	case nil:
		return nil, "", nil
	case YAML:
		return bytes.NewReader(body), "application/yaml", nil
	}
	data, err := wire.Marshal(r.Body)
	return bytes.NewReader(data), "application/json", err
}

// Do sends a request. It returns an answer with a status below 400, whose body the
// caller closes; any other status becomes an error with the server's code and message.
// Without an answer the code is Unreachable.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	content, media, err := r.encode()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, c.Base+r.Path, content)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidRequest, "%q is not an address of a server.", c.Base)
	}
	if r.header != nil {
		req.Header = r.header.Clone()
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	if c.Within != "" {
		req.Header.Set(behalf.WithinHeader, c.Within)
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	if res.StatusCode >= 400 {
		defer func() { _ = res.Body.Close() }()
		return nil, readError(res)
	}
	return res, nil
}

// unanswered is the error for a request without an answer. A certificate that is not
// trusted gets a text of its own, because "cannot be reached" would send people to the
// firewall.
func (c *Client) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fault.Wrap(err, Unreachable,
			"The certificate of %s is not trusted here, or is for another name. "+
				"Give the name it is for with --server, and a file with its authority in SSL_CERT_FILE.", c.Base)
	}
	return fault.Wrap(err, Unreachable,
		"The server at %s cannot be reached. Start it with `signalbox up`, or give its address with --server.", c.Base)
}

// Call sends a request and decodes the answer, unless that is nil. It takes a minute at the
// most.
func (c *Client) Call(ctx context.Context, r Request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	res, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if answer == nil {
		return nil
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return fault.Wrap(err, Unreachable, "The server's answer broke off. Try again.")
	}
	return wire.Unmarshal(data, answer)
}

// BrokeOff is the error of a download that is not complete, nil for one that is.
func BrokeOff(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Internal,
		"The download broke off and is not complete. Run it again; the server's log says why.")
}
