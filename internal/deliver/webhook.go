package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"signalbox/internal/fault"
)

const (
	// maxAnswer is how many bytes of an answer are read; the rest is dropped.
	maxAnswer = 64 << 10
	// answerTime is how long the body of an answer may take. The status has decided by then; reading
	// the body only lets the connection be used again.
	answerTime = 2 * time.Second
	maxExcerpt = 200
	userAgent  = "Signalbox"
)

// webhook is the built-in sender: signed HTTP requests through the guard.
type webhook struct {
	client *http.Client
	key    []byte
	now    func() time.Time
}

// newWebhook makes the client. Redirects are not followed: where they lead was not registered.
func newWebhook(g *guard, key []byte, slots int, now func() time.Time) *webhook {
	return &webhook{key: key, now: now, client: &http.Client{
		Transport: &http.Transport{
			// No proxy: it would dial for us, and past the guard.
			DialContext:            g.dial,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxIdleConns:           slots,
			MaxIdleConnsPerHost:    slots, // one per lane that sends; many lanes may lead to one host
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: maxAnswer,
			DisableCompression:     true, // a small answer must not become a large one
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (w *webhook) close() { w.client.CloseIdleConnections() }

// Client is a client for other outgoing calls, guarded like deliveries: it reaches public addresses and those
// on the allow list, and follows no redirects. It has no timeout; the caller's context does.
func (o *Outbox) Client() *http.Client { return o.webhook.client }

// Post makes one signed request to the target of the attempt, for senders that resolve the address and the
// secret themselves, such as that of mail.
func (o *Outbox) Post(ctx context.Context, a Attempt) Result { return o.webhook.Send(ctx, a) }

// Send implements Sender.
func (w *webhook) Send(ctx context.Context, a Attempt) Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := parseTarget(a.Target); err != nil {
		return Result{Verdict: Hopeless, Class: "blocked", Text: fault.From(err).Message}
	}
	req, err := http.NewRequestWithContext(ctx, a.Method, a.Target, bytes.NewReader(a.Payload))
	if err != nil {
		return Result{Verdict: Hopeless, Class: "invalid", Text: "The method of the delivery is not one of HTTP."}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", userAgent)
	for name, value := range a.Header {
		req.Header.Set(name, value)
	}
	req.Header.Set("X-AMP-Delivery-Attempt", strconv.FormatInt(a.Number, 10))
	// Derived per receiver, so that one receiver cannot sign for another.
	if a.Secret.Reveal() == "" {
		a.Secret = secretFor(w.key, a.Workspace, a.Receiver, a.Generation)
	}
	sign(req.Header, a.Secret, a.ID, a.At, a.Payload)
	res, err := w.client.Do(req)
	if err != nil {
		return ExplainDial(err)
	}
	defer func() { _ = res.Body.Close() }()
	// Cut off an answer that trickles: its status is known.
	slow := time.AfterFunc(answerTime, cancel)
	defer slow.Stop()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return w.judge(res, answer)
}

// judge turns an answer into a result: 2xx succeeds, 410 is final, everything else is retried, 4xx too.
// Senders that know more about their receivers, such as that of mail, decide for themselves.
func (w *webhook) judge(res *http.Response, answer []byte) Result {
	r := Result{Status: res.StatusCode, Class: "status"}
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return Result{Verdict: Succeeded, Status: code}
	case code == http.StatusGone:
		r.Verdict, r.Class = Hopeless, "gone"
		r.Text = "The receiver answered 410: the address is gone for good."
	case code >= 300 && code < 400:
		r.Class = "redirect"
		r.Text = fmt.Sprintf("The receiver answered %d and points to another address. Redirects are not "+
			"followed; register the address it points to.", code)
	default:
		r.RetryAfter = RetryAfter(res.Header.Get("Retry-After"), w.now())
		r.Text = fmt.Sprintf("The receiver answered %d%s", code, excerpt(answer))
	}
	return r
}

// excerpt is the beginning of an answer, for operators.
func excerpt(answer []byte) string {
	text := tidy(string(answer[:min(len(answer), maxExcerpt)]))
	if text == "" {
		return "."
	}
	return ": " + text
}

// RetryAfter reads the header Retry-After, seconds or a date, as a pause from now; 0 for none.
func RetryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
		return time.Duration(min(max(seconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// ExplainDial is the result of a call that got no answer, in a sentence for operators. The text of the error is
// not used: it repeats the URL, which may contain a token.
func ExplainDial(err error) Result {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		class := "blocked"
		if e.Cause != nil {
			class = "dns"
		}
		return Result{Class: class, Text: e.Message}
	}
	timeout, isNet := errors.AsType[net.Error](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, unnamed := errors.AsType[x509.HostnameError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	switch {
	case untrusted || unnamed:
		return Result{
			Class: "tls",
			Text: "The receiver's certificate is not valid for its name, or not signed by an authority " +
				"that this server trusts.",
		}
	case record || alert || errors.Is(err, http.ErrSchemeMismatch):
		return Result{
			Class: "tls",
			Text:  "The receiver does not speak TLS as it should. Check whether the address is http or https.",
		}
	case errors.Is(err, syscall.ECONNREFUSED):
		return Result{Class: "refused", Text: "The receiver refuses the connection: nothing listens at that address."}
	case errors.Is(err, context.DeadlineExceeded) || isNet && timeout.Timeout():
		return Result{Class: "timeout", Text: "The receiver did not answer in time."}
	case errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		return Result{Class: "unreachable", Text: "There is no way to the receiver's network."}
	}
	return Result{Class: "broken", Text: "The connection broke off before the receiver had answered."}
}
