// Package email tells people of gates by e-mail: one message to each address, in text
// and in HTML, with a link. Nothing is decided by e-mail, since programs open the links
// in it and anybody can write a sender's name.
//
// The connection is encrypted, by TLS from the start (smtps) or before anything is said
// (STARTTLS); only to this machine itself may it be plain. The messages about one gate
// refer to each other, so that a reader shows them together.
//
// It is the only package that imports the library for e-mail.
package email

import (
	"context"
	"crypto/x509"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

// Name is the kind of channel.
const Name = "email"

// Options are what the channels are made of.
type Options struct {
	SMTP wire.Secret // smtp://user:password@host:587 or smtps://…
	From string
	To   []string
	// Roots are the authorities that the server's certificate may be signed by, nil for
	// the machine's own.
	Roots *x509.CertPool
	// Dial connects to the server, nil for the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Mailbox is a channel that is one address. Each address is a channel of its own, so that one that
// is refused keeps nobody else from hearing.
type Mailbox struct {
	server
	// from is a header value with a name, to is a bare address.
	from, to string
	domain   string // of from, for the ids of messages
	options  Options
}

// server is how the mail server is reached.
type server struct {
	host               string
	port               int
	username, password wire.Secret
	implicit           bool // TLS from the start
	local              bool // this machine, to which the connection may be plain
}

// NewMailboxes makes a channel for each address.
func NewMailboxes(o Options) ([]*Mailbox, error) {
	at, err := parse(o.SMTP.Reveal())
	if err != nil {
		return nil, err
	}
	from, err := mail.ParseAddress(o.From)
	if err != nil {
		return nil, fault.New(fault.InvalidConfig,
			"notify.email.from should be an address, such as signalbox@example.com.").About("notify.email.from")
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	var all []*Mailbox
	for _, address := range o.To {
		to, err := mail.ParseAddress(address)
		if err != nil {
			return nil, fault.New(fault.InvalidConfig,
				"notify.email.to should be addresses, such as ann@example.com, and has %.80q.", address).About("notify.email.to")
		}
		all = append(all, &Mailbox{server: at, from: from.String(), to: to.Address, domain: domain, options: o})
	}
	return all, nil
}

// parse reads the address of the mail server. It is never repeated in an error.
func parse(address string) (server, error) {
	wrong := fault.New(fault.InvalidConfig,
		"notify.email.smtp should be the address of a mail server, such as smtp://user:password@mail.example.com:587, or "+
			"smtps:// for TLS from the start.").About("notify.email.smtp")
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" || strings.Trim(u.Path, "/") != "" {
		return server{}, wrong
	}
	s := server{host: u.Hostname(), port: 587, implicit: u.Scheme == "smtps", local: isLocal(u.Hostname())}
	if s.implicit {
		s.port = 465
	}
	if port := u.Port(); port != "" {
		if s.port, err = strconv.Atoi(port); err != nil || s.port < 1 || s.port > 65535 {
			return server{}, wrong
		}
	}
	// Name and password are kept as secrets from here on; the address is dropped.
	if u.User != nil {
		password, _ := u.User.Password()
		s.username, s.password = wire.NewSecret(u.User.Username()), wire.NewSecret(password)
	}
	return s, nil
}

// isLocal reports whether a host is this machine. Only then may a connection be plain.
func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Name is the kind of channel.
func (b *Mailbox) Name() string { return Name }

// Target names the address.
func (b *Mailbox) Target() string { return Name + ":" + b.to }

// Person is the mailbox of one person.
func (b *Mailbox) Person(address string) notify.Channel {
	own := *b
	own.to = address
	return &own
}

// Buttons in an e-mail would be pressed by programs.
func (b *Mailbox) Buttons(gate.Gate) bool { return false }
