package notify

import (
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// The kinds of entries. The subject of a notice is the gate, that of the others the
// channel's target.
const (
	kindQueued  = "notice.queued"
	kindAdded   = "channel.added"
	kindRemoved = "channel.removed"
	kindTested  = "channel.tested"
)

// The bodies of the entries. Names are stored, so they never change.
type (
	queued struct {
		Entry    int64  `json:"entry"` // the entry that is told
		Event    string `json:"event"`
		Channel  string `json:"channel"`          // its target
		Contact  string `json:"contact,omitzero"` // of the one person it is, "" for a channel that is configured
		Delivery string `json:"delivery"`
	}
	added struct {
		Name string `json:"name"`
	}
	tested struct {
		Delivered bool   `json:"delivered"`
		Class     string `json:"class,omitzero"`
		Text      string `json:"text,omitzero"`
	}
	empty struct{}
)

// Migrations make the tables: which notice was queued as which delivery, and since when a channel
// is known.
var Migrations = store.Migrations{Package: "notify", Steps: []string{`
CREATE TABLE notice (
  entry {bigint} NOT NULL,
  channel {text} NOT NULL,
  gate {text} NOT NULL,
  event {text} NOT NULL,
  delivery {text} NOT NULL,
  PRIMARY KEY (entry, channel)
) {strict};
CREATE INDEX notice_opened ON notice (gate, channel) WHERE event = 'gate.opened';

CREATE TABLE notice_channel (
  target {text} PRIMARY KEY,
  name {text} NOT NULL,
  since {bigint} NOT NULL
) {strict};
`, `
ALTER TABLE notice ADD COLUMN contact {text} NOT NULL DEFAULT '';
CREATE INDEX notice_personal ON notice (gate, entry) WHERE contact <> '';
`}}

// Projection is what the entries do to the tables.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "notify",
		Tables: ledger.Tables("notice (entry, channel)", "notice_channel (target)"),
		Apply: map[string]ledger.Apply{
			kindQueued: func(tx *store.Tx, e *ledger.Entry) error {
				var b queued
				if err := e.Decode(&b); err != nil {
					return err
				}
				tx.Exec("INSERT INTO notice (entry, channel, gate, event, delivery, contact) VALUES ($1, $2, $3, $4, $5, $6)",
					b.Entry, b.Channel, e.Subject, b.Event, b.Delivery, b.Contact)
				return nil
			},
			kindAdded: func(tx *store.Tx, e *ledger.Entry) error {
				var b added
				if err := e.Decode(&b); err != nil {
					return err
				}
				tx.Exec("INSERT INTO notice_channel (target, name, since) VALUES ($1, $2, $3)", e.Subject, b.Name, e.Seq)
				return nil
			},
			kindRemoved: func(tx *store.Tx, e *ledger.Entry) error {
				tx.Exec("DELETE FROM notice_channel WHERE target = $1", e.Subject)
				return nil
			},
		},
	}
}
