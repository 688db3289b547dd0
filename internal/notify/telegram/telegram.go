// Package telegram tells a chat of Telegram of gates, as a bot with buttons under its
// messages. Presses come by asking Telegram for news, so no address of ours need be
// public; one node at a time asks, under a lease, since Telegram answers only one.
//
// What agents wrote is escaped for Telegram's HTML. The bot's token is part of every
// address that is called, so no error of the HTTP client is ever repeated.
//
// It is the only package that imports Telegram's SDK.
package telegram

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

// Name is the kind of channel, and of the contacts of those who press.
const Name = "telegram"

// Options are what a bot is made of.
type Options struct {
	Token         wire.Secret
	Chat          string // a number, or @name of a public channel
	ButtonsOnHigh bool
	API           string // "" for Telegram's own
	HTTP          *http.Client
	Files         *http.Client // for what people send, which is larger than an answer; HTTP if nil
	Log           *slog.Logger
	// Hold runs a function while this node holds the named lease.
	Hold func(ctx context.Context, lease string, fn func(context.Context) error) error
}

// Bot is a channel that our bot posts to: a group, a public channel, or one person's chat with it.
type Bot struct {
	Options
	chat   any
	client *bot.Bot
	// person: the chat is one person's, who must have written to the bot first.
	person bool // the chat is one person's
	talk   *Talk
}

// NewBot makes the channel.
func NewBot(o Options) (*Bot, error) {
	b := &Bot{Options: o, chat: o.Chat}
	if number, err := strconv.ParseInt(o.Chat, 10, 64); err == nil {
		b.chat = number
	}
	var err error
	b.client, err = bot.New(o.Token.Reveal(), b.options()...)
	return b, err
}

// options configure the SDK: no call at start, and no goroutine. We ask for updates ourselves (Listen).
func (b *Bot) options() []bot.Option {
	options := []bot.Option{bot.WithSkipGetMe(), bot.WithHTTPClient(askTime, b.HTTP)}
	if b.API != "" {
		options = append(options, bot.WithServerURL(strings.TrimSuffix(b.API, "/")))
	}
	return options
}

// Name is the kind of channel.
func (b *Bot) Name() string { return Name }

// Target names the chat. The token is not part of it.
func (b *Bot) Target() string { return Name + ":" + b.Chat }

// Person is the bot's chat with one user.
func (b *Bot) Person(user string) notify.Channel {
	o := b.Options
	o.Chat = user
	return &Bot{Options: o, chat: user, client: b.client, person: true}
}

// Buttons are for gates that may be decided from a telephone.
func (b *Bot) Buttons(g gate.Gate) bool { return g.Risk != "high" || b.ButtonsOnHigh }

// Send posts a message, or edits the one that announced the opening, which removes its buttons. A
// message that can no longer be edited is followed by a new one.
func (b *Bot) Send(ctx context.Context, m notify.Message) deliver.Result {
	text, off := render(m), true
	// A preview would fetch whatever address an agent wrote.
	preview := &models.LinkPreviewOptions{IsDisabled: &off}
	chat, number := earlier(m.Earlier)
	if m.Event == notify.Resolved && number != 0 {
		_, err := b.client.EditMessageText(ctx,
			&bot.EditMessageTextParams{
				ChatID: chat, MessageID: number, Text: text, ParseMode: models.ParseModeHTML,
				LinkPreviewOptions: preview,
			})
		if err == nil || refusedWith(err, "message is not modified") {
			return deliver.Result{Verdict: deliver.Succeeded, Status: http.StatusOK, Reference: m.Earlier}
		}
		if !refusedWith(err, "message to edit not found") && !refusedWith(err, "message can't be edited") {
			return judge(err)
		}
	}
	params := &bot.SendMessageParams{
		ChatID: b.chat, Text: text, ParseMode: models.ParseModeHTML,
		LinkPreviewOptions: preview,
	}
	if m.Approve != "" {
		params.ReplyMarkup = &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{{
			{Text: "Approve", CallbackData: m.Approve}, {Text: "Reject", CallbackData: m.Reject},
		}}}
	}
	// A reminder answers the opening, so that the buttons are one tap away.
	if m.Event == notify.Escalated && number != 0 {
		params.ReplyParameters = &models.ReplyParameters{MessageID: number, ChatID: chat, AllowSendingWithoutReply: true}
	}
	sent, err := b.client.SendMessage(ctx, params)
	// Trying again does not help until the person has written to the bot.
	if b.person && (errors.Is(err, bot.ErrorForbidden) || refusedWith(err, "chat not found")) {
		return deliver.Result{
			Verdict: deliver.Hopeless, Class: "refused",
			Text: "The bot may not write to this person, who has to begin: by sending /start to the bot.",
		}
	}
	if err != nil {
		return judge(err)
	}
	return deliver.Result{
		Verdict: deliver.Succeeded, Status: http.StatusOK,
		Reference: Reference(sent.Chat.ID, sent.ID),
	}
}

// earlier reads a reference back: the chat and the number of a message. Both are 0 if it is none.
func earlier(reference string) (chat int64, number int) {
	first, second, _ := strings.Cut(reference, " ")
	chat, err := strconv.ParseInt(first, 10, 64)
	number, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil {
		return 0, 0
	}
	return chat, number
}

// size is what a character takes of Telegram's limit of 4096 UTF-16 units, after escaping.
func size(r rune) int {
	if escaped := html.EscapeString(string(r)); len(escaped) > 4 || r == '<' || r == '>' {
		return len(escaped)
	}
	return PostSize(r)
}

// Room leaves some of the 4096 for the headline, the link, mentions, and why there are no buttons.
func (b *Bot) Room() notify.Room { return notify.Room{Most: 3200, Size: size} }

// render makes the text in Telegram's HTML. What agents wrote is escaped.
func render(m notify.Message) string {
	var text strings.Builder
	fmt.Fprintf(&text, "<b>%s</b>\n", html.EscapeString(m.Headline))
	for _, line := range m.Lines {
		fmt.Fprintf(&text, "\n<b>%s:</b> %s", line.Name, html.EscapeString(line.Text))
	}
	for _, p := range m.Mentions(Name) {
		fmt.Fprintf(&text, "\n<a href=\"tg://user?id=%s\">%s</a>", html.EscapeString(p.Contacts[Name]),
			html.EscapeString(p.Name))
	}
	// A link to a private address is not made one by Telegram; so it stands there as text.
	fmt.Fprintf(&text, "\n\n%s", html.EscapeString(m.Link))
	return text.String()
}

// refusedWith reports whether Telegram refused with these words. It has no codes for them.
func refusedWith(err error, words string) bool {
	return errors.Is(err, bot.ErrorBadRequest) && strings.Contains(err.Error(), words)
}

// judge classifies a call that failed. The error itself is never repeated: its address contains
// the token.
func judge(err error) deliver.Result {
	if limited, ok := errors.AsType[*bot.TooManyRequestsError](err); ok {
		return deliver.Result{
			Status: http.StatusTooManyRequests, Class: "rate_limited", Text: "Telegram asks for a pause.",
			RetryAfter: time.Duration(limited.RetryAfter) * time.Second,
		}
	}
	switch {
	case errors.Is(err, bot.ErrorUnauthorized) || errors.Is(err, bot.ErrorNotFound):
		return deliver.Result{Class: "refused", Text: "Telegram does not know the bot's token. Check notify.telegram.token."}
	case errors.Is(err, bot.ErrorForbidden) || refusedWith(err, "chat not found"):
		return deliver.Result{
			Class: "refused",
			Text:  "The bot may not write to the chat. Check notify.telegram.chat, and that the bot is a member.",
		}
	case errors.Is(err, bot.ErrorConflict):
		return deliver.Result{
			Class: "refused",
			Text: "Somebody else asks Telegram for this bot's news: another server with the " +
				"same token, or a webhook of the bot.",
		}
	case errors.Is(err, bot.ErrorBadRequest):
		return deliver.Result{
			Verdict: deliver.Hopeless, Status: http.StatusBadRequest, Class: "refused",
			Text: "Telegram does not take this message.",
		}
	}
	if _, ok := errors.AsType[*bot.MigrateError](err); ok {
		return deliver.Result{
			Class: "refused",
			Text:  "The chat has become a supergroup with another number. Set notify.telegram.chat to that.",
		}
	}
	return deliver.ExplainDial(err)
}
