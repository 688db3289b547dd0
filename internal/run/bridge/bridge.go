// Package bridge lets people start and watch runs from a Telegram chat. A message
// starts a run, a reply to the bot's message goes on with its session, one message is
// edited while the run goes on, and a button cancels it.
//
// Only operators of this server may, known by their Telegram contact; a message of
// anybody else starts nothing. Gates of a run are announced and decided like all gates,
// by the same bot. The bridge follows the ledger with a cursor, so a restart misses no
// end of a run. It starts no process itself: the server does, under the same checks as
// for POST /runs (RUN-39).
package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// Options are what a bridge works with.
type Options struct {
	Runs    *run.Runs
	Roster  *roster.Roster
	Bot     *telegram.Bot
	Folders []string
	Log     *slog.Logger
	// Every is the shortest time between two edits of messages; 2s when zero. Telegram
	// limits edits.
	Every time.Duration
}

// Bridge connects the runs of one server with one bot. It has no state of its own:
// which message shows which run is in the run's origin.
type Bridge struct {
	Options
	ledger *ledger.Ledger
}

// prefix is what the data of the bridge's buttons begins with, by which the bot tells
// them from buttons of gates.
const prefix = "run:"

// New makes the bridge and registers it with the bot. Call it before the bot listens.
func New(l *ledger.Ledger, o Options) *Bridge {
	if o.Every == 0 {
		o.Every = 2 * time.Second
	}
	b := &Bridge{o, l}
	o.Bot.Converse(telegram.Talk{Prefix: prefix, Hear: b.handleMessage, Press: b.handlePress})
	return b
}

// findOperator finds the operator behind a Telegram contact. A sentence that is not empty is
// a refusal, for the person to read. It is asked for every message and every press, so
// a removed operator is refused at once.
func (b *Bridge) findOperator(ctx context.Context, contact string) (roster.Identity, string) {
	who, err := b.Roster.ByContact(ctx, telegram.Name, contact)
	switch {
	case fault.Is(err, fault.NotFound):
		return who, fmt.Sprintf("You are not known here as an operator. An admin can link your account: "+
			"signalbox operators set NAME --telegram %s", contact)
	case err != nil:
		b.Log.Warn("cannot look up the sender of a Telegram message", "error", err.Error())
		return who, "Your operator account could not be looked up. Try again in a moment."
	case !who.Role.Allows(roster.Operator):
		return who, fmt.Sprintf("%s has the role %s, and runs need the role operator.", who.Name, who.Role)
	}
	return who, ""
}

// handleMessage takes a message. In a group, only what is meant for the bot is heard: a
// directive, or a reply to a message of its own. Everything else there is people
// talking.
func (b *Bridge) handleMessage(ctx context.Context, m telegram.Said) {
	o, directed := parseOrder(m.Text, b.Folders)
	if !directed && !m.Private && !m.ToBot {
		return
	}
	who, refusal := b.findOperator(ctx, m.Contact)
	if refusal != "" {
		b.reply(ctx, m, refusal)
		return
	}
	// The person's workspace is the wall for everything below, as for a call over HTTP.
	ctx = wire.WithScope(ctx, who.Workspace)
	var err error
	if o.cancel {
		err = b.cancelRun(ctx, who, m)
	} else {
		err = b.startRun(ctx, who, m, o)
	}
	if err != nil {
		b.reply(ctx, m, fault.From(err).Message)
	}
}

// reply replies to a message. If Telegram does not take it, there is nobody to tell.
func (b *Bridge) reply(ctx context.Context, m telegram.Said, text string) {
	if _, err := b.Bot.Write(ctx, telegram.Post{Chat: m.Chat, ReplyTo: m.ID, Text: text}); err != nil {
		b.Log.Warn("cannot answer in Telegram", "why", err.Error())
	}
}

// startRun starts a run. The message that will show it is posted first, so that the run's
// own entry says which message it is, and a restart in between loses nothing but that
// message.
func (b *Bridge) startRun(ctx context.Context, who roster.Identity, m telegram.Said, o order) error {
	if o.prompt == "" {
		return fault.New(fault.InvalidPayload, "Say what the agent is to do, such as /amp fix the failing test")
	}
	r := run.Request{Engine: o.engine, Prompt: o.prompt, Dir: o.folder}
	// A resume line in the message itself beats the one in the message that it replies to.
	session, found := engine.FindResume(m.Text)
	if !found {
		session, found = engine.FindResume(m.ReplyText)
	}
	if found {
		r.Engine, r.Resume = session.Engine, session.Value
		if last, err := b.Runs.Latest(ctx, session); err == nil && r.Dir == "" {
			r.Dir = last.Dir
		}
	}
	// Without a directive and without a session, the first engine and the first folder are
	// used.
	if r.Engine == "" {
		r.Engine = engine.Names()[0]
	}
	if r.Dir == "" && len(b.Folders) > 0 {
		r.Dir = b.Folders[0]
	}
	id, err := b.Bot.Write(ctx, telegram.Post{Chat: m.Chat, ReplyTo: m.ID, Text: "starting · " + r.Engine})
	if err != nil {
		return err
	}
	r.Origin = origin(m.Chat, id)
	if err = b.beginCursor(ctx); err == nil { // before the run, or it would not be told of
		_, err = b.Runs.Open(ctx, who, r)
	}
	if err != nil {
		_, _ = b.Bot.Write(ctx, telegram.Post{Chat: m.Chat, ID: id, Text: "not started"})
		return err
	}
	return nil
}

// cancelRun stops the run whose message was replied to.
func (b *Bridge) cancelRun(ctx context.Context, who roster.Identity, m telegram.Said) error {
	page, err := b.Runs.List(ctx, run.Filter{Status: string(run.Running)}, "", wire.MaxPage)
	if err != nil {
		return err
	}
	for _, r := range page.Runs {
		if m.ReplyTo != 0 && r.Origin == origin(m.Chat, m.ReplyTo) {
			_, err := b.Runs.Cancel(ctx, who, r.ID, "cancelled in Telegram by "+who.Name)
			return err
		}
	}
	return fault.New(fault.NotFound, "Reply to the message of a running run with /cancel, or press its button.")
}

// handlePress handles the button under a run, and returns what the person is shown.
func (b *Bridge) handlePress(ctx context.Context, contact, data string) string {
	who, refusal := b.findOperator(ctx, contact)
	if refusal != "" {
		return refusal
	}
	id := strings.TrimPrefix(data, prefix)
	if _, err := b.Runs.Cancel(wire.WithScope(ctx, who.Workspace), who, id,
		"cancelled in Telegram by "+who.Name); err != nil {
		return fault.From(err).Message
	}
	return "The run was told to stop."
}

// origin is a message of Telegram as the origin of a run; readOrigin is its inverse.
func origin(chat int64, message int) string {
	return fmt.Sprintf("%s:%d:%d", telegram.Name, chat, message)
}

// readOrigin reads the chat and the message out of an origin; false for one of another
// kind.
func readOrigin(text string) (chat int64, message int, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] != telegram.Name {
		return 0, 0, false
	}
	chat, err := strconv.ParseInt(parts[1], 10, 64)
	message, err2 := strconv.Atoi(parts[2])
	return chat, message, err == nil && err2 == nil
}
