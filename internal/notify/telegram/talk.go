package telegram

import (
	"context"
	"strconv"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"signalbox/internal/notify"
)

// Said is a message that somebody wrote to the bot.
type Said struct {
	Chat      int64
	ID        int
	Contact   string // who wrote it, as contacts have them
	Text      string
	Private   bool
	ReplyTo   int    // the message that it answers, 0 for none
	ReplyText string // what that said
	ToBot     bool   // that was the bot's own
}

// Talk handles messages to the bot, and buttons that are not those of gates, such as those of runs
// (package run/bridge).
type Talk struct {
	Prefix string // of what such buttons carry
	Hear   func(ctx context.Context, m Said)
	Press  func(ctx context.Context, contact, data string) (say string)
}

// Converse lets the bot hear messages. Call it before Listen.
func (b *Bot) Converse(t Talk) { b.talk = &t }

// updates are the kinds of updates that Telegram should send. Of messages in a group a bot with
// privacy mode, which is the default, hears those that answer its own, such as the reason of a
// rejection. Others are ignored, unless Converse has somebody who handles them.
func updates() bot.AllowedUpdates {
	return bot.AllowedUpdates{models.AllowedUpdateCallbackQuery, models.AllowedUpdateMessage}
}

// handleMessage rejects with the reason that somebody gives, or hands a message to Talk. Like a press
// it is finished even if the server stops.
func (b *Bot) handleMessage(ctx context.Context, m *models.Message, n *notify.Notifier) {
	if m == nil || m.From == nil || m.Text == "" {
		return
	}
	// What was read will not be sent again, so it is done even when we are stopping.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pressTime)
	defer cancel()
	if data := reasonFor(m.ReplyToMessage); data != "" {
		b.handleReason(ctx, m, data, n)
		return
	}
	if b.talk == nil {
		return
	}
	said := Said{
		Chat: m.Chat.ID, ID: m.ID, Contact: strconv.FormatInt(m.From.ID, 10), Text: m.Text,
		Private: m.Chat.Type == models.ChatTypePrivate,
	}
	if r := m.ReplyToMessage; r != nil {
		said.ReplyTo, said.ReplyText = r.ID, r.Text
		said.ToBot = r.From != nil && r.From.IsBot
	}
	b.talk.Hear(ctx, said)
}

// Post is a text that the bot writes, with a button under it unless Button is "".
type Post struct {
	Chat         int64
	ID           int // of the message to change, 0 for a new one
	ReplyTo      int
	Text         string
	Button, Data string
}

// maxPost is what Telegram takes of a text.
const maxPost = 4096

// Write posts a text, or replaces an earlier one, and returns the message's id. Its errors never
// contain the token, which is part of every address that is called.
func (b *Bot) Write(ctx context.Context, p Post) (id int, err error) {
	// Telegram refuses a message with broken UTF-8 as a whole.
	off, text := true, strings.ToValidUTF8(p.Text, "\uFFFD")
	if cut := []rune(text); len(cut) > maxPost/2 { // some characters count twice
		text = string(cut[:maxPost/2]) + "…"
	}
	preview := &models.LinkPreviewOptions{IsDisabled: &off}
	var markup models.ReplyMarkup
	if p.Button != "" {
		markup = &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{{{
			Text:         p.Button,
			CallbackData: p.Data,
		}}}}
	}
	// A message that is gone, or says the same already, counts as changed.
	if p.ID != 0 {
		_, err := b.client.EditMessageText(ctx,
			&bot.EditMessageTextParams{
				ChatID: p.Chat, MessageID: p.ID, Text: text, LinkPreviewOptions: preview,
				ReplyMarkup: markup,
			})
		if err == nil || refusedWith(err, "message is not modified") || refusedWith(err, "message to edit not found") ||
			refusedWith(err, "message can't be edited") {
			return p.ID, nil
		}
		return 0, failure(judge(err).Text)
	}
	params := &bot.SendMessageParams{ChatID: p.Chat, Text: text, LinkPreviewOptions: preview, ReplyMarkup: markup}
	if p.ReplyTo != 0 {
		params.ReplyParameters = &models.ReplyParameters{MessageID: p.ReplyTo, ChatID: p.Chat, AllowSendingWithoutReply: true}
	}
	sent, err := b.client.SendMessage(ctx, params)
	if err != nil {
		return 0, failure(judge(err).Text)
	}
	return sent.ID, nil
}

// failure is what may be told of a call that failed.
type failure string

func (f failure) Error() string { return string(f) }
