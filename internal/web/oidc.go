package web

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"

	lib "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// callback is where the provider sends people back to. It must be registered there.
var callback = address.Login.Of("oidc/callback")

// OIDC is a provider of OpenID Connect that people sign in with. An operator is identified by the
// e-mail contact that an admin gave them; the provider must have verified that address. Nobody
// becomes an operator by signing in.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret wire.Secret
}

// name is the label of the button, "" without a provider.
func (o OIDC) name() string {
	if u, err := url.Parse(o.Issuer); err == nil {
		return u.Hostname()
	}
	return ""
}

// oidcCookie holds what a login that is under way must bring back.
const oidcCookie = "signalbox_oidc"

// oidcTime is how long calls to the provider may take in all.
const oidcTime = 10 * time.Second

// oidcClient is the provider and our configuration for it. The provider is asked about itself the
// first time.
func (w *Web) oidcClient(ctx context.Context) (*lib.Provider, *oauth2.Config, error) {
	if w.OIDC.Issuer == "" {
		return nil, nil, fault.New(fault.NotFound,
			"No provider is set up here. An admin sets oidc.issuer, oidc.client_id and oidc.client_secret.")
	}
	known, err := w.provider.Discover(ctx)
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.StoreUnavailable,
			"The provider %s does not answer, or is not set up as one of OpenID Connect. Sign in with a code from `signalbox "+
				"login`, and look at the setting oidc.issuer.", w.OIDC.name())
	}
	return known, &oauth2.Config{
		ClientID: w.OIDC.ClientID, ClientSecret: w.OIDC.ClientSecret.Reveal(), Endpoint: known.Endpoint(),
		RedirectURL: w.BaseURL + callback, Scopes: []string{lib.ScopeOpenID, "email"},
	}, nil
}

// loginByOIDC sends the browser to the provider. State, nonce and the PKCE verifier stay in a
// cookie, so that only the browser that began a login can finish it.
func (w *Web) loginByOIDC(out http.ResponseWriter, r *http.Request) {
	_, config, err := w.oidcClient(r.Context())
	if err != nil {
		w.loginFailed(out, r, loginForm{}, err)
		return
	}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	// Ten minutes to sign in at the provider.
	w.setCookie(out, r, oidcCookie, strings.Join([]string{state, nonce, verifier}, "."), 600)
	http.Redirect(out, r, config.AuthCodeURL(state, lib.Nonce(nonce), oauth2.S256ChallengeOption(verifier)),
		http.StatusSeeOther)
}

// oidcCallback is where the provider sends the browser back. The cookie is removed first: a login
// can be finished once.
func (w *Web) oidcCallback(out http.ResponseWriter, r *http.Request) {
	w.setCookie(out, r, oidcCookie, "", -1)
	token, err := w.finishOIDC(r)
	if err != nil {
		w.loginFailed(out, r, loginForm{}, err)
		return
	}
	w.signedIn(out, r, token, "")
}

// finishOIDC signs in whoever the provider has sent back to the browser that began.
func (w *Web) finishOIDC(r *http.Request) (token string, err error) {
	cookie, err := r.Cookie(oidcCookie)
	parts := []string{}
	if err == nil {
		parts = strings.Split(cookie.Value, ".")
	}
	// Without the state anybody could have a browser finish a login that they began.
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

// operatorFromOIDC exchanges the code for tokens, verifies the ID token, and finds the operator by
// the verified e-mail address.
func (w *Web) operatorFromOIDC(r *http.Request, nonce, verifier string) (roster.Identity, error) {
	ctx, cancel := context.WithTimeout(r.Context(), oidcTime)
	defer cancel()
	provider, config, err := w.oidcClient(ctx)
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
	proof, err := provider.Verifier(&lib.Config{ClientID: w.OIDC.ClientID}).Verify(ctx, raw)
	// The nonce binds the token to this login, so that a stolen one cannot be replayed.
	if err != nil || proof.Nonce != nonce {
		w.Log.Warn("invalid ID token from the OpenID Connect provider", "error", err)
		return roster.Identity{}, refused(err)
	}
	email, err := verifiedEmail(ctx, provider, proof, tokens)
	if err != nil {
		return roster.Identity{}, err
	}
	// An address belongs to at most one operator.
	who, err := w.Roster.ByContact(ctx, "email", email)
	if fault.Is(err, fault.NotFound) {
		return who, fault.New(fault.Forbidden,
			"You are %s, and no operator here has that address. An admin sets it with "+
				"`signalbox operators set NAME --email %s`.", email, email)
	}
	return who, err
}

// verifiedEmail is the person's address, from the token or from the provider's userinfo endpoint.
// An address that the provider has not verified is refused: anybody could have typed it in.
func verifiedEmail(ctx context.Context, provider *lib.Provider, proof *lib.IDToken, tokens *oauth2.Token) (string,
	error,
) {
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	if err := proof.Claims(&claims); err != nil {
		return "", fault.Wrap(err, fault.Unauthenticated, "The provider's ID token cannot be read.")
	}
	// Some providers keep the address out of the token.
	if claims.Email == "" {
		info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
		if err != nil || info.Subject != proof.Subject {
			return "", fault.Wrap(err, fault.Unauthenticated,
				"The provider did not send your e-mail address, which identifies operators here.")
		}
		claims.Email, claims.Verified = info.Email, info.EmailVerified
	}
	if claims.Email == "" || !claims.Verified {
		return "", fault.New(fault.Forbidden,
			"The provider has not verified your e-mail address, which identifies operators here.")
	}
	return strings.ToLower(claims.Email), nil
}
