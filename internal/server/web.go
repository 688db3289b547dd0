package server

import (
	"context"
	"fmt"
	"net/url"

	"signalbox/internal/protocol"
	"signalbox/internal/web"
	"signalbox/internal/wire"
)

// webSettings are the keys of the dashboard: signing in through OpenID Connect.
func webSettings() []Setting {
	return []Setting{
		{
			Key: "oidc.issuer", Default: "",
			Meaning: "the address of a provider of OpenID Connect, with which operators sign in " +
				"by their e-mail contact; none when empty", set: setIssuer, get: func(c *Config) string {
				return c.OIDC.Issuer
			},
		},
		text("oidc.client_id", "", "the client id of this server at the provider", func(c *Config) *string {
			return &c.OIDC.ClientID
		}),
		{
			Key: "oidc.client_secret", Default: "", Meaning: "the client secret of this server at the provider", Secret: true,
			set: func(c *Config, v string) error { c.OIDC.ClientSecret = wire.NewSecret(v); return nil },
			get: func(c *Config) string { return c.OIDC.ClientSecret.String() },
		},
	}
}

// setIssuer reads the address of the provider. http is allowed for providers on the same machine.
func setIssuer(c *Config, v string) error {
	if u, err := url.Parse(v); v != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("should be an address such as https://accounts.example.com")
	}
	c.OIDC.Issuer = v
	return nil
}

// LoginURL is an address that signs the first admin in, once and within five minutes. It
// writes nothing to the ledger before it is used.
func (s *Server) LoginURL(ctx context.Context) (string, error) {
	made, err := s.core.web.OfferLocal(ctx)
	return made.URL, err
}

// openWeb opens the dashboard. It is the last, because it shows everything else.
func (c *core) openWeb(config *Config, list protocol.List) (err error) {
	c.web, err = web.New(c.DB, c.Ledger, web.Options{
		Roster: c.Roster, Book: c.Book, Behalf: c.Behalf, Handoffs: c.Handoffs, Gates: c.Gates, Passkeys: c.passkeys,
		Alarms: c.Alarms, Counters: c.counters, Outbox: c.Outbox,
		Notifier: c.notifier, Protocols: list, Prices: c.Prices, Harness: c.harness, Mail: c.mail, Tasks: c.tasks, Runs: c.runs,
		Now: c.Now, Log: c.Log, Key: c.Key, BaseURL: c.BaseURL, OIDC: config.OIDC, Settings: config.shown,
		Check: c.edge.checkHost,
	})
	return err
}

// shown are the settings for the page of the dashboard. Secrets are "(set)" or empty;
// their text does not reach the page at all.
func (c *Config) shown() (all []web.Setting) {
	for _, s := range Settings {
		value := s.get(c)
		if s.Secret && value != "" {
			value = "(set)"
		}
		all = append(all, web.Setting{Key: s.Key, Value: value, Source: c.Sources[s.Key], Meaning: s.Meaning})
	}
	return all
}
