// Package external asks the programs that answer events in the harness's place: handlers, which speak AHP themselves
// (AHP-52). Whatever is not a response to the very call that was made is an error.
//
// It knows how a handler is called, and neither policies nor which decisions an event may have: its caller checks the
// result.
package external

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"signalbox/internal/harness/shape"
	"signalbox/internal/id"
	"signalbox/internal/wire"
)

const (
	// maxAnswer is the longest answer of a handler, in bytes.
	maxAnswer = 2 << 20
	// MaxNesting is how deep lists and objects may be nested (AHP-6). It is one less than
	// the limit of the reference client's decoder, so that we accept nothing that it
	// refuses.
	MaxNesting = 127
)

// Client makes the client for external handlers. Their addresses come from the
// configuration alone, so private networks are allowed; a redirect is not followed,
// because its target does not come from the configuration.
func Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: 30 * time.Second,
			MaxIdleConnsPerHost: 32, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Ask asks the handler at an address about an event of a type, and returns the result. ctx ends with the time that the
// agent's call has.
func Ask(ctx context.Context, calls *http.Client, address, typ string, event wire.Raw) (wire.Raw, error) {
	name := wire.Raw(`"` + id.New("call") + `"`)
	body := wire.Splice([]byte(`{"jsonrpc":"2.0","method":"ahp/event"}`), wire.Member{Name: "id", Value: name},
		wire.Member{Name: "params", Value: event})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := calls.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the handler of %s cannot be reached: %w", typ, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer of the handler of %s broke off: %w", typ, err)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the handler of %s answered %d", typ, res.StatusCode)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("the handler of %s answered with more than %d bytes", typ, maxAnswer)
	case wire.Depth(text) > MaxNesting:
		return nil, fmt.Errorf("the handler of %s answered with more than %d levels", typ, MaxNesting)
	}
	members, err := wire.Members(text)
	if err != nil {
		return nil, fmt.Errorf("the handler of %s did not answer with an object: %w", typ, err)
	}
	version, _ := wire.Text(members["jsonrpc"])
	switch {
	case version != "2.0" || !bytes.Equal(members["id"], name):
		return nil, fmt.Errorf("the handler of %s did not answer this call", typ)
	case members["result"] == nil:
		return nil, fmt.Errorf("the handler of %s failed: %s", typ, shape.Beginning(members["error"]))
	}
	return members["result"], nil
}
