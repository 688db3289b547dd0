package telegram

import (
	"context"
	"strconv"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
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

// Talk is what is done with messages to the bot, and with buttons that are not those of
// gates.
type Talk struct {
	Prefix string // of what such buttons carry
	Hear   func(ctx context.Context, m Said)
	Press  func(ctx context.Context, contact, data string) (say string)
}

// Converse lets the bot hear messages. It is called before Listen.
func (b *Bot) Converse(t Talk) { b.talk = &t }

func (b *Bot) updates() bot.AllowedUpdates {
	if b.talk == nil {
		return bot.AllowedUpdates{models.AllowedUpdateCallbackQuery}
	}
	return bot.AllowedUpdates{models.AllowedUpdateCallbackQuery, models.AllowedUpdateMessage}
}

func (b *Bot) said(ctx context.Context, m *models.Message) {
	if b.talk == nil || m == nil || m.From == nil || m.Text == "" {
		return
	}
	// What was read will not be sent again, so it is done even when we are stopping.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pressTime)
	defer cancel()
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

// Write posts a text, or puts it in the place of another, and gives the message's id. An
// error says nothing that is secret.
func (b *Bot) Write(ctx context.Context, p Post) (id int, err error) {
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
	if p.ID != 0 {
		_, err := b.client.EditMessageText(ctx,
			&bot.EditMessageTextParams{
				ChatID: p.Chat, MessageID: p.ID, Text: text, LinkPreviewOptions: preview,
				ReplyMarkup: markup,
			})
		if err == nil || says(err, "message is not modified") || says(err, "message to edit not found") ||
			says(err, "message can't be edited") {
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
