package telegram

import (
	"context"
	"fmt"
	"html"
	"strconv"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"signalbox/internal/notify"
)

// askReason asks whoever pressed Reject for the reason: the answer to the bot's question is the vote,
// and not the press. The question ends with what the button carries, which holds its own proof, so
// nothing has to be remembered. It returns what whoever pressed is told.
func (b *Bot) askReason(ctx context.Context, query *models.CallbackQuery, p notify.Press, n *notify.Notifier) string {
	if refusal := n.Refusal(ctx, p); refusal != "" {
		return refusal
	}
	ask := &bot.SendMessageParams{
		ChatID: query.From.ID, ParseMode: models.ParseModeHTML,
		Text: fmt.Sprintf("<a href=\"tg://user?id=%d\">%s</a>, why do you reject this? Answer this message with the reason; "+
			"the agent reads it.\n%s", query.From.ID, html.EscapeString(query.From.FirstName), html.EscapeString(p.Data)),
		ReplyMarkup: &models.ForceReply{ForceReply: true, Selective: true, InputFieldPlaceholder: "Why"},
	}
	if m := query.Message.Message; m != nil { // in the chat where the gate is
		ask.ChatID = m.Chat.ID
		ask.ReplyParameters = &models.ReplyParameters{MessageID: m.ID, ChatID: m.Chat.ID, AllowSendingWithoutReply: true}
	}
	if _, err := b.client.SendMessage(ctx, ask); err != nil {
		b.Log.Warn("cannot ask for a reason in Telegram", "class", judge(err).Class)
		return "The bot could not ask you for the reason, so nothing was decided. Open the gate to reject it."
	}
	return "Answer the bot's question with the reason. Nothing is decided until then."
}

// reasonFor is the button whose reason a message gives by answering our question, "" if it is none.
func reasonFor(question *models.Message) string {
	if question == nil || question.From == nil || !question.From.IsBot {
		return ""
	}
	data := question.Text[strings.LastIndexByte(question.Text, '\n')+1:]
	if !notify.Rejects(data) {
		return ""
	}
	return data
}

// handleReason rejects with the reason, as the operator who wrote it, and answers there. last is as for handle.
func (b *Bot) handleReason(ctx context.Context, m *models.Message, data string, n *notify.Notifier, last bool) error {
	say, err := n.Press(ctx, notify.Press{
		Channel: Name, Contact: strconv.FormatInt(m.From.ID, 10), Data: data, Note: m.Text,
	})
	if err != nil && !last {
		return err
	}
	if err := b.Write(ctx, Post{Chat: m.Chat.ID, ReplyTo: m.ID, Text: say}); err != nil {
		b.Log.Warn("cannot answer a reason in Telegram", "why", err.Error())
	}
	return nil
}
