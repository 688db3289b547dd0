// Package bridge lets people start and watch runs from a chat of Telegram: a message
// starts a run, an answer to the bot's message goes on with its session, one message is
// changed while the run goes on, and a button cancels it.
//
// Who may is who is an operator of this server by their contact; a message of anybody
// else starts nothing. Gates of a run are told and decided as all gates are, by the same
// bot. What the bridge has told is a cursor in the ledger, so a restart misses no end of
// a run. It knows runs and the bot, and starts no process itself.
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

// Options say what a bridge stands on.
type Options struct {
	Runs    *run.Runs
	Roster  *roster.Roster
	Bot     *telegram.Bot
	Folders []string
	Log     *slog.Logger
	// Every is how long at the least lies between two changes of what is shown.
	Every time.Duration
}

// Bridge is the bridge.
type Bridge struct {
	Options
	ledger *ledger.Ledger
}

// prefix is what the bridge's buttons begin with.
const prefix = "run:"

// New makes the bridge and lets the bot hear messages.
func New(l *ledger.Ledger, o Options) *Bridge {
	if o.Every == 0 {
		o.Every = 2 * time.Second
	}
	b := &Bridge{o, l}
	o.Bot.Converse(telegram.Talk{Prefix: prefix, Hear: b.hear, Press: b.press})
	return b
}

// person is the operator who wrote or pressed; the sentence is for who is none.
func (b *Bridge) person(ctx context.Context, contact string) (roster.Identity, string) {
	who, err := b.Roster.ByContact(ctx, telegram.Name, contact)
	switch {
	case fault.Is(err, fault.NotFound):
		return who, fmt.Sprintf("You are not known here as an operator. An admin can say who you are: "+
			"signalbox operators set NAME --telegram %s", contact)
	case err != nil:
		b.Log.Warn("cannot find out who wrote in Telegram", "error", err.Error())
		return who, "It cannot be found out who you are. Try again in a moment."
	case !who.Role.Allows(roster.Operator):
		return who, fmt.Sprintf("%s has the role %s, and runs take an operator.", who.Name, who.Role)
	}
	return who, ""
}

// hear takes a message. In a group only what is meant for the bot is: a directive, or an
// answer to a message of its own.
func (b *Bridge) hear(ctx context.Context, m telegram.Said) {
	o, directed := read(m.Text, b.Folders)
	if !directed && !m.Private && !m.ToBot {
		return
	}
	who, refusal := b.person(ctx, m.Contact)
	if refusal != "" {
		b.say(ctx, m, refusal)
		return
	}
	ctx = wire.WithScope(ctx, who.Workspace)
	var err error
	if o.cancel {
		err = b.cancel(ctx, who, m)
	} else {
		err = b.begin(ctx, who, m, o)
	}
	if err != nil {
		b.say(ctx, m, fault.From(err).Message)
	}
}

func (b *Bridge) say(ctx context.Context, m telegram.Said, text string) {
	if _, err := b.Bot.Write(ctx, telegram.Post{Chat: m.Chat, ReplyTo: m.ID, Text: text}); err != nil {
		b.Log.Warn("cannot answer in Telegram", "why", err.Error())
	}
}

// begin starts a run. The message that will show it is posted first, so that the run's
// own entry says which it is.
func (b *Bridge) begin(ctx context.Context, who roster.Identity, m telegram.Said, o order) error {
	if o.prompt == "" {
		return fault.New(fault.InvalidPayload, "Say what the agent is to do, such as /amp fix the failing test")
	}
	r := run.Request{Engine: o.engine, Prompt: o.prompt, Dir: o.folder}
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

// cancel tells the run to stop whose message was answered.
func (b *Bridge) cancel(ctx context.Context, who roster.Identity, m telegram.Said) error {
	page, err := b.Runs.List(ctx, string(run.Running), "", wire.MaxPage)
	if err != nil {
		return err
	}
	for _, r := range page.Runs {
		if m.ReplyTo != 0 && r.Origin == origin(m.Chat, m.ReplyTo) {
			_, err := b.Runs.Cancel(ctx, who, r.ID, "cancelled in Telegram by "+who.Name)
			return err
		}
	}
	return fault.New(fault.NotFound, "Answer the message of a run that goes on with /cancel, or press its button.")
}

// press is the button under a run.
func (b *Bridge) press(ctx context.Context, contact, data string) string {
	who, refusal := b.person(ctx, contact)
	if refusal != "" {
		return refusal
	}
	id := strings.TrimPrefix(data, prefix)
	if _, err := b.Runs.Cancel(wire.WithScope(ctx, who.Workspace), who, id,
		"cancelled in Telegram by "+who.Name); err != nil {
		return fault.From(err).Message
	}
	return "The run is told to stop."
}

func origin(chat int64, message int) string {
	return fmt.Sprintf("%s:%d:%d", telegram.Name, chat, message)
}

func readOrigin(text string) (chat int64, message int, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] != telegram.Name {
		return 0, 0, false
	}
	chat, err := strconv.ParseInt(parts[1], 10, 64)
	message, err2 := strconv.Atoi(parts[2])
	return chat, message, err == nil && err2 == nil
}
