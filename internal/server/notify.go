package server

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/notify"
	"signalbox/internal/notify/email"
	"signalbox/internal/notify/ntfy"
	"signalbox/internal/notify/slack"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/wire"
)

// Notify is the configuration of the channels that notify people of gates. A channel exists if its address or token
// is set. Whatever lets somebody post to a channel, or read it, is a Secret.
type Notify struct {
	SlackWebhook, SlackToken, SlackAppToken, SlackSigningSecret wire.Secret
	SlackChannel, SlackAPI                                      string
	SlackButtonsOnHigh                                          bool

	TelegramToken             wire.Secret
	TelegramChat, TelegramAPI string
	TelegramButtonsOnHigh     bool

	SMTP    wire.Secret
	From    string
	To      []string
	NtfyURL wire.Secret // the topic is as good as a password
	// NtfyToken is for topics that are not open to all.
	NtfyToken wire.Secret
	Webhook   wire.Secret
}

// notifySettings are the keys of channels.
func notifySettings() []Setting {
	return []Setting{
		secretSetting(
			"notify.slack.webhook",
			"an incoming webhook of Slack, which receives a link",
			func(c *Config) *wire.Secret {
				return &c.Notify.SlackWebhook
			},
		),
		secretSetting("notify.slack.token", "the bot token of a Slack app, xoxb-…", func(c *Config) *wire.Secret {
			return &c.Notify.SlackToken
		}),
		secretSetting("notify.slack.app_token", "the app-level token, xapp-…; with it buttons work over Socket Mode",
			func(c *Config) *wire.Secret {
				return &c.Notify.SlackAppToken
			}),
		secretSetting("notify.slack.signing_secret",
			"the app's signing secret; with it Slack may call /notify/slack when a button is pressed",
			func(c *Config) *wire.Secret {
				return &c.Notify.SlackSigningSecret
			}),
		text("notify.slack.channel", "", "the id of the channel that the app posts to, such as C024BE91L",
			func(c *Config) *string {
				return &c.Notify.SlackChannel
			}),
		flag("notify.slack.buttons_on_high", "true lets gates of high risk be decided in Slack too", func(c *Config) *bool {
			return &c.Notify.SlackButtonsOnHigh
		}),
		webAddress("notify.slack.api", "the address of Slack's API, behind a gateway", func(c *Config) *string {
			return &c.Notify.SlackAPI
		}),
		secretSetting("notify.telegram.token", "the token of a Telegram bot", func(c *Config) *wire.Secret {
			return &c.Notify.TelegramToken
		}),
		text("notify.telegram.chat", "", "the number of the chat that the bot posts to, or the @name of a public channel",
			func(c *Config) *string {
				return &c.Notify.TelegramChat
			}),
		flag("notify.telegram.buttons_on_high", "true lets gates of high risk be decided in Telegram too",
			func(c *Config) *bool {
				return &c.Notify.TelegramButtonsOnHigh
			}),
		webAddress("notify.telegram.api", "the address of Telegram's API, behind a gateway", func(c *Config) *string {
			return &c.Notify.TelegramAPI
		}),
		secretSetting(
			"notify.email.smtp",
			"a mail server, as smtp://user:password@host:587, or smtps:// for TLS from the start",
			func(c *Config) *wire.Secret {
				return &c.Notify.SMTP
			},
		),
		text("notify.email.from", "", "the sender's address", func(c *Config) *string { return &c.Notify.From }),
		{
			Key: "notify.email.to", Meaning: "the addresses that receive e-mail, with commas between", List: true,
			set: func(c *Config, v string) error { c.Notify.To = splitList(v); return nil },
			get: func(c *Config) string { return strings.Join(c.Notify.To, ",") },
		},
		secretSetting("notify.ntfy.url", "the address of an ntfy topic, such as https://ntfy.sh/topic",
			func(c *Config) *wire.Secret {
				return &c.Notify.NtfyURL
			}),
		secretSetting("notify.ntfy.token", "the access token for the topic", func(c *Config) *wire.Secret {
			return &c.Notify.NtfyToken
		}),
		secretSetting("notify.webhook",
			"an address that receives gates as signed JSON; `signalbox notify secret` prints the secret",
			func(c *Config) *wire.Secret {
				return &c.Notify.Webhook
			}),
	}
}

// secretSetting is a setting whose value is never printed: not by `config show`, not in errors, not in logs.
func secretSetting(key, meaning string, field func(*Config) *wire.Secret) Setting {
	return Setting{
		Key: key, Meaning: meaning, Secret: true,
		set: func(c *Config, v string) error { *field(c) = wire.NewSecret(v); return nil },
		get: func(c *Config) string { return field(c).String() },
	}
}

// webAddress is a setting that is an http or https address, or empty.
func webAddress(key, meaning string, field func(*Config) *string) Setting {
	s := text(key, "", meaning, field)
	s.set = func(c *Config, v string) error {
		if u, err := url.Parse(v); v != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("should be an address such as https://gateway.example.com")
		}
		*field(c) = v
		return nil
	}
	return s
}

// check finds channels that are configured by half. Such a channel would silently notify
// nobody, which is noticed only when a gate has expired.
func (n *Notify) check() error {
	for _, c := range []struct {
		given      bool
		missing    string
		key, needs string
	}{
		{n.SlackToken.Reveal() != "", n.SlackChannel, "notify.slack.token", "notify.slack.channel"},
		{n.SlackChannel != "", n.SlackToken.Reveal(), "notify.slack.channel", "notify.slack.token"},
		{n.SlackAppToken.Reveal() != "", n.SlackToken.Reveal(), "notify.slack.app_token", "notify.slack.token"},
		{n.SlackSigningSecret.Reveal() != "", n.SlackToken.Reveal(), "notify.slack.signing_secret", "notify.slack.token"},
		{n.TelegramToken.Reveal() != "", n.TelegramChat, "notify.telegram.token", "notify.telegram.chat"},
		{n.TelegramChat != "", n.TelegramToken.Reveal(), "notify.telegram.chat", "notify.telegram.token"},
		{n.SMTP.Reveal() != "", n.From, "notify.email.smtp", "notify.email.from"},
		{n.SMTP.Reveal() != "", strings.Join(n.To, ","), "notify.email.smtp", "notify.email.to"},
		{len(n.To) > 0, n.SMTP.Reveal(), "notify.email.to", "notify.email.smtp"},
		{n.NtfyToken.Reveal() != "", n.NtfyURL.Reveal(), "notify.ntfy.token", "notify.ntfy.url"},
	} {
		if c.given && c.missing == "" {
			return fault.New(fault.InvalidConfig, "%s needs %s. Set both, or neither.", c.key,
				c.needs).About(c.needs)
		}
	}
	// The addresses are secrets, so they are checked here, where the error can leave them out.
	for key, address := range map[string]wire.Secret{"notify.slack.webhook": n.SlackWebhook, "notify.webhook": n.Webhook} {
		if _, err := hostOf(key, address); address.Reveal() != "" && err != nil {
			return err
		}
	}
	return nil
}

// hostOf checks an address that is a secret and returns its host, the only part that may
// be shown. The path of an incoming webhook is as good as a password.
func hostOf(key string, address wire.Secret) (string, error) {
	u, err := url.Parse(address.Reveal())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fault.New(fault.InvalidConfig, "%s should be an address such as https://hooks.example.com/signalbox.",
			key).About(key)
	}
	return u.Host, nil
}

// channels makes the channels that are configured. It makes no call: a service that is down must not keep the server
// from starting. All share one HTTP client, which follows no redirects and has a timeout.
func (n *Notify) channels(outbox *deliver.Outbox, l *ledger.Ledger, log *slog.Logger) (all []notify.Channel,
	err error,
) {
	client := notify.NewClient()
	if n.SlackWebhook.Reveal() != "" {
		all = append(all, slack.NewHook(n.SlackWebhook, client))
	}
	if n.SlackToken.Reveal() != "" {
		all = append(all, slack.NewApp(slack.Options{
			Token: n.SlackToken, AppToken: n.SlackAppToken, SigningSecret: n.SlackSigningSecret, Channel: n.SlackChannel,
			ButtonsOnHigh: n.SlackButtonsOnHigh, API: n.SlackAPI, HTTP: client, Log: log,
		}))
	}
	if n.TelegramToken.Reveal() != "" {
		bot, err := telegram.NewBot(telegram.Options{
			Token: n.TelegramToken, Chat: n.TelegramChat, ButtonsOnHigh: n.TelegramButtonsOnHigh, API: n.TelegramAPI,
			HTTP: client, Files: notify.NewFileClient(telegram.MaxFile + 1), Log: log, Hold: l.Hold,
		})
		if err != nil {
			return nil, fault.New(fault.InvalidConfig,
				"notify.telegram.token should be the token of a bot, such as 123456:ABC….").About("notify.telegram.token")
		}
		all = append(all, bot)
	}
	if n.SMTP.Reveal() != "" {
		boxes, err := email.NewMailboxes(email.Options{SMTP: n.SMTP, From: n.From, To: n.To})
		if err != nil {
			return nil, err
		}
		// One channel for each receiver: each is retried, and reported, by itself.
		for _, box := range boxes {
			all = append(all, box)
		}
	}
	if n.NtfyURL.Reveal() != "" {
		topic, err := ntfy.NewTopic(n.NtfyURL, n.NtfyToken, client)
		if err != nil {
			return nil, err
		}
		all = append(all, topic)
	}
	if n.Webhook.Reveal() != "" {
		host, err := hostOf("notify.webhook", n.Webhook)
		if err != nil {
			return nil, err
		}
		all = append(all, notify.NewWebhook(outbox, n.Webhook, host))
	}
	return all, nil
}

// openNotifier opens the notifier with its channels. The outbox and the gates have to exist.
func (c *core) openNotifier(config *Config) error {
	channels, err := config.Notify.channels(c.Outbox, c.Ledger, c.Log)
	if err != nil {
		return err
	}
	for _, channel := range channels {
		if bot, ok := channel.(*telegram.Bot); ok {
			c.bot = bot
		}
	}
	c.notifier = notify.New(notify.Options{
		DB: c.DB, Ledger: c.Ledger, Roster: c.Roster, Gates: c.Gates, Alarms: c.Alarms, Outbox: c.Outbox, Key: c.Key,
		Base: c.BaseURL, Channels: channels, Log: c.Log,
	})
	return nil
}
