package server

import (
	"fmt"
	"net/url"
	"strconv"

	"signalbox/internal/sink"
	"signalbox/internal/wire"
)

// Export says where the entries of the ledger are sent, beside being kept.
type Export struct {
	File      string
	FileBytes int64
	Syslog    *url.URL
	HTTP      wire.Secret
	Token     wire.Secret
	Roots     string
	Bodies    bool
}

// exportSettings are the keys of the sinks.
func exportSettings() []Setting {
	return []Setting{
		text("export.file", "", "a file that entries are appended to as lines of JSON; none when empty",
			func(c *Config) *string { return &c.Export.File }),
		{
			Key: "export.file_size", Default: "100", Meaning: "how many megabytes the file may have before it is renamed and " +
				"another one begins", set: setFileSize,
			get: func(c *Config) string { return strconv.FormatInt(c.Export.FileBytes>>20, 10) },
		},
		{
			Key: "export.syslog", Meaning: "a receiver of syslog that entries are sent to, such as " +
				"tls://logs.example.com:6514; also tcp://, unix:// and udp://, which loses entries; none when empty",
			set: func(c *Config, v string) (err error) {
				if c.Export.Syslog = nil; v != "" {
					c.Export.Syslog, err = sink.ParseSyslog(v)
				}
				return err
			},
			get: func(c *Config) string {
				if c.Export.Syslog == nil {
					return ""
				}
				return c.Export.Syslog.String()
			},
		},
		{
			Key: "export.http", Secret: true,
			Meaning: "a collector that entries are POSTed to as lines of JSON; none when empty",
			set: func(c *Config, v string) error {
				if c.Export.HTTP = wire.NewSecret(v); v == "" {
					return nil
				}
				return sink.CheckCollector(v)
			},
			get: func(c *Config) string { return c.Export.HTTP.String() },
		},
		secretSetting("export.http_token", "the bearer token for the collector",
			func(c *Config) *wire.Secret { return &c.Export.Token }),
		text("export.roots", "", "a file of certificates in PEM form that receivers and collectors may have, instead of "+
			"those of the system", func(c *Config) *string { return &c.Export.Roots }),
		flag("export.bodies", "true sends entries with their bodies, which hold what agents and people wrote",
			func(c *Config) *bool { return &c.Export.Bodies }),
	}
}

// setFileSize reads a size in megabytes.
func setFileSize(c *Config, v string) error {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 1 || n > 1<<20 {
		return fmt.Errorf("should be a number of megabytes from 1 to %d", 1<<20)
	}
	c.Export.FileBytes = n << 20
	return nil
}

// options are what package sink takes.
func (e *Export) options(c *core) sink.Options {
	return sink.Options{
		Ledger: c.Ledger, Now: c.Now, Log: c.Log, File: e.File, FileBytes: e.FileBytes, Syslog: e.Syslog, HTTP: e.HTTP,
		Token: e.Token, Roots: e.Roots, Bodies: e.Bodies, Followers: c.followers(),
	}
}
