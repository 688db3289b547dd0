package server

import (
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"

	"signalbox/internal/fault"
)

// wrapTLS makes the listener speak TLS if there is a certificate.
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

// certificateFile loads a certificate again when its file has changed, so that a
// renewed one needs no restart.
type certificateFile struct {
	cert, key string

	mu     sync.Mutex
	loaded *tls.Certificate
	as     time.Time
}

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
