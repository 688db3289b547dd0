package server

import (
	"context"
	"fmt"
	"net/url"

	"signalbox/internal/protocol"
	"signalbox/internal/web"
	"signalbox/internal/wire"
)

// webSettings are the keys of the dashboard.
func webSettings() []Setting {
	return []Setting{
		{
			Key: "oidc.issuer", Default: "",
			Meaning: "the address of a provider of OpenID Connect, with which operators sign in " +
				"by their e-mail contact; none when empty", set: setIssuer, get: func(c *Config) string {
				return c.OIDC.Issuer
			},
		},
		text("oidc.client_id", "", "by what the provider knows this server", func(c *Config) *string {
			return &c.OIDC.ClientID
		}),
		{
			Key: "oidc.client_secret", Default: "", Meaning: "the secret that the provider gave to this server", Secret: true,
			set: func(c *Config, v string) error { c.OIDC.ClientSecret = wire.NewSecret(v); return nil },
			get: func(c *Config) string { return c.OIDC.ClientSecret.String() },
		},
	}
}

func setIssuer(c *Config, v string) error {
	if u, err := url.Parse(v); v != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("should be an address such as https://accounts.example.com")
	}
	c.OIDC.Issuer = v
	return nil
}

// LoginURL is an address that signs the first admin in, once, within five minutes.
func (s *Server) LoginURL(ctx context.Context) (string, error) {
	made, err := s.core.web.OfferLocal(ctx)
	return made.URL, err
}

// openWeb makes the dashboard over everything else.
func (c *core) openWeb(config *Config, list protocol.List) (err error) {
	c.web, err = web.New(c.DB, c.Ledger, web.Options{
		Roster: c.Roster, Book: c.Book, Gates: c.Gates, Counters: c.counters, Outbox: c.Outbox, Notifier: c.notifier,
		Protocols: list, Signals: c.signals, Harness: c.harness, Mail: c.mail, Tasks: c.tasks, Runs: c.runs,
		Now: c.Now, Log: c.Log, Key: c.Key, BaseURL: c.BaseURL, OIDC: config.OIDC, Settings: config.shown,
	})
	return err
}

// shown is what is in force, without secrets.
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
