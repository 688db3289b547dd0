package notify

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"signalbox/internal/deliver"
)

const (
	// callTime bounds any call; a delivery has less, and asking Telegram for news takes
	// half a minute.
	callTime  = 45 * time.Second
	maxAnswer = 1 << 20
)

// NewClient makes the HTTP client for the services of channels. Their addresses come from the
// configuration and from nobody else, so private ones are allowed. A redirect is not followed,
// because it would take the token elsewhere, and answers are cut off.
func NewClient() *http.Client { return newClient(maxAnswer) }

// NewFileClient is NewClient for files of at most so many bytes.
func NewFileClient(most int64) *http.Client { return newClient(most) }

func newClient(most int64) *http.Client {
	return &http.Client{
		Timeout: callTime,
		Transport: bounded{most: most, Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSHandshakeTimeout:    10 * time.Second,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true, // a small answer must not become a large one
			ForceAttemptHTTP2:      true,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded cuts answers off after so many bytes.
type bounded struct {
	*http.Transport

	most int64
}

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.Transport.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, b.most), res.Body}
	}
	return res, err
}

// Judge classifies an answer by its status. What is wrong with the configuration (401, 403, a
// redirect) is tried again, since somebody may put it right. What is wrong with the message (400,
// 413, 422) is given up, since it would hold up every message behind it.
func Judge(status int, header http.Header) deliver.Result {
	r := deliver.Result{Status: status, Class: "status", Text: fmt.Sprintf("The service answered %d.", status)}
	switch {
	case status >= 200 && status < 300:
		return deliver.Result{Verdict: deliver.Succeeded, Status: status}
	case status >= 300 && status < 400:
		r.Class, r.Text = "redirect", fmt.Sprintf("The service answered %d and points to another address. Redirects are "+
			"not followed; configure the address it points to.", status)
	case status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge ||
		status == http.StatusUnprocessableEntity:
		r.Verdict, r.Text = deliver.Hopeless, fmt.Sprintf("The service answered %d: it does not take this message.", status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		r.Class, r.Text = "refused", fmt.Sprintf("The service answered %d: it does not accept the token, "+
			"or the token may not do this.", status)
	}
	r.RetryAfter = deliver.RetryAfter(header.Get("Retry-After"), time.Now())
	return r
}
