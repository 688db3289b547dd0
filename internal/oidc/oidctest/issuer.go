// Package oidctest is an issuer of tokens for tests: a small server with discovery, keys, and whatever tokens a test
// wants signed. It is no provider that people could sign in with, and knows nothing of ours.
package oidctest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"signalbox/internal/testbed"
)

// Claims are what a token says.
type Claims = map[string]any

// Issuer is a server that signs tokens. Its time is that of the machine.
type Issuer struct {
	URL string
	// Down makes it answer nothing but errors.
	Down bool

	t    testing.TB
	mu   sync.Mutex
	key  *rsa.PrivateKey
	kid  string
	asks int
}

// Start starts an issuer that ends with the test.
func Start(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t}
	i.Rotate()
	i.URL = testbed.ServeHTTP(t, http.HandlerFunc(i.serve))
	return i
}

// Rotate replaces the key. Tokens of the one before are no longer good.
func (i *Issuer) Rotate() {
	i.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.kid = key, rand.Text()
}

// Asked is how often somebody has asked for anything.
func (i *Issuer) Asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asks
}

// Stop makes it answer nothing but errors, and with false as before.
func (i *Issuer) Stop(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.Down = down
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asks++
	if i.Down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encode := base64.RawURLEncoding.EncodeToString
	var answer any = Claims{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/auth",
		"token_endpoint": i.URL + "/token", "id_token_signing_alg_values_supported": []string{"RS256"},
	}
	if r.URL.Path == "/keys" {
		answer = Claims{"keys": []Claims{{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": i.kid, "n": encode(i.key.N.Bytes()),
			"e": encode(big.NewInt(int64(i.key.E)).Bytes()),
		}}}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// Token is a token that is good for an audience for an hour, with more claims or others. A claim that is nil is left
// out.
func (i *Issuer) Token(audience, subject string, more Claims) string {
	now := time.Now()
	claims := Claims{
		"iss": i.URL, "aud": audience, "sub": subject, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return i.Sign(Claims{"alg": "RS256", "typ": "JWT", "kid": i.kid}, claims)
}

// Sign signs anything, under any header, with RS256.
func (i *Issuer) Sign(header, claims Claims) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	text := Part(header) + "." + Part(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		i.t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// Part is a part of a token.
func Part(v Claims) string {
	text, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(text)
}

// PublicKey is what everybody can have: the bytes that a forger signs with as if they were a shared secret.
func (i *Issuer) PublicKey() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key.N.Bytes()
}

// KeyID names the key.
func (i *Issuer) KeyID() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.kid
}
