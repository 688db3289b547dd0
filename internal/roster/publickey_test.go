package roster_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"strings"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

// A key whose fingerprint others have worked out: that of the seed 00…1f.
const (
	knownHex = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
	knownPEM = "-----BEGIN PUBLIC KEY-----\n" +
		"MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n-----END PUBLIC KEY-----\n"
	knownFingerprint = "SHA256:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw="
)

// newKey makes a public key, in hex.
func newKey(t *testing.T) string {
	t.Helper()
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(key)
}

// asPEM encodes a key; public ones as PKIX, private ones as PKCS 8.
func asPEM(t *testing.T, key any, private bool) string {
	t.Helper()
	kind, encode := "PUBLIC KEY", x509.MarshalPKIXPublicKey
	if private {
		kind, encode = "PRIVATE KEY", x509.MarshalPKCS8PrivateKey
	}
	der, err := encode(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestAPublicKeyIsReadHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		knownPEM, strings.TrimSpace(knownPEM), "\n " + knownPEM + "\n", strings.ReplaceAll(knownPEM, "\n", "\r\n"),
		knownHex, strings.ToUpper(knownHex), knownHex + "\n",
	} {
		key, err := roster.ParsePublicKey(text)
		if err != nil || hex.EncodeToString(key) != knownHex || roster.Fingerprint(key) != knownFingerprint {
			t.Errorf("%q: %x %v", text, key, err)
		}
	}
}

func TestWhatIsNoPublicKeyIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	secret := asPEM(t, private, true)
	for name, c := range map[string]struct{ text, says string }{
		"an RSA key":                   {asPEM(t, &long.PublicKey, false), "another algorithm"},
		"an ECDSA key":                 {asPEM(t, &curve.PublicKey, false), "another algorithm"},
		"a private key":                {secret, "openssl pkey -in FILE -pubout"},
		"a private key after a public": {knownPEM + secret, "private key"},
		"two keys":                     {knownPEM + knownPEM, "one PUBLIC KEY"},
		"a certificate":                {strings.ReplaceAll(knownPEM, "PUBLIC KEY", "CERTIFICATE"), "one PUBLIC KEY"},
		"a damaged key":                {strings.Replace(knownPEM, "MCow", "MCoA", 1), "damaged"},
		"half of a PEM":                {knownPEM[:60], "neither PEM nor"},
		"too few digits":               {knownHex[2:], "neither PEM nor"},
		"a private key as hex":         {hex.EncodeToString(private), "neither PEM nor"},
		"base64":                       {base64.StdEncoding.EncodeToString(private), "neither PEM nor"},
		"nothing":                      {"", "neither PEM nor"},
	} {
		_, err := roster.ParsePublicKey(c.text)
		if !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		said := err.Error()
		if !strings.Contains(said, c.says) || !strings.Contains(said, "-----BEGIN PUBLIC KEY-----") ||
			!strings.Contains(said, "64 hex digits") {
			t.Errorf("%s: %s", name, said)
		}
		for line := range strings.Lines(c.text) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") && line != "" && strings.Contains(said, line) {
				t.Errorf("%s is repeated: %s", name, said)
			}
		}
	}
}

func TestANewPublicKeyRetiresTheOneBefore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		added, _ := add(t, r, admin, roster.NewAgent{Name: "signer", PublicKey: knownHex})
		if len(added.PublicKeys) != 1 || added.PublicKeys[0].PublicKey != knownPEM ||
			added.PublicKeys[0].Fingerprint != knownFingerprint || added.PublicKeys[0].Algorithm != "Ed25519" {
			t.Errorf("%+v", added.PublicKeys)
		}
		use := func(text string) []roster.PublicKey {
			t.Helper()
			a, err := r.ChangeAgent(t.Context(), admin, "default", "signer", roster.AgentChange{PublicKey: &text})
			if err != nil {
				t.Fatal(err)
			}
			return a.PublicKeys
		}
		if again := use(knownPEM); len(again) != 1 || again[0].RetiredAt != nil {
			t.Errorf("the same key again: %+v", again)
		}
		second := newKey(t)
		if two := use(second); len(two) != 2 || two[0].RetiredAt == nil || two[1].RetiredAt != nil {
			t.Errorf("after a second key: %+v", two)
		}
		if back := use(knownHex); len(back) != 2 || back[0].RetiredAt == nil || back[1].Fingerprint != knownFingerprint ||
			back[1].RetiredAt != nil {
			t.Errorf("after the first key again: %+v", back)
		}
		_, _ = add(t, r, admin, roster.NewAgent{Name: "without"})
		page, err := r.Agents(t.Context(), "", [2]string{}, 10)
		if err != nil || len(page) != 2 || len(page[0].PublicKeys) != 2 || len(page[1].PublicKeys) != 0 {
			t.Errorf("in a listing: %+v %v", page, err)
		}
	})
}

func TestAPublicKeyStandsForOneAgent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		text := newKey(t)
		_, _ = add(t, r, admin, roster.NewAgent{Name: "first", PublicKey: text})
		if _, _, err := r.AddAgent(t.Context(), admin, roster.NewAgent{Name: "second", PublicKey: text}); !fault.Is(err,
			fault.AlreadyExists) {
			t.Errorf("a new agent: %v", err)
		}
		_, _ = add(t, r, admin, roster.NewAgent{Name: "second"})
		if _, err := r.ChangeAgent(t.Context(), admin, "default", "second",
			roster.AgentChange{PublicKey: &text}); !fault.Is(err, fault.AlreadyExists) {
			t.Errorf("a change: %v", err)
		}
		another := newKey(t)
		if _, err := r.ChangeAgent(t.Context(), admin, "default", "first",
			roster.AgentChange{PublicKey: &another}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ChangeAgent(t.Context(), admin, "default", "second",
			roster.AgentChange{PublicKey: &text}); !fault.Is(err, fault.AlreadyExists) {
			t.Errorf("one that the first has retired, and signed with: %v", err)
		}
		if err := r.RemoveAgent(t.Context(), admin, "default", "first"); err != nil {
			t.Fatal(err)
		}
		if a, err := r.ChangeAgent(t.Context(), admin, "default", "second",
			roster.AgentChange{PublicKey: &text}); err != nil || len(a.PublicKeys) != 1 {
			t.Errorf("after the first has gone: %+v %v", a, err)
		}
	})
}
