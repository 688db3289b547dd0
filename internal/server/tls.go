package server

import (
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"

	"signalbox/internal/fault"
)

// wrapTLS makes the listener speak TLS if a certificate is configured. The certificate is loaded once here, so that a
// wrong file stops the start and not the first connection.
func wrapTLS(l net.Listener, c *Config) (net.Listener, error) {
	if c.TLSCert == "" {
		return l, nil
	}
	f := &certificateFile{cert: c.TLSCert, key: c.TLSKey}
	if _, err := f.get(nil); err != nil {
		_ = l.Close()
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: f.get,
	}), nil
}

// certificateFile is a certificate that is loaded again when its file has changed, so
// that renewing it needs no restart. It is safe for concurrent use.
type certificateFile struct {
	cert, key string

	mu     sync.Mutex
	loaded *tls.Certificate
	as     time.Time
}

// get returns the current certificate; it is called for every handshake. If certificate and key do not fit together,
// because a renewal is half done, it returns the old one and tries again at the next handshake.
func (f *certificateFile) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.cert)
	if err == nil && f.loaded != nil && info.ModTime().Equal(f.as) {
		return f.loaded, nil
	}
	pair, loadErr := tls.LoadX509KeyPair(f.cert, f.key)
	if loadErr != nil {
		if f.loaded != nil {
			return f.loaded, nil // half renewed; the old one still serves
		}
		return nil, fault.Wrap(loadErr, fault.InvalidConfig,
			"Cannot load the certificate %s with the key %s. Both should be PEM files that "+
				"belong together, and readable by this user.", f.cert, f.key).About("tls.cert")
	}
	f.loaded = &pair
	if err == nil {
		f.as = info.ModTime()
	}
	return f.loaded, nil
}
