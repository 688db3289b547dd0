package server

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/audit"
	"signalbox/internal/behalf"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/wire"
)

// Audit is how the server audits itself.
type Audit struct {
	Percent     float64 // of a processor
	Fast, Whole time.Duration
}

// auditSettings are the keys of the audit. There is none that turns it off.
func auditSettings() []Setting {
	length := func(key, absent, meaning string, field func(*Config) *time.Duration) Setting {
		return Setting{
			Key: key, Default: absent, Meaning: meaning,
			set: func(c *Config, v string) (err error) {
				if *field(c), err = parseDuration(v); err == nil && *field(c) == 0 {
					err = fmt.Errorf("should be a length of time such as 1m: the server always audits itself")
				}
				return err
			},
			get: func(c *Config) string { return formatDuration(*field(c)) },
		}
	}
	return []Setting{
		{
			Key: "audit.percent", Default: "2",
			Meaning: "how much of a processor the audit of ledger and tables takes at the most, 0.1 to 100",
			set: func(c *Config, v string) (err error) {
				if c.Audit.Percent, err = strconv.ParseFloat(v, 64); err != nil || c.Audit.Percent < 0.1 || c.Audit.Percent > 100 {
					return fmt.Errorf("should be a number from 0.1 to 100")
				}
				return nil
			},
			get: func(c *Config) string { return strconv.FormatFloat(c.Audit.Percent, 'f', -1, 64) },
		},
		length("audit.fast", "1m", "within what time the last entries and all that grants power are audited",
			func(c *Config) *time.Duration { return &c.Audit.Fast }),
		length("audit.whole", "10m", "the least time between two audits of everything",
			func(c *Config) *time.Duration { return &c.Audit.Whole }),
	}
}

// AuditFolder is where the audit builds tables, in the data folder. It is emptied at each start, and is no part of a
// backup.
const AuditFolder = "audit"

// openAudit makes the audit of everything in the database.
func (c *core) openAudit(config *Config, more []protocol.Protocol) {
	index := ledger.Tables(behalf.IndexTable)[0]
	c.audit = audit.New(audit.Options{
		DB: c.DB, Ledger: c.Ledger, Sets: Migrations(more...), Projections: Projections(more...),
		// Gates may be many, and the others must not wait for them. A vote moves the counter of a passkey on.
		Power:     [][]string{{"roster", "handoff", "rulebook", "web"}, {"passkey", "gate"}},
		Shared:    []string{"gate_approval"}, // protocols take uses of approvals
		Followers: []audit.Follower{{Table: index, Seq: "seq", Cursor: behalf.Place, Apply: behalf.Put}},
		Folder:    filepath.Join(config.Data, AuditFolder), Data: config.Data,
		Share: config.Audit.Percent / 100, Fast: config.Audit.Fast, Whole: config.Audit.Whole,
		Tell: func(ctx context.Context, one alarm.Alarm) { c.notifier.Tell(ctx, one) }, Now: c.Now, Log: c.Log,
	})
}

// auditStatus is how far the audit is. What it has found is in the tables of all workspaces, so whoever is confined to
// one sees the kinds only.
func (c *core) auditStatus(ctx context.Context) audit.Status {
	s := c.audit.Status()
	if wire.Scope(ctx) != "" {
		for i := range s.Findings {
			s.Findings[i].Details = nil
		}
	}
	return s
}
