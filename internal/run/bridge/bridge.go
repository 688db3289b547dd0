// Package bridge lets people start and watch runs from Telegram chats. A message starts a run or goes on with the
// session of its chat, one message is edited while the run goes on, and new ones tell its end.
//
// # Nothing is lost
//
// A message is an entry (Heard) before Telegram hears that we have it; what becomes of it is another one, in the
// transaction of what it does. So it is handled once, whatever is restarted. What the chat is told goes through the
// outbox: it is queued with its cause, tried until Telegram takes it, and in order. Only progress is not kept, since
// the next edit replaces it.
//
// # Who may
//
// Only operators of this server, known by their Telegram contact: a message of anybody else starts nothing and writes
// nothing. That is checked when a message is heard, and again when it is handled. Gates of a run are announced and
// decided like all gates, by the same bot. The bridge starts no process itself: the server does, under the same checks
// as for POST /runs (RUN-39).
package bridge

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/wire"
)

// Protocol is the part of the server's list that chats are. What people write to agents is said before it is a prompt.
func Protocol() protocol.Protocol {
	return protocol.Protocol{Migrations: Migrations, Projection: Projection(), Said: []string{Heard}}
}

// Options are what an operator sets, and where the chats are.
type Options struct {
	Bot     *telegram.Bot // nil when runs are not started by messages
	Folders []string      // where runs may work; empty is Home
	// Home is where runs work for which no folder is configured. It is made when it is first used.
	Home string
	// Engine is the engine of a message that names none, "" if there is none.
	Engine func() string
	// Admins says that only admins of all workspaces may, and not operators.
	Admins bool
	// Every is the shortest time between two edits of messages; 2s when zero. Telegram
	// limits edits.
	Every time.Duration
}

// Bridge connects the runs of one server with one bot. It has no state but its tables.
type Bridge struct {
	Options
	core protocol.Core
	runs *run.Runs
}

// prefix is what the data of the bridge's buttons begins with, by which the bot tells
// them from buttons of gates.
const prefix = "run:"

// New makes the bridge and registers it with the bot and the outbox. Call it before either runs.
func New(core protocol.Core, runs *run.Runs, o Options) *Bridge {
	if o.Every == 0 {
		o.Every = 2 * time.Second
	}
	b := &Bridge{o, core, runs}
	if o.Bot != nil {
		o.Bot.Converse(telegram.Talk{Prefix: prefix, Hear: b.hear, Press: b.handlePress})
		core.Outbox.AddSender(senderName, sender{b})
	}
	return b
}

// Routes returns none: people come by the bot.
func (b *Bridge) Routes() []wire.Route { return nil }

// Timers returns none: what was heard is handled at once.
func (b *Bridge) Timers() map[string]clock.Handler { return nil }

// Run handles what was heard and shows runs, each on one node at a time, until ctx ends.
func (b *Bridge) Run(ctx context.Context) error {
	if b.Bot == nil {
		return nil
	}
	var all errgroup.Group
	all.Go(func() error { return b.core.Ledger.Hold(ctx, "run-chat", b.handleAll) })
	all.Go(func() error {
		if err := b.beginCursor(ctx); err != nil {
			if ctx.Err() != nil { // the server stops before it has begun
				return nil //nolint:nilerr // which is no failure
			}
			return err
		}
		return b.core.Ledger.Consume(ctx, cursor, isShown, b.follow)
	})
	return all.Wait()
}

// folders are where runs of messages may work.
func (b *Bridge) folders() []string {
	if len(b.Folders) == 0 && b.Home != "" {
		return []string{b.Home}
	}
	return b.Folders
}

// findOperator finds the operator behind a Telegram contact. A sentence that is not empty is
// a refusal, for the person to read. It is asked for every message and every press, so
// a removed operator is refused at once.
func (b *Bridge) findOperator(ctx context.Context, contact string) (who roster.Identity, refusal string, err error) {
	who, err = b.core.Roster.ByContact(ctx, telegram.Name, contact)
	switch {
	case fault.Is(err, fault.NotFound):
		return who, fmt.Sprintf("You are not known here as an operator. An admin can link your account: "+
			"signalbox operators set NAME --telegram %s", contact), nil
	case err != nil:
		return who, "", err
	case b.Admins && (who.Workspace != "" || !who.Role.Allows(roster.Admin)):
		return who, fmt.Sprintf("%s may not start runs by messages: only admins of all workspaces may. "+
			"`signalbox config set runs.telegram true` lets operators.", who.Name), nil
	case !who.Role.Allows(roster.Operator):
		return who, fmt.Sprintf("%s has the role %s, and runs need the role operator.", who.Name, who.Role), nil
	}
	return who, "", nil
}

// hear records a message. In a group, only what is meant for the bot is heard: a
// directive, or a reply to a message of its own. Everything else there is people
// talking. An error says that it is not recorded, and has to be told again.
func (b *Bridge) hear(ctx context.Context, m telegram.Said) error {
	_, directed := parseOrder(m.Text, b.folders())
	if !directed && !m.Private && !m.ToBot {
		return nil
	}
	who, refusal, err := b.findOperator(ctx, m.Contact)
	if err != nil {
		return err
	}
	if refusal == "" && strings.TrimSpace(m.Text) == "" && m.File == nil {
		refusal = "The bot takes texts, documents and pictures."
	}
	if refusal != "" { // strangers leave no trace, and if Telegram does not take the answer there is nobody to tell
		if err := b.Bot.Write(ctx, telegram.Post{Chat: m.Chat, ReplyTo: m.ID, Text: refusal}); err != nil {
			b.core.Log.Warn("cannot answer in Telegram", "why", err.Error())
		}
		return nil
	}
	chat := chatName(m.Chat)
	body := heard{
		Message: m.ID, Contact: m.Contact, Text: clean(m.Text), File: m.File, ReplyTo: m.ReplyTo, ReplyText: clean(m.ReplyText),
	}
	if m.File != nil {
		body.File = &telegram.File{ID: clean(m.File.ID), Name: clean(m.File.Name), Size: m.File.Size}
	}
	return b.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var known int64
		err := tx.QueryRow("SELECT count(*) FROM chat_heard WHERE chat = $1 AND message = $2", []any{chat, m.ID}, &known)
		if err == nil && known == 0 {
			tx.Append(ledger.Event{Workspace: workspaceOf(who), Kind: Heard, Actor: who.Actor(), Subject: chat, Body: body})
		}
		return err
	})
}

// clean is a text that any database takes.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// workspaceOf is where an operator's runs are.
func workspaceOf(who roster.Identity) string {
	if who.Workspace == "" {
		return roster.DefaultWorkspace
	}
	return who.Workspace
}

// handlePress handles the button under a run, and returns what the person is shown. An error says that it failed for a
// reason of ours, and has to be told again.
func (b *Bridge) handlePress(ctx context.Context, contact, data string) (say string, failed error) {
	who, say, err := b.findOperator(ctx, contact)
	if err == nil && say == "" {
		say, err = b.stop(wire.WithScope(ctx, who.Workspace), who, strings.TrimPrefix(data, prefix))
	}
	switch known := fault.From(err); {
	case err == nil:
		return say, nil
	case known.Code.Status() < http.StatusInternalServerError:
		return known.Message, nil
	default:
		return "The run could not be told to stop. Try again in a moment.", err
	}
}

// stop tells a run to stop, and says so.
func (b *Bridge) stop(ctx context.Context, who roster.Identity, id string) (says string, err error) {
	_, err = b.runs.Cancel(ctx, who, id, "cancelled in Telegram by "+who.Name)
	return "The run was told to stop.", err
}

// chatName is a chat in the ledger, and the target of what it is told; readChat is its inverse.
func chatName(chat int64) string { return telegram.Name + ":" + strconv.FormatInt(chat, 10) }

func readChat(name string) (chat int64) {
	chat, _ = strconv.ParseInt(strings.TrimPrefix(name, telegram.Name+":"), 10, 64)
	return chat
}
