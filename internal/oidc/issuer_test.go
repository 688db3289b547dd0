package oidc_test

import (
	"strings"
	"testing"

	"signalbox/internal/oidc"
)

func TestIssuersAreReadAndWritten(t *testing.T) {
	t.Parallel()
	const whole = "issuer=https://a.example audience=box workspace=lab user=sub create=true scopes_claim=scope"
	for text, want := range map[string]string{
		"":                                      "",
		whole:                                   whole,
		"audience=box issuer=https://a.example": "issuer=https://a.example audience=box workspace=default user=email create=false",
		"issuer=http://127.0.0.1:9 audience=a, issuer=http://localhost:9 audience=a": "issuer=http://127.0.0.1:9 audience=a " +
			"workspace=default user=email create=false,issuer=http://localhost:9 audience=a workspace=default user=email create=false",
	} {
		all, err := oidc.ParseIssuers(text)
		if got := oidc.FormatIssuers(all); err != nil || got != want {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"https://a.example":                                   "not known",
		"issuer=https://a.example":                            "needs an audience",
		"audience=box":                                        "https address",
		"issuer=http://a.example audience=box":                "https address",
		"issuer=https://a.example audience=box create=yes":    "true or false",
		"issuer=https://a.example audience=box user=nickname": "one of email",
		"issuer=https://a.example audience=box audience=x":    "twice",
		"issuer=https://a.example audience=box workspace=":    "needs an audience",
		"issuer=https://a.example audience=b,issuer=https://a.example audience=b workspace=lab": "twice",
	} {
		if _, err := oidc.ParseIssuers(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
