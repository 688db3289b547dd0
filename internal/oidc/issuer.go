package oidc

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Issuer is a provider whose tokens prove who a user of one workspace is, and what we make of them.
type Issuer struct {
	URL       string // as it is in tokens, letter for letter
	Audience  string // what tokens for us have in aud
	Workspace string // whose users they are
	User      string // the claim that names a new user: email, preferred_username or sub
	Create    bool   // who is not known yet becomes a user
	Scopes    string // the claim with the scopes that a token is narrowed to; none when empty
}

// UserClaims are what Issuer.User may be.
var UserClaims = []string{"email", "preferred_username", "sub"}

// issuerForm is what an issuer in the configuration looks like, for its errors.
const issuerForm = "should be issuers such as \"issuer=https://accounts.example.com audience=signalbox workspace=default " +
	"user=email create=false scopes_claim=scope\", with commas between"

// ParseIssuers reads issuers. Each is a list of words name=value, in any order. Its errors continue a sentence that
// begins with the name of the setting.
func ParseIssuers(text string) (all []Issuer, err error) {
	for item := range strings.SplitSeq(text, ",") {
		words := strings.Fields(item)
		if len(words) == 0 {
			continue
		}
		i, err := readIssuer(words)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(o Issuer) bool { return o.URL == i.URL && o.Audience == i.Audience }) {
			return nil, fmt.Errorf("has the issuer %s with the audience %s twice, so that nobody knows which one is meant", i.URL,
				i.Audience)
		}
		all = append(all, i)
	}
	return all, nil
}

// readIssuer reads one item.
func readIssuer(words []string) (Issuer, error) {
	i := Issuer{Workspace: "default", User: UserClaims[0]}
	seen := map[string]bool{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if seen[name] {
			return i, fmt.Errorf("%s; %q is there twice", issuerForm, name)
		}
		seen[name] = true
		switch name {
		case "issuer":
			i.URL = value
		case "audience":
			i.Audience = value
		case "workspace":
			i.Workspace = value
		case "user":
			i.User = value
		case "create":
			i.Create = value == "true"
			if value != "true" && value != "false" {
				return i, fmt.Errorf("%s; create should be true or false", issuerForm)
			}
		case "scopes_claim":
			i.Scopes = value
		default:
			return i, fmt.Errorf("%s; %q is not known", issuerForm, name)
		}
	}
	u, err := url.Parse(i.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !onThisMachine(u.Hostname())):
		return i, fmt.Errorf("%s; issuer should be an https address, or http on this machine", issuerForm)
	case i.Audience == "" || i.Workspace == "":
		return i, fmt.Errorf("%s; an issuer needs an audience, and tokens for others prove nothing", issuerForm)
	case !slices.Contains(UserClaims, i.User):
		return i, fmt.Errorf("%s; user should be one of %s", issuerForm, strings.Join(UserClaims, ", "))
	}
	return i, nil
}

// FormatIssuers is the inverse of ParseIssuers.
func FormatIssuers(issuers []Issuer) string {
	var all []string
	for _, i := range issuers {
		text := fmt.Sprintf("issuer=%s audience=%s workspace=%s user=%s create=%t", i.URL, i.Audience, i.Workspace, i.User,
			i.Create)
		if i.Scopes != "" {
			text += " scopes_claim=" + i.Scopes
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}

// onThisMachine reports whether a host is this machine, to which no TLS is needed.
func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
