// Package delivertest is the other end of a delivery, for tests: a service that takes calls, and the check of their
// signatures as the documents describe it. It shares no code with deliver, and only tests import it.
package delivertest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// Call is one call that a service took.
type Call struct {
	Path, Body string
	Header     http.Header
}

// Listen runs a service that answers every call with the text, and hands the calls on. It ends with the test.
func Listen(t testing.TB, answer string) (url string, took <-chan Call) {
	t.Helper()
	calls := make(chan Call, 1000)
	s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- Call{r.URL.Path, string(body), r.Header.Clone()}
		_, _ = io.WriteString(w, answer)
	}))
	return s, calls
}

// Verify checks both signatures of a body. Whether they are of now is left to tests that do not move the clock.
func Verify(t testing.TB, secret, body string, header func(name string) string) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) != 32 || !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("the secret is %q: %v", secret, err)
	}
	signed := header("Webhook-Id") + "." + header("Webhook-Timestamp") + "." + body
	for name, want := range map[string]string{
		"Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(sum(key, signed)),
		"X-Amp-Signature":   "sha256=" + hex.EncodeToString(sum([]byte(secret), header("X-Amp-Timestamp")+"."+body)),
	} {
		if got := header(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
