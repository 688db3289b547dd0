package server

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/fault"
	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/protocol"
	"signalbox/internal/wire"
)

// MailConfig is what mail uses beside this machine: other hosts of the same provider, a bucket, and a virus scanner.
// Secrets are apart from Mesh, so that the mesh can be printed.
type MailConfig struct {
	Mesh    federation.Mesh
	Secrets map[string]wire.Secret // of the hosts of the mesh
	S3      blob.S3
	Clam    string
	// WebhookWait is how long a sender waits for a receiver that says nothing.
	WebhookWait time.Duration
}

// mailSettings are the keys of mail that few installations need.
func mailSettings() []Setting {
	return []Setting{
		text("mail.mesh.host", "", "the id by which other hosts of the mesh know this one; no mesh when empty",
			func(c *Config) *string {
				return &c.Mail.Mesh.Host
			}),
		{
			Key:     "mail.mesh.hosts",
			Meaning: "other hosts that have agents of the same provider, with commas between: host-b=https://host-b:7446",
			List:    true,
			set:     setMeshHosts, get: getMeshHosts,
		},
		{
			Key: "mail.mesh.secrets", Meaning: "the secret that this host shares with each, with commas between: host-b=secret",
			List: true, Secret: true,
			set: setMeshSecrets, get: func(c *Config) string {
				return strings.Join(slices.Sorted(maps.Keys(c.Mail.Secrets)), ",")
			},
		},
		networks("mail.mesh.open", "networks whose hosts are believed without a secret, such as 10.1.0.0/16; "+
			"anybody there can send as any agent", func(c *Config) *[]netip.Prefix { return &c.Mail.Mesh.Open }),
		webAddress("mail.s3.endpoint", "a store that speaks S3, for attachments; the data folder when empty",
			func(c *Config) *string {
				return &c.Mail.S3.Endpoint
			}),
		text("mail.s3.bucket", "", "its bucket, which has to exist", func(c *Config) *string { return &c.Mail.S3.Bucket }),
		text("mail.s3.region", "us-east-1", "its region", func(c *Config) *string { return &c.Mail.S3.Region }),
		text("mail.s3.access_key", "", "the id of the key", func(c *Config) *string { return &c.Mail.S3.AccessKey }),
		secretSetting("mail.s3.secret_key", "the key", func(c *Config) *wire.Secret { return &c.Mail.S3.SecretKey }),
		text("mail.clamav", "",
			"the ClamAV daemon that scans attachments: the path of its socket, or host:port; none when empty",
			func(c *Config) *string {
				return &c.Mail.Clam
			}),
		{
			Key: "mail.webhook_wait", Default: formatDuration(mail.DefaultWait),
			Meaning: "how long a sender waits for a socket, a webhook or another server that says nothing, before the answer is " +
				"queued; at most 10s",
			set: setWebhookWait, get: func(c *Config) string { return formatDuration(c.Mail.WebhookWait) },
		},
	}
}

// setWebhookWait reads the wait of a sender. The bash clients give up after 15 seconds.
func setWebhookWait(c *Config, v string) (err error) {
	c.Mail.WebhookWait, err = time.ParseDuration(v)
	if err != nil || c.Mail.WebhookWait < 10*time.Millisecond || c.Mail.WebhookWait > 10*time.Second {
		return fmt.Errorf("should be a time from 10ms to 10s, such as 3s")
	}
	return nil
}

// setMeshHosts reads name=address pairs. Names are labels of DNS in lower case, as they occur in headers.
func setMeshHosts(c *Config, v string) error {
	c.Mail.Mesh.Hosts = map[string]federation.Host{}
	for _, item := range splitList(v) {
		name, address, _ := strings.Cut(item, "=")
		u, err := url.Parse(address)
		if name = strings.ToLower(name); !amp.LabelForm.MatchString(name) || err != nil || u.Host == "" ||
			u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("should be hosts and their addresses, such as host-b=https://host-b:7446")
		}
		c.Mail.Mesh.Hosts[name] = federation.Host{URL: strings.TrimSuffix(address, "/")}
	}
	return nil
}

// getMeshHosts is the list in the form that setMeshHosts reads, sorted.
func getMeshHosts(c *Config) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.Mail.Mesh.Hosts)) {
		list = append(list, name+"="+c.Mail.Mesh.Hosts[name].URL)
	}
	return strings.Join(list, ",")
}

// setMeshSecrets reads name=secret pairs. Its errors must not repeat the text.
func setMeshSecrets(c *Config, v string) error {
	c.Mail.Secrets = map[string]wire.Secret{}
	for _, item := range splitList(v) {
		name, text, _ := strings.Cut(item, "=")
		if len(text) < 16 {
			return fmt.Errorf("should be hosts and secrets of 16 characters or more, such as host-b=…")
		}
		c.Mail.Secrets[strings.ToLower(name)] = wire.NewSecret(text)
	}
	return nil
}

// check finds settings that are useless without another, and secrets of unknown hosts.
// Such a mistake would otherwise show only when the first message fails.
func (m *MailConfig) check() error {
	for _, pair := range [][4]string{
		{"mail.mesh.host", m.Mesh.Host, "mail.mesh.hosts", strings.Join(slices.Collect(maps.Keys(m.Mesh.Hosts)), ",")},
		{"mail.s3.endpoint", m.S3.Endpoint, "mail.s3.bucket", m.S3.Bucket},
	} {
		if key, given, other, too := pair[0], pair[1], pair[2], pair[3]; (given == "") != (too == "") {
			return fault.New(fault.InvalidConfig, "%s and %s need each other. Set both, or neither.", key,
				other).About(key)
		}
	}
	// Most likely a typing mistake in the name; the host would then be called without a secret.
	for name := range m.Secrets {
		if _, known := m.Mesh.Hosts[name]; !known {
			return fault.New(fault.InvalidConfig, "mail.mesh.secrets has a secret for %s, which is not in mail.mesh.hosts.",
				name).About("mail.mesh.secrets")
		}
	}
	return nil
}

// mesh is the mesh with its secrets, for the service that calls the hosts. It is a copy.
func (c *Config) mesh() federation.Mesh {
	mesh := c.Mail.Mesh
	mesh.Hosts = map[string]federation.Host{}
	for name, host := range c.Mail.Mesh.Hosts {
		host.Secret = c.Mail.Secrets[name]
		mesh.Hosts[name] = host
	}
	return mesh
}

// openMail opens mail with the store of its attachments. A bucket is tried here, so a wrong key stops the start.
func openMail(ctx context.Context, core protocol.Core, c *Config) (*mail.Mail, error) {
	blobs, err := OpenBlobs(ctx, c)
	if err != nil {
		return nil, err
	}
	return mail.New(core, mail.Options{
		Blobs: blobs, Domains: amp.Domains{Own: c.Provider, Aliases: c.Aliases}, Registration: c.registration(),
		SignaturesRequired: c.Signatures == "required", Keep: c.keep(), Peering: c.Federation, Mesh: c.mesh(), Clam: c.clam(),
		WebhookWait: c.Mail.WebhookWait,
	}), nil
}

// OpenBlobs opens the store of attachments: the bucket, if one is configured, or else a folder.
func OpenBlobs(ctx context.Context, c *Config) (blob.Store, error) {
	if c.Mail.S3.Bucket != "" {
		return blob.OpenBucket(ctx, c.Mail.S3)
	}
	return blob.Open(filepath.Join(c.Data, AttachmentsFolder))
}

// clam is the virus scanner; the empty one scans nothing.
func (c *Config) clam() inspect.Clam { return inspect.Clam(c.Mail.Clam) }
