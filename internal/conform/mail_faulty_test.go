package conform_test

import (
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"signalbox/internal/conform"
	"signalbox/internal/testbed"
)

// between is a proxy in front of a server, which may change what it answers. WebSockets are
// answered through it too.
type between struct {
	URL    string
	count  atomic.Int64                                 // requests so far
	change func(n int64, r *http.Response, body string) // may change r, and its body by set
}

// set gives a response another body.
func set(r *http.Response, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
}

func newBetween(t *testing.T, target string) *between {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	b := &between{}
	proxy := passOn(u)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(r *http.Response) error {
		n := b.count.Add(1)
		if b.change == nil {
			return nil
		}
		if r.StatusCode == http.StatusSwitchingProtocols {
			b.change(n, r, "")
			return nil
		}
		body, err := io.ReadAll(r.Body)
		set(r, string(body))
		b.change(n, r, string(body))
		return err
	}
	b.URL = testbed.ServeHTTP(t, proxy)
	return b
}

// only is the suite with one case.
func only(t *testing.T, suite *conform.MailSuite, name string) *conform.MailSuite {
	t.Helper()
	for _, c := range suite.Cases {
		if c.Name == name {
			return &conform.MailSuite{Cases: []conform.MailCase{c}}
		}
	}
	t.Fatalf("there is no case %q", name)
	return nil
}

// startMail is all cases of mail, and a kit that knows a server without mistakes.
func startMail(t *testing.T) (*conform.MailSuite, *conform.Kit) {
	t.Helper()
	suite, err := conform.MailCases()
	if err != nil {
		t.Fatal(err)
	}
	signals, _ := start(t, nil)
	return suite, signals
}

// TestEveryMailCaseCanFail: of each case the last answer is replaced by another, and the
// case has to see it.
func TestEveryMailCaseCanFail(t *testing.T) {
	t.Parallel()
	suite, signals := startMail(t)
	const workers = 4 // some cases wait
	var working sync.WaitGroup
	for w := range workers {
		proxy := newBetween(t, signals.URL)
		kit := &conform.MailKit{URL: proxy.URL, Token: signals.Token, Loopback: true}
		working.Go(func() {
			for i := w; i < len(suite.Cases); i += workers {
				proxy.spoil(t, kit, &conform.MailSuite{Cases: suite.Cases[i : i+1]})
			}
		})
	}
	working.Wait()
}

// spoil runs a case twice: as it is, and with another last answer.
func (b *between) spoil(t *testing.T, kit *conform.MailKit, one *conform.MailSuite) {
	b.change = nil
	b.count.Store(0)
	report, err := kit.Run(t.Context(), one)
	if err != nil || report.Passed != 1 {
		t.Errorf("%+v %v", report, err)
		return
	}
	last := b.count.Load()
	b.count.Store(0)
	b.change = func(n int64, r *http.Response, _ string) {
		if n == last {
			r.StatusCode = 299
			set(r, "nonsense")
		}
	}
	if report, err = kit.Run(t.Context(), one); err != nil || report.Failed != 1 {
		t.Errorf("%s: it is passed by a server whose last answer is nonsense: %+v %v", one.Cases[0].Name, report, err)
	}
}

// mailMistakes are small ones, each with a case that is about it.
var mailMistakes = []mistake{
	{"null for no reply", "a message without a signature is not trusted", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"thread_id":`, `"in_reply_to":null,"thread_id":`, 1)
	}},
	{
		"verified without a signature", "a message without a signature is not trusted",
		func(_ *http.Response, body string) string {
			return strings.Replace(body, `"trust":"untrusted"`, `"trust":"verified"`, 1)
		},
	},
	{"a payload that was written anew", "numbers as they are", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"payload":{"`, `"payload":{ "`, 1)
	}},
	{
		"a signature over another subject", "a signed message of the same tenant is verified",
		func(_ *http.Response, body string) string {
			return strings.Replace(body, `"subject":"Hello"`, `"subject":"Hullo"`, 1)
		},
	},
	{"a key that is not PEM", "priority high", func(_ *http.Response, body string) string {
		return strings.Replace(body, "BEGIN PUBLIC KEY", "BEGIN KEY", 1)
	}},
	{"403 by another name", "a signature with one bit flipped", func(_ *http.Response, body string) string {
		return strings.Replace(body, "signature_invalid", "forbidden", 1)
	}},
	{"a forged host is somebody", "forwarded by a host that nobody knows", func(r *http.Response, body string) string {
		if r.StatusCode == http.StatusUnauthorized {
			r.StatusCode = http.StatusOK
			return `{"id":"msg_1_abc","status":"queued","method":"relay"}`
		}
		return body
	}},
	{
		"the newest first", "the oldest comes first, and a limit leaves the rest",
		func(_ *http.Response, body string) string {
			return strings.Replace(body, `"remaining":1`, `"remaining":0`, 1)
		},
	},
	{"what was acknowledged is not known", "acknowledging by path, twice", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"already_acked":true`, `"already_acked":false`, 1)
	}},
	{
		"a scan that does not end", "an attachment is announced, uploaded, scanned, sent and fetched",
		func(_ *http.Response, body string) string {
			return strings.Replace(body, `"scan_status":"clean"`, `"scan_status":"pending"`, 1)
		},
	},
	{
		"another error for an attachment that was used", "an attachment is sent once",
		func(_ *http.Response, body string) string {
			return strings.Replace(body, "attachment_already_used", "conflict", 1)
		},
	},
	{"no Retry-After", "sixty messages a minute", func(r *http.Response, body string) string {
		r.Header.Del("Retry-After")
		return body
	}},
	{"the secret of a webhook", "the secret of a webhook is not shown", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"webhook_url":`, `"webhook_secret":"whsec_hush","webhook_url":`, 1)
	}},
	{
		"a quarantined message counts as delivered", "two marks wait for a person, who does not",
		func(r *http.Response, body string) string {
			if r.StatusCode == http.StatusAccepted {
				r.StatusCode = http.StatusOK
			}
			return body
		},
	},
}

// TestAProviderWithAMistakeFails: each is put between the kit and a server that makes none.
func TestAProviderWithAMistakeFails(t *testing.T) {
	t.Parallel()
	suite, signals := startMail(t)
	for _, m := range mailMistakes {
		proxy := newBetween(t, signals.URL)
		proxy.change = func(_ int64, r *http.Response, body string) { set(r, m.change(r, body)) }
		kit := &conform.MailKit{URL: proxy.URL, Token: signals.Token, Loopback: true}
		report, err := kit.Run(t.Context(), only(t, suite, m.found))
		if err != nil || report.Failed != 1 {
			t.Errorf("%s is not found by the case %q: %+v %v", m.name, m.found, report, err)
		}
	}
}
