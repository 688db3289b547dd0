package harness

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

// handlerClient makes the client for external handlers. Their addresses come from the
// configuration alone, so private networks are allowed; a redirect is not followed,
// because its target does not come from the configuration.
func handlerClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: 30 * time.Second,
			MaxIdleConnsPerHost: 32, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// askHandler asks the external handler of the event's type, which speaks AHP itself
// (AHP-52). Whatever is not a response to this very call, with a decision in a shape of
// the event's type, is an error, and the event is refused. ctx ends with the time that
// the agent's call has.
func (h *Harness) askHandler(ctx context.Context, e *Event) (wire.Raw, error) {
	name := wire.Raw(`"` + id.New("call") + `"`)
	body := wire.Splice([]byte(`{"jsonrpc":"2.0","method":"ahp/event"}`), wire.Member{Name: "id", Value: name},
		wire.Member{Name: "params", Value: e.Raw})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Config.Handlers[e.Type], bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := h.calls.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the handler of %s cannot be reached: %w", e.Type, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxPost+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer of the handler of %s broke off: %w", e.Type, err)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the handler of %s answered %d", e.Type, res.StatusCode)
	case len(text) > maxPost:
		return nil, fmt.Errorf("the handler of %s answered with more than %d bytes", e.Type, maxPost)
	case shape.NestedDeeper(text, maxNesting):
		return nil, fmt.Errorf("the handler of %s answered with more than %d levels", e.Type, maxNesting)
	}
	members, err := wire.Members(text)
	if err != nil {
		return nil, fmt.Errorf("the handler of %s did not answer with an object: %w", e.Type, err)
	}
	version, _ := wire.Text(members["jsonrpc"])
	switch {
	case version != "2.0" || !bytes.Equal(members["id"], name):
		return nil, fmt.Errorf("the handler of %s did not answer this call", e.Type)
	case members["result"] == nil:
		return nil, fmt.Errorf("the handler of %s failed: %s", e.Type, shape.Beginning(members["error"]))
	}
	if err := checkAnswer(e.kind, members["result"]); err != nil {
		return nil, fmt.Errorf("the handler of %s: %w", e.Type, err)
	}
	return members["result"], nil
}
