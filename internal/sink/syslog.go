package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"signalbox/internal/ledger"
)

// Ports of syslog, where an address has none.
var syslogPorts = map[string]string{"tcp": "601", "tls": "6514", "udp": "514"}

// ParseSyslog reads the address of a receiver: tcp://host:601, tls://host:6514, unix:///run/log.sock or udp://host:514.
// Its error continues a sentence that begins with the name of the setting.
func ParseSyslog(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/") {
		return u, nil
	}
	if err != nil || syslogPorts[u.Scheme] == "" || u.Hostname() == "" || u.Path != "" || u.User != nil ||
		u.RawQuery != "" {
		return nil, errors.New("should be such as tcp://logs.example.com:601, tls://logs.example.com:6514, " +
			"unix:///run/log.sock, or udp://logs.example.com:514, which loses entries")
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), syslogPorts[u.Scheme])
	}
	return u, nil
}

// syslog sends entries as messages of RFC 5424, with octet counting (RFC 6587). The protocol acknowledges nothing, so
// each batch has a connection of its own: we close our side, and the batch has arrived when the receiver, having read to the
// end, closes its own.
type syslog struct {
	to   *url.URL
	host string
	tls  *tls.Config
}

func newSyslog(to *url.URL, roots *x509.CertPool) *syslog {
	host, err := os.Hostname()
	if host = printable(host, 255); err != nil || host == "" {
		host = "-"
	}
	return &syslog{to, host, &tls.Config{RootCAs: roots, ServerName: to.Hostname(), MinVersion: tls.VersionTLS12}}
}

func (s *syslog) send(ctx context.Context, b batch) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if at, bounded := ctx.Deadline(); bounded {
		_ = conn.SetDeadline(at)
	}
	if s.to.Scheme == "udp" {
		for i := range b.lines {
			if _, err := conn.Write(s.message(&b.entries[i], b.lines[i])); err != nil {
				return err
			}
		}
		return nil
	}
	var text bytes.Buffer
	for i := range b.lines {
		message := s.message(&b.entries[i], b.lines[i])
		fmt.Fprintf(&text, "%d ", len(message))
		text.Write(message)
	}
	if _, err := conn.Write(text.Bytes()); err != nil {
		return err
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	// What it answers is not read as anything.
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return fmt.Errorf("the receiver did not read to the end and close the connection: %w", err)
	}
	return nil
}

// dial connects to the receiver.
func (s *syslog) dial(ctx context.Context) (net.Conn, error) {
	switch s.to.Scheme {
	case "unix":
		return new(net.Dialer).DialContext(ctx, "unix", s.to.Path)
	case "tls":
		return (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.to.Host)
	}
	return new(net.Dialer).DialContext(ctx, s.to.Scheme, s.to.Host)
}

// priority is facility 13, log audit, and severity 6, informational.
const priority = 13<<3 | 6

// message is an entry as a message. The kind is its MSGID.
func (s *syslog) message(e *ledger.Entry, line []byte) []byte {
	return fmt.Appendf(nil, "<%d>1 %s %s signalbox - %s - %s", priority, e.At.UTC().Format("2006-01-02T15:04:05.000000Z"),
		s.host, printable(e.Kind, 32), line)
}

// printable is what RFC 5424 allows in the fields of a header, cut at most characters.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	return text[:min(len(text), most)]
}
