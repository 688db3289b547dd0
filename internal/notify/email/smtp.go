package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"

	"signalbox/internal/deliver"
	"signalbox/internal/notify"
)

// smtpTime is how long one step of the conversation may take; all of it is bounded by ctx.
const smtpTime = 10 * time.Second

// Send sends a message. Its id is the same on every try, and is the reference of later ones.
func (b *Mailbox) Send(ctx context.Context, m notify.Message) deliver.Result {
	msg, messageID, err := b.compose(m)
	if err != nil {
		return deliver.Result{
			Verdict: deliver.Hopeless, Class: "invalid",
			Text: "The message cannot be written as an e-mail. Check notify.email.from and notify.email.to.",
		}
	}
	line := &connection{}
	defer line.close()
	// The library ignores ctx once connected. Closing the connection ends whatever it waits for.
	defer context.AfterFunc(ctx, line.close)()
	client, err := b.client(line)
	if err != nil {
		return deliver.Result{
			Class: "invalid",
			Text:  "The mail server cannot be called as it is configured. Check notify.email.smtp.",
		}
	}
	server, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return judgeStart(err, line.made())
	}
	if err := client.SendWithSMTPClient(server, msg); err != nil {
		return judge(err)
	}
	// The server has it. Whether it says goodbye makes no difference.
	_ = client.CloseWithSMTPClient(server)
	return deliver.Result{Verdict: deliver.Succeeded, Reference: messageID}
}

// connection is the TCP connection, ours to close: the library leaves it open when a conversation
// fails, and does not look at the context once there is one.
type connection struct {
	mu   sync.Mutex
	conn net.Conn
}

// set, made and close may be called from different goroutines: the library dials, and the end of
// ctx closes.
func (c *connection) set(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
}

func (c *connection) made() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn != nil
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close() // a second time does nothing
	}
}

// client configures the SMTP library. TLS is mandatory except to this machine.
func (b *Mailbox) client(line *connection) (*gomail.Client, error) {
	// To this machine a plain connection is allowed, so a certificate that nobody signed
	// is no worse.
	// Everywhere else the certificate must be valid for the host.
	config := &tls.Config{
		ServerName: b.host, RootCAs: b.options.Roots, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: b.local,
	}
	policy := gomail.TLSMandatory
	if b.local || b.implicit {
		policy = gomail.TLSOpportunistic
	}
	options := []gomail.Option{
		gomail.WithPort(b.port), gomail.WithTimeout(smtpTime), gomail.WithHELO(b.domain), gomail.WithTLSConfig(config),
		gomail.WithTLSPolicy(policy),
		gomail.WithDialContextFunc(func(dialling context.Context, network, address string) (net.Conn, error) {
			return b.dial(dialling, line, config, network, address)
		}),
	}
	if b.username.Reveal() != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(b.username.Reveal()),
			gomail.WithPassword(b.password.Reveal()))
	}
	return gomail.NewClient(b.host, options...)
}

// dial connects; with smtps it also does the TLS handshake.
func (b *Mailbox) dial(ctx context.Context, line *connection, config *tls.Config, network, address string) (net.Conn,
	error,
) {
	dial := b.options.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	line.set(conn)
	if !b.implicit {
		return conn, nil
	}
	secured := tls.Client(conn, config)
	return secured, secured.HandshakeContext(ctx)
}

// judgeStart classifies what went wrong before the message was sent. The server's text is not
// kept: some servers repeat what they were sent, password included.
func judgeStart(err error, connected bool) deliver.Result {
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		r := deliver.Result{
			Status: answer.Code, Class: "status",
			Text: fmt.Sprintf("The mail server answered %d.", answer.Code),
		}
		if answer.Code == 535 || answer.Code == 534 || answer.Code == 530 {
			r.Class, r.Text = "refused", fmt.Sprintf("The mail server answered %d: it does not accept the name and "+
				"password in notify.email.smtp.", answer.Code)
		}
		return r
	}
	r := deliver.ExplainDial(err)
	// The library reports a missing STARTTLS as an unspecific error after connecting.
	if r.Class == "broken" && connected && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		return deliver.Result{
			Class: "tls",
			Text: "The mail server offers no STARTTLS, or no safe way to log in, and nothing is " +
				"said over a connection that others can read.",
		}
	}
	return r
}

// judge classifies a message that the server did not accept. A permanent refusal (5xx) of this
// recipient or message is given up; everything else is tried again.
func judge(err error) deliver.Result {
	failed, ok := errors.AsType[*gomail.SendError](err)
	if !ok || failed.ErrorCode() < http.StatusBadRequest {
		return deliver.ExplainDial(err)
	}
	r := deliver.Result{
		Status: failed.ErrorCode(), Class: "status",
		Text: fmt.Sprintf("The mail server answered %d.", failed.ErrorCode()),
	}
	switch failed.Reason {
	// Only what concerns this message is final. A refused login or greeting is the server's state.
	case gomail.ErrSMTPRcptTo, gomail.ErrSMTPData, gomail.ErrSMTPDataClose:
		if failed.ErrorCode() >= 500 {
			r.Verdict, r.Text = deliver.Hopeless, fmt.Sprintf("The mail server answered %d: it does not take this "+
				"message for this address.", failed.ErrorCode())
		}
	default:
	}
	return r
}
