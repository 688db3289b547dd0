package server

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/protocol"
	"signalbox/internal/proxy"
	"signalbox/internal/signal"
	"signalbox/internal/wire"
)

// Upstream is a provider that calls are carried to.
type Upstream struct {
	Address string
	Key     wire.Secret // goes into the vault at the next start
}

// addresses are where providers are, unless the configuration says otherwise.
var addresses = map[string]string{proxy.Anthropic: "https://api.anthropic.com", proxy.OpenAI: "https://api.openai.com"}

// proxySettings are the keys under proxy.
func proxySettings() (all []Setting) {
	for _, name := range proxy.Providers {
		change := func(c *Config, fn func(*Upstream)) {
			if c.Proxy == nil {
				c.Proxy = map[string]Upstream{}
			}
			u := c.Proxy[name]
			fn(&u)
			c.Proxy[name] = u
		}
		all = append(all, Setting{
			Key: "proxy." + name + ".upstream", Default: addresses[name],
			Meaning: "where the proxy sends calls for " + name + ", without /v1",
			set: func(c *Config, v string) error {
				if u, err := url.Parse(v); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
					u.User != nil || u.RawQuery != "" {
					return fmt.Errorf("should be an address such as %s", addresses[name])
				}
				change(c, func(u *Upstream) { u.Address = strings.TrimSuffix(v, "/") })
				return nil
			},
			get: func(c *Config) string { return c.Proxy[name].Address },
		}, Setting{
			Key: "proxy." + name + ".key", Default: "",
			Meaning: "the key that " + name + " has given you; it is moved into the encrypted vault at the next start",
			Secret:  true,
			set: func(c *Config, v string) error {
				change(c, func(u *Upstream) { u.Key = wire.NewSecret(strings.TrimSpace(v)) })
				return nil
			},
			get: func(c *Config) string { return c.Proxy[name].Key.String() },
		})
	}
	return all
}

// VaultKeyFile holds the key that encrypts the providers' keys. Nodes of one database have
// the same.
const VaultKeyFile = "vault.key"

// openProxy opens the model proxy. Prices and webhooks are those of signals.
func openProxy(core protocol.Core, config *Config, signals *signal.Signals) (*proxy.Proxy, error) {
	key, err := keyFile(config, VaultKeyFile)
	if err != nil {
		return nil, err
	}
	upstreams := map[string]string{}
	for name, u := range config.Proxy {
		upstreams[name] = u.Address
	}
	return proxy.New(core, proxy.Options{
		VaultKey: key, Upstreams: upstreams, Price: signals.Cost,
		Webhook: func(agentID string) (string, int) {
			hook := signals.WebhookOf(agentID)
			return hook.URL, hook.Generation
		},
	})
}

// adoptKeys moves providers' keys out of the configuration into the vault. In the data
// folder's file nothing of them is left.
func (c *core) adoptKeys(ctx context.Context, config *Config) error {
	path := filepath.Join(config.Data, ConfigFile)
	for _, name := range proxy.Providers {
		if err := c.proxy.Adopt(ctx, name, config.Proxy[name].Key.Reveal()); err != nil {
			return err
		}
		setting := "proxy." + name + ".key"
		if config.Proxy[name].Key.Reveal() == "" || !strings.HasPrefix(config.Sources[setting], path+":") {
			continue
		}
		content, err := os.ReadFile(path)
		if err == nil {
			content, err = SetInFile(path, content, setting, "")
		}
		if err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
		if err != nil {
			return fault.Wrap(err, fault.StoreReadOnly,
				"The key %s is in the vault, and cannot be taken out of %s. Take it out yourself.", setting, path)
		}
	}
	return nil
}
