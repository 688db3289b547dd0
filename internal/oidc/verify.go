package oidc

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	lib "github.com/coreos/go-oidc/v3/oidc"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Token is what an issuer has signed about a user. Verify makes it.
type Token struct {
	Issuer        Issuer
	Subject       string // the user, for ever: an e-mail address may be given to another person
	Name          string // the user's name as the configured claim has it, "" if the token has none
	FullName      string // as people write it
	Email         string
	EmailVerified bool
	Scopes        []string // what the token is narrowed to, nil if the issuer says nothing of it
	Client        string   // who acts: act.sub, else azp, else client_id; "" if the token does not say
	Hops          bool     // the token lists others who acted before
}

const (
	maxToken   = 16 << 10 // bytes
	maxSubject = 255      // OpenID Connect, section 2
	// skew is how far the clock of an issuer may be ahead of ours.
	skew = time.Minute
	// verifyTime is how long a call waits for a provider.
	verifyTime = answerTime
)

// algorithms are those that sign with a key that only the issuer has: neither none, nor a secret that is shared.
var algorithms = []string{
	lib.RS256, lib.RS384, lib.RS512, lib.PS256, lib.PS384, lib.PS512, lib.ES256, lib.ES384, lib.ES512, lib.EdDSA,
}

// kinds are the types of tokens that say who somebody is. A logout token, say, is signed by the same key.
var kinds = []string{"", "jwt", "at+jwt", "application/at+jwt", "application/jwt"}

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$`)

// LooksLikeToken reports whether a text has the form of a token: three parts, of which the first is an object.
func LooksLikeToken(text string) bool {
	return strings.HasPrefix(text, "eyJ") && tokenForm.MatchString(text)
}

// Verifier verifies tokens of the configured issuers. It is safe for concurrent use.
type Verifier struct {
	issuers   []Issuer
	providers map[string]*Provider // by issuer
	now       func() time.Time
}

// New makes a verifier. Without issuers it refuses every token.
func New(issuers []Issuer, now func() time.Time, log *slog.Logger) *Verifier {
	v := &Verifier{issuers: issuers, providers: map[string]*Provider{}, now: now}
	for _, i := range issuers {
		if v.providers[i.URL] == nil {
			v.providers[i.URL] = NewProvider(i.URL, now, log)
		}
	}
	return v
}

// Verify checks a token for users of a workspace, or of any for "". Its errors say what is wrong with the token and
// repeat nothing of it but the issuer.
func (v *Verifier) Verify(ctx context.Context, workspace, token string) (Token, error) {
	if v == nil || len(v.issuers) == 0 {
		return Token{}, refused("No issuer of users' tokens is set up here. An admin sets users.oidc.")
	}
	c, err := read(token)
	if err != nil {
		return Token{}, err
	}
	issuer, err := v.issuerOf(workspace, c)
	if err != nil {
		return Token{}, err
	}
	if err := c.check(v.now()); err != nil {
		return Token{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	known, err := v.providers[issuer.URL].Discover(ctx)
	if err != nil {
		return Token{}, refused("The issuer %s does not answer, so its tokens prove nothing now. Try again in a moment.",
			issuer.URL)
	}
	// It checks issuer, audience and end once more, of what was signed.
	_, err = known.Verifier(&lib.Config{ClientID: issuer.Audience, SupportedSigningAlgs: algorithms, Now: v.now}).
		Verify(ctx, token)
	if err != nil {
		return Token{}, refused("The token's signature is not one of %s, or its keys cannot be had now. Get a new token.",
			issuer.URL)
	}
	return c.token(issuer)
}

// issuerOf finds the configured issuer of a token by issuer, audience and workspace.
func (v *Verifier) issuerOf(workspace string, c *claims) (Issuer, error) {
	var found []Issuer
	for _, i := range v.issuers {
		if i.URL == c.Issuer {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return Issuer{}, refused("The token is of the issuer %.200q, which is not one of users.oidc.", c.Issuer)
	}
	audience := c.audience()
	found = slices.DeleteFunc(found, func(i Issuer) bool { return !slices.Contains(audience, i.Audience) })
	if len(found) == 0 {
		return Issuer{}, refused("The token is for another audience than this server. Ask %s for one whose aud is the "+
			"audience in users.oidc.", c.Issuer)
	}
	if workspace != "" {
		found = slices.DeleteFunc(found, func(i Issuer) bool { return i.Workspace != workspace })
	}
	if len(found) == 0 {
		return Issuer{}, refused("The token is for users of another workspace than %q.", workspace)
	}
	return found[0], nil
}

// refused is the error for a token that proves nothing.
func refused(format string, args ...any) error {
	return fault.New(fault.Unauthenticated, format, args...)
}

// claims are what a token says, before anybody has verified it.
type claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Audience  wire.Raw `json:"aud"` // a text, or a list of them
	Expires   float64  `json:"exp"`
	NotBefore float64  `json:"nbf"`
	IssuedAt  float64  `json:"iat"`
	Email     string   `json:"email"`
	Verified  any      `json:"email_verified"` // some issuers write it as text
	Name      string   `json:"name"`
	Preferred string   `json:"preferred_username"`
	Party     string   `json:"azp"`
	Client    string   `json:"client_id"`
	Actor     *actor   `json:"act"`
	Holder    wire.Raw `json:"cnf"`

	whole []byte
}

// actor is who acts for the subject, and for whom that one did (RFC 8693).
type actor struct {
	Subject string   `json:"sub"`
	Actor   wire.Raw `json:"act"`
}

// read decodes a token without believing it.
func read(token string) (*claims, error) {
	malformed := refused("This is not a token as OpenID Connect has them: a JWT of three parts, such as eyJ….eyJ….…, " +
		"of at most 16 KiB.")
	if len(token) > maxToken || !tokenForm.MatchString(token) {
		return nil, malformed
	}
	parts := strings.Split(token, ".")
	header, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil {
		return nil, malformed
	}
	var head struct {
		Algorithm string `json:"alg"`
		Type      string `json:"typ"`
	}
	if wire.UnmarshalPart(header, &head) != nil {
		return nil, malformed
	}
	if !slices.Contains(algorithms, head.Algorithm) {
		return nil, refused("The token is signed with the algorithm %.20q. It should be one of %s.", head.Algorithm,
			strings.Join(algorithms, ", "))
	}
	if !slices.Contains(kinds, strings.ToLower(head.Type)) {
		return nil, refused("The token is of the type %.40q. It should be an ID token, or an access token in JWT form.",
			head.Type)
	}
	c := &claims{}
	if c.whole, err = base64.RawURLEncoding.DecodeString(parts[1]); err != nil || wire.UnmarshalPart(c.whole, c) != nil {
		return nil, malformed
	}
	return c, nil
}

// audience is for whom the token is.
func (c *claims) audience() []string {
	if one, ok := wire.Text(c.Audience); ok {
		return []string{one}
	}
	var all []string
	if wire.UnmarshalPart(c.Audience, &all) != nil {
		return nil
	}
	return all
}

// check checks what a token says of itself but for issuer, audience and signature.
func (c *claims) check(now time.Time) error {
	at := float64(now.UnixMicro()) / 1e6
	switch ahead := at + skew.Seconds(); {
	case c.Expires == 0 || c.IssuedAt == 0:
		return refused("The token has no exp or no iat, so that nobody knows until when it is good.")
	case math.IsNaN(c.Expires) || at >= c.Expires:
		return refused("The token has expired. Get a new one from %.200s.", c.Issuer)
	case c.NotBefore > ahead:
		return refused("The token is not valid yet: its nbf is in the future.")
	case c.IssuedAt > ahead:
		return refused("The token's iat is in the future. Compare the clocks of this server and of %.200s.", c.Issuer)
	case c.Subject == "" || len(c.Subject) > maxSubject || strings.ContainsRune(c.Subject, 0):
		return refused("The token has no sub that names a user, in at most %d bytes.", maxSubject)
	case len(c.Holder) > 0 && string(c.Holder) != "null":
		return refused("The token is bound to a key of its holder (cnf), which cannot be checked here. Send a bearer token.")
	case c.Actor != nil && c.Actor.Subject == "":
		return refused("The token's act has no sub, so that nobody knows who acts.")
	}
	return nil
}

// token is what the claims say to us.
func (c *claims) token(issuer Issuer) (Token, error) {
	t := Token{
		Issuer: issuer, Subject: c.Subject, FullName: c.Name, Email: c.Email, Client: c.Party,
		EmailVerified: c.Verified == true || c.Verified == "true",
	}
	switch issuer.User {
	case "email":
		t.Name = c.Email
	case "preferred_username":
		t.Name = c.Preferred
	default:
		t.Name = c.Subject
	}
	if t.Client == "" {
		t.Client = c.Client
	}
	if c.Actor != nil {
		t.Client = c.Actor.Subject
		t.Hops = len(c.Actor.Actor) > 0 && string(c.Actor.Actor) != "null"
	}
	if issuer.Scopes == "" {
		return t, nil
	}
	members, err := wire.Members(c.whole)
	if err != nil {
		return t, refused("The token cannot be read.")
	}
	t.Scopes = scopesIn(members[issuer.Scopes])
	return t, nil
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// ShortName is the user's name as one word: alice-b for Alice.B@example.com. It is "" if there is no letter or digit.
func (t Token) ShortName() string {
	name := t.Name
	if name == "" {
		name = t.Subject
	}
	name, _, _ = strings.Cut(strings.ToLower(name), "@")
	name = strings.Trim(notInName.ReplaceAllString(name, "-"), "-")
	return strings.Trim(name[:min(len(name), 40)], "-")
}

// scopesIn are scopes in a text with spaces, as OAuth has them, or in a list. What is neither is none at all.
func scopesIn(raw wire.Raw) []string {
	all := []string{}
	if text, ok := wire.Text(raw); ok {
		return append(all, strings.Fields(text)...)
	}
	if len(raw) > 0 && wire.UnmarshalPart(raw, &all) != nil {
		return []string{}
	}
	return all
}

// Subject names whom a token is about, as it says itself. It proves nothing: it is for telling the calls of two users
// apart. It is the text itself for what is no token.
func Subject(token string) string {
	if token == "" {
		return ""
	}
	c, err := read(token)
	if err != nil {
		return token
	}
	return fmt.Sprintf("%s %s", c.Issuer, c.Subject)
}
