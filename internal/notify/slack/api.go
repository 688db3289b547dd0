package slack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/wire"
)

// slackAPI is the address of Slack's Web API.
const slackAPI = "https://slack.com/api"

// api calls the five methods of Slack that are used.
type api struct {
	base string
	http *http.Client
}

// refusal is Slack's word for why it did not do what was asked, such as channel_not_found.
type refusal string

func (r refusal) Error() string { return "slack: " + string(r) }

// statusError is an answer whose status is not 200; the API itself always answers 200.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("slack: status %d", int(s)) }

// limited says that Slack wants a pause of this length.
type limited time.Duration

func (l limited) Error() string { return "slack: rate limited" }

// answered is what is read of an answer.
type answered struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`
	URL     string `json:"url"` // of a socket
}

// form calls a method that takes a form.
func (c *api) form(ctx context.Context, token wire.Secret, method string, values url.Values) (answered, error) {
	return c.call(ctx, token, method, "application/x-www-form-urlencoded", []byte(values.Encode()))
}

// document calls a method that takes JSON.
func (c *api) document(ctx context.Context, token wire.Secret, method string, body any) (answered, error) {
	text, err := wire.Marshal(body)
	if err != nil {
		return answered{}, err
	}
	return c.call(ctx, token, method, "application/json; charset=utf-8", text)
}

// call calls a method. Only an answer with "ok":true is a success.
func (c *api) call(ctx context.Context, token wire.Secret, method, media string, body []byte) (out answered,
	err error,
) {
	res, err := post(ctx, c.http, strings.TrimSuffix(c.base, "/")+"/"+method, media, token, body)
	if err != nil {
		return out, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body) // the client cuts it off
	if err == nil {
		err = wire.UnmarshalForeign(text, &out)
	}
	if err != nil {
		return out, fmt.Errorf("slack: %s: %w", method, err)
	}
	if !out.OK {
		return out, refusal(out.Error)
	}
	return out, nil
}

// post sends a request and returns the answer if its status is 200. The caller closes the body.
func post(ctx context.Context, client *http.Client, address, media string, token wire.Secret,
	body []byte,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", media)
	if token.Reveal() != "" {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK:
		return res, nil
	case http.StatusTooManyRequests:
		err = limited(deliver.RetryAfter(res.Header.Get("Retry-After"), time.Now()))
	default:
		err = statusError(res.StatusCode)
	}
	_ = res.Body.Close()
	return nil, err
}
