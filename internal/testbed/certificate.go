package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// SelfSigned writes a certificate for a name or an address, and its key, into a folder: cert.pem and key.pem. The
// certificate's file is as many seconds ahead as serial says, so that a newer one is seen.
func SelfSigned(t testing.TB, dir, name string, serial int64) *x509.CertPool {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(os.WriteFile(filepath.Join(dir, "key.pem"),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	must(os.WriteFile(filepath.Join(dir, "cert.pem"), cert, 0o600))
	stamp := time.Now().Add(time.Duration(serial) * time.Second)
	must(os.Chtimes(filepath.Join(dir, "cert.pem"), stamp, stamp))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}
