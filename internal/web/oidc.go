package web

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// callback is where the provider sends people back to.
var callback = address.Login.Of("oidc/callback")

// OIDC is a provider of OpenID Connect that people sign in with. An operator is known by
// the e-mail contact that an admin gave them; the provider must have verified it.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret wire.Secret
}

// name is what the button says, "" without a provider.
func (o OIDC) name() string {
	if u, err := url.Parse(o.Issuer); err == nil {
		return u.Hostname()
	}
	return ""
}

// provider is what is known of the provider after it was first asked.
type provider struct {
	mu    sync.Mutex
	known *oidc.Provider
}

const oidcCookie = "signalbox_oidc"

const oidcTime = 10 * time.Second

// relying describes us to the provider, which is asked about itself the first time.
func (w *Web) relying(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	if w.OIDC.Issuer == "" {
		return nil, nil, fault.New(fault.NotFound,
			"No provider is set up here. An admin sets oidc.issuer, oidc.client_id and oidc.client_secret.")
	}
	w.provider.mu.Lock()
	defer w.provider.mu.Unlock()
	if w.provider.known == nil {
		// The provider keeps the context to fetch keys with, so it must outlive the call.
		asking, cancel := context.WithTimeout(ctx, oidcTime)
		defer cancel()
		known, err := oidc.NewProvider(asking, w.OIDC.Issuer)
		if err != nil {
			return nil, nil, fault.Wrap(err, fault.StoreUnavailable,
				"The provider %s does not answer, or is not set up as one of OpenID Connect. Sign in with a code from `signalbox "+
					"login`, and look at the setting oidc.issuer.", w.OIDC.name())
		}
		w.provider.known = known
	}
	return w.provider.known, &oauth2.Config{
		ClientID: w.OIDC.ClientID, ClientSecret: w.OIDC.ClientSecret.Reveal(), Endpoint: w.provider.known.Endpoint(),
		RedirectURL: w.BaseURL + callback, Scopes: []string{oidc.ScopeOpenID, "email"},
	}, nil
}

// loginByOIDC sends the browser to the provider. State, nonce and the PKCE verifier stay
// in a cookie of the browser that asked, and no other can finish.
func (w *Web) loginByOIDC(out http.ResponseWriter, r *http.Request) {
	_, config, err := w.relying(r.Context())
	if err != nil {
		w.loginFailed(out, r, loginForm{}, err)
		return
	}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	w.setCookie(out, oidcCookie, strings.Join([]string{state, nonce, verifier}, "."), 600)
	http.Redirect(out, r, config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)),
		http.StatusSeeOther)
}

func (w *Web) oidcCallback(out http.ResponseWriter, r *http.Request) {
	w.setCookie(out, oidcCookie, "", -1)
	token, err := w.finishOIDC(r)
	if err != nil {
		w.loginFailed(out, r, loginForm{}, err)
		return
	}
	w.signedIn(out, r, token, "")
}

// finishOIDC signs in whom the provider has sent back to the browser that asked.
func (w *Web) finishOIDC(r *http.Request) (token string, err error) {
	cookie, err := r.Cookie(oidcCookie)
	parts := []string{}
	if err == nil {
		parts = strings.Split(cookie.Value, ".")
	}
	if len(parts) != 3 || r.URL.Query().Get("state") != parts[0] {
		return "", fault.New(fault.Unauthenticated,
			"This login was not begun in this browser, or more than ten minutes ago. Begin again.")
	}
	who, err := w.operatorFromOIDC(r, parts[1], parts[2])
	if err != nil {
		return "", err
	}
	return w.signIn(r.Context(), who, "oidc")
}

// operatorFromOIDC exchanges the code for a token, verifies it, and finds the operator.
func (w *Web) operatorFromOIDC(r *http.Request, nonce, verifier string) (roster.Identity, error) {
	ctx, cancel := context.WithTimeout(r.Context(), oidcTime)
	defer cancel()
	provider, config, err := w.relying(ctx)
	if err != nil {
		return roster.Identity{}, err
	}
	refused := func(cause error) error {
		return fault.Wrap(cause, fault.Unauthenticated,
			"The provider %s did not confirm who you are. Begin again; if it stays so, the server's log has the cause.",
			w.OIDC.name())
	}
	tokens, err := config.Exchange(ctx, r.URL.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		w.Log.Warn("a login through OpenID Connect failed", "error", err.Error())
		return roster.Identity{}, refused(err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	proof, err := provider.VerifierContext(context.WithoutCancel(ctx), &oidc.Config{ClientID: w.OIDC.ClientID}).Verify(ctx,
		raw)
	if err != nil || proof.Nonce != nonce {
		w.Log.Warn("the token of a login through OpenID Connect is not good", "error", err)
		return roster.Identity{}, refused(err)
	}
	email, err := verifiedEmail(ctx, provider, proof, tokens)
	if err != nil {
		return roster.Identity{}, err
	}
	who, err := w.Roster.ByContact(ctx, "email", email)
	if fault.Is(err, fault.NotFound) {
		return who, fault.New(fault.Forbidden,
			"You are %s, and no operator here has that address. An admin sets it with "+
				"`signalbox operators set NAME --email %s`.", email, email)
	}
	return who, err
}

// verifiedEmail is the person's address: from the token, or from where the provider keeps
// what is not in it.
func verifiedEmail(ctx context.Context, provider *oidc.Provider, proof *oidc.IDToken, tokens *oauth2.Token) (string,
	error,
) {
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	if err := proof.Claims(&claims); err != nil {
		return "", fault.Wrap(err, fault.Unauthenticated, "What the provider says of you cannot be read.")
	}
	if claims.Email == "" {
		info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
		if err != nil || info.Subject != proof.Subject {
			return "", fault.Wrap(err, fault.Unauthenticated,
				"The provider does not say what your e-mail address is, by which operators are known here.")
		}
		claims.Email, claims.Verified = info.Email, info.EmailVerified
	}
	if claims.Email == "" || !claims.Verified {
		return "", fault.New(fault.Forbidden,
			"The provider has not verified your e-mail address, by which operators are known here.")
	}
	return strings.ToLower(claims.Email), nil
}
