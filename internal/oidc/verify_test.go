package oidc_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/oidc"
	"signalbox/internal/oidc/oidctest"
)

type claims = oidctest.Claims

func verifier(issuers ...oidc.Issuer) *oidc.Verifier {
	return oidc.New(issuers, time.Now, slog.New(slog.DiscardHandler))
}

func TestATokenProvesAUser(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t)
	v := verifier(oidc.Issuer{URL: i.URL, Audience: "box", Workspace: "default", User: "email", Scopes: "scope"})
	for name, more := range map[string]claims{
		"one audience":         {},
		"a list of them":       {"aud": []string{"other", "box"}},
		"a clock that is fast": {"iat": time.Now().Add(30 * time.Second).Unix(), "nbf": time.Now().Add(30 * time.Second).Unix()},
		"numbers with a dot":   {"exp": float64(time.Now().Add(time.Hour).UnixMilli()) / 1000},
	} {
		if got, err := v.Verify(t.Context(), "default", i.Token("box", "u1", more)); err != nil || got.Subject != "u1" {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	got, err := v.Verify(t.Context(), "", i.Token("box", "u1", claims{
		"email": "a@example.com", "email_verified": "true", "name": "A B", "scope": "openid email.send", "azp": "cli",
		"act": claims{"sub": "agent", "act": claims{"sub": "before"}},
	}))
	if err != nil || got.Name != "a@example.com" || !got.EmailVerified || got.FullName != "A B" || got.Client != "agent" ||
		!got.Hops || !slices.Equal(got.Scopes, []string{"openid", "email.send"}) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = v.Verify(t.Context(), "", i.Token("box", "u1", claims{"scope": 7})); err != nil || got.Scopes == nil ||
		len(got.Scopes) != 0 {
		t.Errorf("without readable scopes it has none: %+v %v", got, err)
	}
	if i.Asked() != 2 {
		t.Errorf("the issuer was asked %d times", i.Asked())
	}
}

// What an attacker with any text, and with tokens of others, can send.
func TestNothingElseProvesAnything(t *testing.T) {
	t.Parallel()
	i, stranger := oidctest.Start(t), oidctest.Start(t)
	v := verifier(oidc.Issuer{URL: i.URL, Audience: "box", Workspace: "default", User: "sub"},
		oidc.Issuer{URL: i.URL, Audience: "lab-box", Workspace: "lab", User: "sub"})
	good := i.Token("box", "u1", nil)
	parts := strings.Split(good, ".")
	own := claims{"iss": i.URL, "aud": "box", "sub": "u1", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	bySecret := oidctest.Part(claims{"alg": "HS256", "kid": i.KeyID()}) + "." + parts[1]
	mac := hmac.New(sha256.New, i.PublicKey())
	mac.Write([]byte(bySecret))
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	for name, c := range map[string]struct{ token, says string }{
		"nothing":                          {"", "not a token"},
		"any text":                         {"let me in", "not a token"},
		"a very long text":                 {"eyJ" + strings.Repeat("a", 20_000) + ".eyJ9.x", "not a token"},
		"JSON instead of three parts":      {`{"payload":"x","signatures":[]}`, "not a token"},
		"alg none":                         {oidctest.Part(claims{"alg": "none"}) + "." + parts[1] + ".", `algorithm "none"`},
		"alg none in other letters":        {oidctest.Part(claims{"alg": "nOnE"}) + "." + parts[1] + ".", "algorithm"},
		"the public key as a secret":       {bySecret + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), "HS256"},
		"no signature":                     {parts[0] + "." + parts[1] + ".", "signature"},
		"a signature of another token":     {parts[0] + "." + oidctest.Part(own) + ".AAAA", "signature"},
		"claims of another under ours":     {parts[0] + "." + strings.Split(i.Token("box", "boss", nil), ".")[1] + "." + parts[2], "signature"},
		"signed by a stranger":             {stranger.Sign(claims{"alg": "RS256", "kid": i.KeyID()}, own), "signature"},
		"of another issuer":                {stranger.Token("box", "u1", nil), "not one of users.oidc"},
		"an issuer with one letter more":   {i.Token("box", "u1", claims{"iss": i.URL + "/"}), "not one of users.oidc"},
		"for another audience":             {i.Token("shop", "u1", nil), "another audience"},
		"for no audience":                  {i.Token("box", "u1", claims{"aud": nil}), "another audience"},
		"for the audience of another wall": {i.Token("lab-box", "u1", nil), "another workspace"},
		"expired":                          {i.Token("box", "u1", claims{"exp": ago(time.Second)}), "expired"},
		"without an end":                   {i.Token("box", "u1", claims{"exp": nil}), "no exp"},
		"without a beginning":              {i.Token("box", "u1", claims{"iat": nil}), "no exp or no iat"},
		"of tomorrow":                      {i.Token("box", "u1", claims{"iat": ago(-time.Hour)}), "iat is in the future"},
		"not valid yet":                    {i.Token("box", "u1", claims{"nbf": ago(-3 * time.Minute)}), "not valid yet"},
		"about nobody":                     {i.Token("box", "", nil), "no sub"},
		"about too much":                   {i.Token("box", strings.Repeat("u", 256), nil), "no sub"},
		"bound to a key":                   {i.Token("box", "u1", claims{"cnf": claims{"jkt": "x"}}), "bearer"},
		"an actor without a name":          {i.Token("box", "u1", claims{"act": claims{}}), "act has no sub"},
		"a logout token":                   {i.Sign(claims{"alg": "RS256", "typ": "logout+jwt", "kid": i.KeyID()}, own), "type"},
		"an extension nobody knows":        {i.Sign(claims{"alg": "RS256", "kid": i.KeyID(), "crit": []string{"b64"}, "b64": false}, own), "signature"},
	} {
		got, err := v.Verify(t.Context(), "default", c.token)
		if !fault.Is(err, fault.Unauthenticated) || !strings.Contains(err.Error(), c.says) || got.Subject != "" {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		if len(c.token) > 9 && err != nil && strings.Contains(err.Error(), c.token) {
			t.Errorf("%s: the error repeats the token", name)
		}
	}
	if _, err := verifier().Verify(t.Context(), "default", good); err == nil {
		t.Error("a server without issuers takes a token")
	}
	if _, err := v.Verify(t.Context(), "default", good); err != nil {
		t.Error("a good one after all that:", err)
	}
}

func TestAKeyThatIsReplacedIsFollowed(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t)
	v := verifier(oidc.Issuer{URL: i.URL, Audience: "box", Workspace: "default"})
	old := i.Token("box", "u1", nil)
	if _, err := v.Verify(t.Context(), "", old); err != nil {
		t.Fatal(err)
	}
	i.Rotate()
	if _, err := v.Verify(t.Context(), "", i.Token("box", "u1", nil)); err != nil {
		t.Error("the new key:", err)
	}
	if _, err := v.Verify(t.Context(), "", old); err == nil {
		t.Error("a token of the key before is still good")
	}
}

// Whoever sends tokens that nobody has signed does not have us call the issuer for each of them.
func TestAnIssuerIsAskedOnlySoOften(t *testing.T) {
	t.Parallel()
	i, stranger := oidctest.Start(t), oidctest.Start(t)
	v := verifier(oidc.Issuer{URL: i.URL, Audience: "box", Workspace: "default"})
	good := i.Token("box", "u1", nil)
	if _, err := v.Verify(t.Context(), "", good); err != nil {
		t.Fatal(err)
	}
	forged := stranger.Token("box", "u1", claims{"iss": i.URL})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 50 {
				if _, err := v.Verify(t.Context(), "", forged); err == nil {
					t.Error("a forged token proves something")
				}
			}
		})
	}
	all.Wait()
	if i.Asked() > 12 {
		t.Errorf("the issuer was asked %d times", i.Asked())
	}
	if _, err := v.Verify(t.Context(), "", good); err != nil {
		t.Error("who has a good one pays for it:", err)
	}
}

func TestAnIssuerThatIsDownProvesNothing(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t)
	i.Stop(true)
	v := verifier(oidc.Issuer{URL: i.URL, Audience: "box", Workspace: "default"})
	good := i.Token("box", "u1", nil)
	if _, err := v.Verify(t.Context(), "", good); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
	i.Stop(false)
	if _, err := v.Verify(t.Context(), "", good); err != nil {
		t.Error("back again:", err)
	}
	i.Stop(true)
	if _, err := v.Verify(t.Context(), "", good); err != nil {
		t.Error("with keys that are known:", err)
	}
}

func TestASubjectIsToldFromTokensAndTexts(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t)
	a, again, b := i.Token("box", "a", nil), i.Token("box", "a", claims{"jti": "2"}), i.Token("box", "b", nil)
	if oidc.Subject(a) != oidc.Subject(again) || oidc.Subject(a) == oidc.Subject(b) || oidc.Subject("") != "" ||
		oidc.Subject("x") == oidc.Subject("y") {
		t.Error(oidc.Subject(a), oidc.Subject(again), oidc.Subject(b))
	}
}
