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
	"signalbox/internal/proxy/vault"
	"signalbox/internal/signal"
	"signalbox/internal/wire"
)

// Upstream is a provider of models to which the proxy forwards calls. Key is there only
// until it is moved into the vault.
type Upstream struct {
	Address string
	Key     wire.Secret // goes into the vault at the next start
}

// addresses are the default addresses of providers. A gateway or a test can take their place.
var addresses = map[string]string{proxy.Anthropic: "https://api.anthropic.com", proxy.OpenAI: "https://api.openai.com"}

// proxySettings are two keys for each provider: its address and its key.
func proxySettings() (all []Setting) {
	for _, name := range proxy.Providers {
		// Elements of a map cannot be changed in place.
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
			Meaning: "your key of " + name + "; the next start moves it into the encrypted vault",
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

// VaultKeyFile holds the key that encrypts the providers' keys in the database. All nodes of one database need the
// same file. If it is lost, the providers' keys have to be set again.
const VaultKeyFile = "vault.key"

// openProxy opens the model proxy. It uses the webhooks of signals, so
// that an agent sets its webhook once for both protocols.
func openProxy(core protocol.Core, config *Config, signals *signal.Signals) (*proxy.Proxy, error) {
	name := filepath.Join(config.Data, VaultKeyFile)
	if err := vault.Settle(context.Background(), core.Ledger, name); err != nil {
		return nil, err
	}
	key, err := keyFile(config, VaultKeyFile)
	if err != nil {
		return nil, err
	}
	upstreams := map[string]string{}
	for name, u := range config.Proxy {
		upstreams[name] = u.Address
	}
	return proxy.New(core, proxy.Options{
		VaultKey: key, VaultFile: name, Upstreams: upstreams,
		Webhook: func(agentID string) (string, int) {
			hook := signals.WebhookOf(agentID)
			return hook.URL, hook.Generation
		},
	})
}

// adoptKeys moves providers' keys from the configuration into the vault, and removes them from the file of the data
// folder. First the vault, then the file: a crash in between repeats the step at the next start and loses nothing.
// Keys in the environment or in another file are stored too, but cannot be removed there.
func (c *core) adoptKeys(ctx context.Context, config *Config) error {
	path := filepath.Join(config.Data, ConfigFile)
	for _, name := range proxy.Providers {
		if err := c.proxy.Adopt(ctx, name, config.Proxy[name].Key.Reveal()); err != nil {
			return err
		}
		setting := "proxy." + name + ".key"
		// Only our own file is edited. The source tells where the key came from.
		if config.Proxy[name].Key.Reveal() == "" || !strings.HasPrefix(config.Sources[setting], path+":") {
			continue
		}
		content, err := os.ReadFile(path)
		if err == nil {
			content, err = SetInFile(path, content, setting, "")
		}
		if err == nil {
			err = WriteConfig(path, content)
		}
		if err != nil {
			return fault.Wrap(err, fault.StoreReadOnly,
				"The key %s is in the vault, but cannot be removed from %s. Remove it there by hand.", setting, path)
		}
	}
	return nil
}
