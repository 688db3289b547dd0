package reload

import (
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"

	"signalbox/internal/fault"
)

// Certificate is a certificate that is loaded again when its file has changed, so that renewing it needs neither a
// restart nor a reload. A nil Certificate is that of a server without TLS. It is safe for concurrent use.
type Certificate struct {
	mu        sync.Mutex
	cert, key string
	loaded    *tls.Certificate
	as        time.Time
}

// NewCertificate loads a certificate once, so that a wrong file stops the start and not the first connection.
func NewCertificate(cert, key string) (*Certificate, error) {
	if cert == "" {
		return nil, nil //nolint:nilnil // no TLS
	}
	c := &Certificate{}
	use, err := c.Load(cert, key)
	if err != nil {
		return nil, err
	}
	use()
	return c, nil
}

// Listen makes a listener speak TLS, unless the certificate is nil.
func (c *Certificate) Listen(l net.Listener) net.Listener {
	if c == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: c.get,
	})
}

// Load loads a certificate and its key from files. Nothing changes before use is called.
func (c *Certificate) Load(cert, key string) (use func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	info, statErr := os.Stat(cert)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig,
			"Cannot load the certificate %s with the key %s. Both should be PEM files that "+
				"belong together, and readable by this user.", cert, key).About("tls.cert")
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cert, c.key, c.loaded = cert, key, &pair
		if statErr == nil {
			c.as = info.ModTime()
		}
	}, nil
}

// get returns the current certificate; it is called for every handshake. If certificate and key do not fit together,
// because a renewal is half done, it returns the old one and tries again at the next handshake.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	cert, key, loaded, as := c.cert, c.key, c.loaded, c.as
	c.mu.Unlock()
	if info, err := os.Stat(cert); err == nil && info.ModTime().Equal(as) {
		return loaded, nil
	}
	use, err := c.Load(cert, key)
	if err != nil {
		return loaded, nil //nolint:nilerr // half renewed; the old one still serves
	}
	use()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded, nil
}
