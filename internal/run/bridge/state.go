package bridge

import (
	"signalbox/internal/ledger"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/store"
)

// The kinds of entries. They are stored, so they never change. The subject of told is the run, that of the others the
// chat.
const (
	// Heard is a message that somebody wrote. It is recorded before Telegram is told that we have it.
	Heard        = "chat.heard"
	kindAnswered = "chat.answered" // what became of a message
	kindTold     = "chat.told"     // what a chat was told of a run
)

// The bodies of the entries.
type (
	heard struct {
		Message   int            `json:"message"` // its number in the chat
		Contact   string         `json:"contact"` // who wrote it
		Text      string         `json:"text"`
		File      *telegram.File `json:"file,omitzero"`
		ReplyTo   int            `json:"reply_to,omitzero"`
		ReplyText string         `json:"reply_text,omitzero"`
	}
	answered struct {
		Heard    int64  `json:"heard"`             // the entry that is answered
		Message  int    `json:"message"`           // that of the chat
		Run      string `json:"run,omitzero"`      // that it has started
		Delivery string `json:"delivery,omitzero"` // of the message that shows the run
		Fresh    bool   `json:"fresh,omitzero"`    // the next message begins a session
	}
	told struct {
		Of         string   `json:"of"`         // ended, or the gate that somebody is awaited at
		Deliveries []string `json:"deliveries"` // what says it
	}
)

// ended is the value of told.Of for the end of a run.
const ended = "ended"

// Migrations make the tables: what was heard and whether it was answered, which run was started by which message,
// which run's session a chat goes on with, and which message of ours is about which run.
var Migrations = store.Migrations{Package: "chat", Steps: []string{`
CREATE TABLE chat_heard (
  chat {text} NOT NULL,
  message {bigint} NOT NULL,
  seq {bigint} NOT NULL,
  done {bigint} NOT NULL,
  PRIMARY KEY (chat, message)
) {strict};
CREATE INDEX chat_heard_open ON chat_heard (seq) WHERE done = 0;

CREATE TABLE chat_run (
  run {text} PRIMARY KEY,
  chat {text} NOT NULL,
  workspace {text} NOT NULL,
  message {bigint} NOT NULL,
  delivery {text} NOT NULL
) {strict};
CREATE INDEX chat_run_chat ON chat_run (chat, workspace, run);
CREATE INDEX chat_run_delivery ON chat_run (delivery);

CREATE TABLE chat_session (
  chat {text} NOT NULL,
  workspace {text} NOT NULL,
  run {text} NOT NULL,
  fresh {bigint} NOT NULL,
  PRIMARY KEY (chat, workspace)
) {strict};

CREATE TABLE chat_told (
  run {text} NOT NULL,
  of {text} NOT NULL,
  PRIMARY KEY (run, of)
) {strict};

CREATE TABLE chat_post (
  delivery {text} PRIMARY KEY,
  run {text} NOT NULL
) {strict};
`}}

// Projection is what the entries do to the tables.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name: "chat",
		Tables: ledger.Tables("chat_heard (chat, message)", "chat_run (run)", "chat_session (chat, workspace)",
			"chat_told (run, of)", "chat_post (delivery)"),
		Apply: map[string]ledger.Apply{
			Heard:        ledger.ApplyBody(applyHeard),
			kindAnswered: ledger.ApplyBody(applyAnswered),
			kindTold:     ledger.ApplyBody(applyTold),
		},
	}
}

func applyHeard(tx *store.Tx, e *ledger.Entry, b *heard) {
	tx.Exec("INSERT INTO chat_heard (chat, message, seq, done) VALUES ($1, $2, $3, 0)", e.Subject, b.Message, e.Seq)
}

func applyAnswered(tx *store.Tx, e *ledger.Entry, b *answered) {
	tx.Exec("UPDATE chat_heard SET done = 1 WHERE chat = $1 AND message = $2", e.Subject, b.Message)
	if b.Fresh {
		tx.Exec("UPDATE chat_session SET fresh = 1 WHERE chat = $1 AND workspace = $2", e.Subject, e.Workspace)
	}
	if b.Run == "" {
		return
	}
	tx.Exec("INSERT INTO chat_run (run, chat, workspace, message, delivery) VALUES ($1, $2, $3, $4, $5)",
		b.Run, e.Subject, e.Workspace, b.Message, b.Delivery)
	tx.Exec("INSERT INTO chat_post (delivery, run) VALUES ($1, $2)", b.Delivery, b.Run)
	tx.Exec("INSERT INTO chat_session (chat, workspace, run, fresh) VALUES ($1, $2, $3, 0) "+
		"ON CONFLICT (chat, workspace) DO UPDATE SET run = excluded.run, fresh = 0", e.Subject, e.Workspace, b.Run)
}

func applyTold(tx *store.Tx, e *ledger.Entry, b *told) {
	tx.Exec("INSERT INTO chat_told (run, of) VALUES ($1, $2)", e.Subject, b.Of)
	for _, delivery := range b.Deliveries {
		tx.Exec("INSERT INTO chat_post (delivery, run) VALUES ($1, $2)", delivery, e.Subject)
	}
}
