package notify_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/notify/email"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

const mailHost, mailPassword = "mail.example.com", "a-secret-password"

// mailServer speaks SMTP, as far as we use it.
type mailServer struct {
	calls
	address  string
	roots    *x509.CertPool
	config   *tls.Config
	implicit bool        // TLS from the start
	offer    atomic.Bool // STARTTLS
	refuse   atomic.Int64
	goodbye  atomic.Bool // QUIT is answered
}

func newMailServer(t *testing.T, implicit bool) *mailServer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: mailHost},
		DNSNames: []string{mailHost}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	f := &mailServer{calls: newCalls(t), roots: x509.NewCertPool(), implicit: implicit}
	f.roots.AddCert(cert)
	f.config = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}
	f.offer.Store(true)
	f.goodbye.Store(true)
	f.address = testbed.Serve(t, "tcp", "127.0.0.1:0", f.serve).Addr().String()
	return f
}

// serve has one conversation. Nothing but STARTTLS is taken over a plain connection.
func (f *mailServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	secure := f.implicit
	if secure {
		c = tls.Server(c, f.config)
	}
	text := textproto.NewConn(c)
	say := func(format string, args ...any) { _ = text.PrintfLine(format, args...) }
	say("220 %s ESMTP", mailHost)
	values := map[string]string{}
	for {
		line, err := text.ReadLine()
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			say("250-%s", mailHost)
			if !secure && f.offer.Load() {
				say("250-STARTTLS")
			}
			if secure {
				say("250-AUTH PLAIN")
			}
			say("250 8BITMIME")
		case "STARTTLS":
			say("220 go on")
			c = tls.Server(c, f.config)
			secure, text = true, textproto.NewConn(c)
		case "AUTH":
			_, credentials, _ := strings.Cut(rest, " ")
			raw, _ := base64.StdEncoding.DecodeString(credentials)
			if string(raw) != "\x00user\x00"+mailPassword {
				say("535 no, %s", raw) // some servers repeat what they were told
				continue
			}
			values["user"] = "user"
			say("235 welcome")
		case "MAIL", "RCPT":
			values[strings.ToUpper(verb)] = rest
			if code := f.refuse.Load(); code != 0 && strings.EqualFold(verb, "RCPT") {
				say("%d no", code)
				continue
			}
			say("250 ok")
		case "DATA":
			say("354 go on")
			data, err := io.ReadAll(text.DotReader())
			if err != nil {
				return
			}
			values["data"], values["secure"] = string(data), fmt.Sprint(secure)
			f.got <- call{"mail", values}
			say("250 ok")
		case "QUIT":
			if f.goodbye.Load() {
				say("221 bye")
			}
			return
		default: // NOOP, RSET
			say("250 ok")
		}
	}
}

// boxes are channels to the server, under its name.
func (f *mailServer) boxes(t *testing.T, to ...string) (all []notify.Channel) {
	t.Helper()
	scheme := "smtp"
	if f.implicit {
		scheme = "smtps"
	}
	boxes, err := email.NewMailboxes(email.Options{
		SMTP: wire.NewSecret(scheme + "://user:" + mailPassword + "@" + mailHost), From: "Signalbox <signalbox@example.com>",
		To: to, Roots: f.roots,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, f.address)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		all = append(all, b)
	}
	return all
}

// letter is a message as a reader sees it.
type letter struct {
	header      mail.Header
	subject     string
	plain, rich string
}

func parseLetter(t *testing.T, data string) letter {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	l := letter{header: m.Header}
	if l.subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for {
		part, err := parts.NextRawPart()
		if err != nil {
			return l
		}
		body, _ := io.ReadAll(quotedprintable.NewReader(bufio.NewReader(part)))
		body = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
		if strings.HasPrefix(part.Header.Get("Content-Type"), "text/html") {
			l.rich = string(body)
		} else {
			l.plain = string(body)
		}
	}
}

func TestAGateIsToldByEMail(t *testing.T) {
	for name, implicit := range map[string]bool{"STARTTLS": false, "TLS from the start": true} {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				f := newMailServer(t, implicit)
				f.goodbye.Store(false) // a server that hangs up has the message all the same
				n := start(t, address, func(*node) []notify.Channel { return f.boxes(t, "ann@example.com", "bob@example.com") })
				id := n.open(func(o *gate.Opening) {
					o.Shown.Title = "Ünïcode <script>alert(1)</script>\r\nBcc: evil@example.com"
					o.Shown.Summary = "</td><img src=x onerror=alert(1)> & \u202ereversed"
				})
				opened := map[string]string{} // the ids of the messages, by address
				for range 2 {
					got := f.next("mail")
					l := parseLetter(t, got.values["data"])
					opened[got.values["RCPT"]] = l.header.Get("Message-Id")
					if got.values["secure"] != "true" || got.values["user"] != "user" ||
						!strings.HasPrefix(got.values["MAIL"], "FROM:<signalbox@example.com>") {
						t.Errorf("%v", got.values)
					}
					if l.subject != "[Signalbox] Decision needed: Ünïcode <script>alert(1)</script>"+
						"⟨U+000D⟩⟨U+000A⟩Bcc: evil@example.com" || l.header.Get("Bcc") != "" {
						t.Errorf("the subject is %q", l.subject)
					}
					if !strings.Contains(l.plain, base+"/ui/inbox/"+id) || !strings.Contains(l.rich, `href="`+base+"/ui/inbox/"+id) ||
						strings.Contains(l.plain, "\u202e") {
						t.Errorf("%s\n%s", l.plain, l.rich)
					}
					if strings.Contains(l.rich, "<script") || strings.Contains(l.rich, "<img") {
						t.Errorf("not escaped: %s", l.rich)
					}
				}
				if len(opened) != 2 {
					t.Errorf("%v", opened)
				}
				n.decide(id, "ann", true, "go")
				for range 2 {
					got := f.next("mail")
					l := parseLetter(t, got.values["data"])
					if !strings.Contains(l.subject, "Approved by ann") || l.header.Get("In-Reply-To") != opened[got.values["RCPT"]] {
						t.Errorf("%q answers %q, not %q", l.subject, l.header.Get("In-Reply-To"), opened[got.values["RCPT"]])
					}
				}
				n.until("all is delivered", func() bool {
					return n.Count("SELECT count(*) FROM delivery WHERE status <> 'delivered'") == 0
				})
				f.none()
				n.WantClean()
				n.wantNoSecrets(mailPassword)
			})
		})
	}
}

func TestWhatGoesWrongWithAMailServerIsSaid(t *testing.T) {
	t.Parallel()
	f := newMailServer(t, false)
	box := f.boxes(t, "ann@example.com")[0]
	send := func(c notify.Channel) deliver.Result {
		return c.Send(testbed.Context(t),
			notify.Message{ID: "delivery_1", Number: 1, At: time.Now(), Event: notify.Tested, Link: base})
	}
	if r := send(box); r.Verdict != deliver.Succeeded || r.Reference != "delivery_1@example.com" {
		t.Errorf("%+v", r)
	}
	f.next("mail")
	f.offer.Store(false)
	if r := send(box); r.Verdict != deliver.Failed || r.Class != "tls" || !strings.Contains(r.Text, "STARTTLS") {
		t.Errorf("a server without STARTTLS: %+v", r)
	}
	f.offer.Store(true)
	f.refuse.Store(550)
	if r := send(box); r.Verdict != deliver.Hopeless || r.Status != 550 {
		t.Errorf("an address that there is not: %+v", r)
	}
	f.refuse.Store(450)
	if r := send(box); r.Verdict != deliver.Failed || r.Status != 450 {
		t.Errorf("come again: %+v", r)
	}
	f.refuse.Store(0)
	for name, change := range map[string]func(*email.Options){
		"another password":    func(o *email.Options) { o.SMTP = wire.NewSecret("smtp://user:wrong-password@" + mailHost) },
		"nobody vouches":      func(o *email.Options) { o.Roots = x509.NewCertPool() },
		"another server":      func(o *email.Options) { o.SMTP = wire.NewSecret("smtp://user:x@other.example.com") },
		"one that is silent":  func(o *email.Options) { o.Dial = silent(t) },
		"one that is not TLS": func(o *email.Options) { o.SMTP = wire.NewSecret("smtps://user:x@" + mailHost) },
	} {
		o := email.Options{
			SMTP: wire.NewSecret("smtp://user:" + mailPassword + "@" + mailHost),
			From: "signalbox@example.com", To: []string{"ann@example.com"}, Roots: f.roots,
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, f.address)
			},
		}
		change(&o)
		boxes, err := email.NewMailboxes(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		r := boxes[0].Send(ctx, notify.Message{ID: "delivery_1", At: time.Now(), Event: notify.Tested})
		cancel()
		if r.Verdict != deliver.Failed || r.Text == "" || strings.Contains(r.Text, "wrong-password") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	f.none()
}

// silent connects to somebody who says nothing.
func silent(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		return ours, nil
	}
}

func TestOnlyThisMachineMayBeCalledWithoutTLS(t *testing.T) {
	t.Parallel()
	f := newMailServer(t, false)
	f.offer.Store(false)
	boxes, err := email.NewMailboxes(email.Options{
		SMTP: wire.NewSecret("smtp://" + f.address),
		From: "signalbox@example.com", To: []string{"ann@example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := boxes[0].Send(t.Context(),
		notify.Message{ID: "delivery_1", At: time.Now(), Event: notify.Tested}); r.Verdict != deliver.Succeeded {
		t.Errorf("%+v", r)
	}
	if got := f.next("mail"); got.values["secure"] != "false" {
		t.Errorf("%v", got.values)
	}
	for _, bad := range []string{
		"mail.example.com:587", "http://mail.example.com", "smtp://", "smtp://user:hunter2@h:0",
		"smtp://user:hunter2@h/path",
	} {
		_, err := email.NewMailboxes(email.Options{SMTP: wire.NewSecret(bad), From: "a@b.c", To: []string{"a@b.c"}})
		if !fault.Is(err, fault.InvalidConfig) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
