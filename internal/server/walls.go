package server

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
)

// Wall is one thing that keeps agents or strangers from what is not theirs, for `signalbox doctor`.
// Text says what is so, and for a wall that does not stand how to put it up.
type Wall struct {
	What   string `json:"what"`
	Stands bool   `json:"stands"`
	Text   string `json:"text"`
}

// Walls says which walls of the edge stand with these settings, those of a running server or those of its next start.
func (l SettingList) Walls() []Wall {
	c := &Config{}
	for _, value := range l.Settings {
		i := slices.IndexFunc(Settings, func(s Setting) bool { return s.Key == value.Key && !s.Secret })
		if i >= 0 {
			_ = Settings[i].set(c, value.Value) // the server has read it, so it is valid
		}
	}
	why := c.reachable()
	if why == "" {
		return []Wall{
			{"reach", true, "only this machine can reach the server: its programs register agents without a key, read /metrics, " +
				"and agents' webhooks may lead to it"},
			c.transportWall(why),
		}
	}
	return []Wall{
		{"reach", true, "others can reach the server, since " + why + "; what strangers may do is below"},
		c.registrationWall(), c.webhookWall(), c.mailWall(), c.metricsWall(), c.urlKeyWall(), c.transportWall(why),
		c.proxyWall(),
	}
}

// registrationWall is about agents that register themselves.
func (c *Config) registrationWall() Wall {
	mode := c.registration()
	if mode == directory.Open || mode == directory.ByProof {
		return Wall{"registration", false, "mail.registration is " + mode + ": anybody can register an agent. Run " +
			"`signalbox config set mail.registration owner`."}
	}
	return Wall{"registration", true, "agents register with a credential: mail.registration is " + mode}
}

// webhookWall is about calls that agents have the server make.
func (c *Config) webhookWall() Wall {
	for _, item := range c.Allow {
		p, err := netip.ParsePrefix(item)
		if err == nil && p.Addr().IsLoopback() || isLoopback(item) || item == "0.0.0.0/0" || item == "::/0" {
			return Wall{"webhooks", false, "webhooks.allow has " + item + ": agents can have the server call programs of this " +
				"machine. Take it out with `signalbox config set webhooks.allow ''`."}
		}
	}
	return Wall{"webhooks", true, "agents' webhooks cannot lead to this machine"}
}

// mailWall is about mail from those who have no key.
func (c *Config) mailWall() Wall {
	switch {
	case len(c.Mail.Mesh.Open) > 0:
		return Wall{"mail", false, "mail.mesh.open believes hosts without a secret: anybody in those networks can send as any " +
			"agent. Give each host a secret in mail.mesh.secrets, and run `signalbox config set mail.mesh.open ''`."}
	case c.Federation.Mode == federation.Open:
		return Wall{"mail", false, "mail.federation is open: every provider can send mail to agents. Run `signalbox config " +
			"set mail.federation allowlist`, and list those you know in mail.peers."}
	}
	return Wall{"mail", true, "mail takes an agent's key or a provider that you listed"}
}

// metricsWall is about the numbers of the server.
func (c *Config) metricsWall() Wall {
	if c.Metrics == metricsOpen {
		return Wall{"metrics", false, "anybody can read /metrics. Run `signalbox config set server.metrics operators`."}
	}
	return Wall{"metrics", true, "/metrics takes an operator's token"}
}

// urlKeyWall is about keys in addresses.
func (c *Config) urlKeyWall() Wall {
	if c.URLKeys {
		return Wall{"keys in URLs", false, "AHP over WebSocket and the model proxy take keys in addresses, which logs of proxies " +
			"keep. If no client needs that, run `signalbox config set server.url_keys false`."}
	}
	return Wall{"keys in URLs", true, "keys are taken from headers only"}
}

// transportWall is about encryption. Behind a proxy it is the proxy's.
func (c *Config) transportWall(reachable string) Wall {
	host, _, _ := net.SplitHostPort(c.Listen)
	public, _ := url.Parse(c.PublicURL)
	switch {
	case c.TLSCert != "":
		return Wall{"TLS", true, "the server speaks HTTPS"}
	case reachable == "":
		return Wall{"TLS", true, "not needed on this machine"}
	case isLoopback(host) && public.Scheme == "https":
		return Wall{"TLS", true, "a proxy on this machine speaks HTTPS for it, as public_url says"}
	case !isLoopback(host) && len(c.Proxies) > 0 && public.Scheme == "https":
		return Wall{"TLS", true, "a proxy speaks HTTPS for it; the way from the proxy to " + c.Listen + " is not encrypted"}
	}
	return Wall{"TLS", false, "keys, codes and passwords cross the network unencrypted. Set tls.cert and tls.key, or listen " +
		"on loopback behind a proxy with TLS and set public_url to its https address."}
}

// proxyWall is about who is believed when a request says where it came from.
func (c *Config) proxyWall() Wall {
	host, _, _ := net.SplitHostPort(c.Listen)
	wide := slices.ContainsFunc(c.Proxies, func(p netip.Prefix) bool { return p.Bits() == 0 })
	switch {
	case wide:
		return Wall{"proxies", false, "server.trusted_proxies trusts every address: anybody can claim to call from anywhere. " +
			"Name the proxy's own address."}
	case len(c.Proxies) > 0:
		var names []string
		for _, p := range c.Proxies {
			names = append(names, p.String())
		}
		return Wall{"proxies", true, fmt.Sprintf("X-Forwarded headers are believed from %s only", strings.Join(names, ", "))}
	case isLoopback(host):
		return Wall{"proxies", false, "public_url leads here through a proxy that server.trusted_proxies does not name: all " +
			"callers look like the proxy. Run `signalbox config set server.trusted_proxies 127.0.0.1`, if it runs here."}
	}
	return Wall{"proxies", true, "X-Forwarded headers are believed from nobody"}
}
