package server

import (
	"context"
	"strings"

	"signalbox/internal/backup"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// backupSettings are the keys of scheduled backups, and of buckets that backups are in.
func backupSettings() []Setting {
	return []Setting{
		text("backup.to", "", "where backups are made: a folder, or s3:// and the name of a bucket for them alone",
			func(c *Config) *string { return &c.Backup.To }),
		{
			Key: "backup.every", Default: "none",
			Meaning: "how often the server makes a backup, such as 1h; none leaves it to `signalbox backup`",
			set:     func(c *Config, v string) (err error) { c.Backup.Every, err = parseDuration(v); return err },
			get:     func(c *Config) string { return formatDuration(c.Backup.Every) },
		},
		{
			Key: "backup.recipients", List: true, Meaning: "for whom backups are encrypted: public keys of age, with commas between",
			set: func(c *Config, v string) error { c.Backup.Recipients = splitList(v); return nil },
			get: func(c *Config) string { return strings.Join(c.Backup.Recipients, ",") },
		},
		webAddress("backup.s3.endpoint", "the address of the store whose buckets s3:// names", func(c *Config) *string {
			return &c.Backup.S3.Endpoint
		}),
		text("backup.s3.region", "us-east-1", "its region", func(c *Config) *string { return &c.Backup.S3.Region }),
		text("backup.s3.access_key", "", "the id of the key", func(c *Config) *string { return &c.Backup.S3.AccessKey }),
		secretSetting("backup.s3.secret_key", "the key", func(c *Config) *wire.Secret { return &c.Backup.S3.SecretKey }),
	}
}

// BackupParts are what stands on the ledger: what is carried along with the entries, and what is made anew from them.
func BackupParts() backup.Parts {
	return backup.Parts{
		Schema: Migrations(), Projections: Projections(),
		Tables: ledger.Tables("proxy_vault (provider, workspace)", "agent_presence (agent)"), Indexes: []string{"mail.words"},
	}
}

// BackupSource is what a backup of this configuration's database is made of.
func BackupSource(ctx context.Context, c *Config, db *store.DB) (backup.Source, error) {
	blobs, err := OpenBlobs(ctx, c)
	return backup.Source{
		Parts: BackupParts(), DB: db, Dir: c.Data, Blobs: blobs,
		Names: func(ctx context.Context) ([]string, error) { return attachment.Names(ctx, db) },
	}, err
}

// openBackups makes the schedule.
func (c *core) openBackups(ctx context.Context, config *Config) error {
	source, err := BackupSource(ctx, config, c.DB)
	c.backups = &backup.Schedule{Config: config.Backup, Source: source, Ledger: c.Ledger, Now: c.Now, Log: c.Log}
	return err
}
