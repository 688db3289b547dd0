package telegram

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"signalbox/internal/notify"
)

const (
	// pressTime is how long a vote and its answer may take.
	pressTime = 20 * time.Second
	// maxAnswer is how much Telegram shows to who pressed.
	maxAnswer = 200
	lease     = "notify-telegram"
)

// Listen asks Telegram what was pressed, while this node is the one that does.
func (b *Bot) Listen(ctx context.Context, n *notify.Notifier) error {
	return b.Hold(ctx, lease, func(ctx context.Context) error {
		// A new one each time: it remembers how far it has read, and another node may have
		// read on since. What it reads twice is voted once.
		client, err := bot.New(b.Token.Reveal(), b.options(func(ctx context.Context, client *bot.Bot, update *models.Update) {
			b.heard(ctx, client, update.CallbackQuery, n)
			b.said(ctx, update.Message)
		})...)
		if err != nil {
			return err
		}
		client.Start(ctx)
		return nil
	})
}

func (b *Bot) heard(ctx context.Context, client *bot.Bot, query *models.CallbackQuery, n *notify.Notifier) {
	if query == nil {
		return
	}
	// What was read will not be sent again, so it is done even when we are stopping.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pressTime)
	defer cancel()
	contact := strconv.FormatInt(query.From.ID, 10)
	var say string
	if b.talk != nil && strings.HasPrefix(query.Data, b.talk.Prefix) {
		say = b.talk.Press(ctx, contact, query.Data)
	} else {
		say = n.Press(ctx, notify.Press{Channel: Name, Contact: contact, Data: query.Data})
	}
	_, err := client.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{
		CallbackQueryID: query.ID, ShowAlert: true,
		Text: notify.Cut(say, maxAnswer, size),
	})
	if err != nil {
		b.Log.Warn("cannot tell somebody in Telegram what came of a press", "class", judge(err).Class)
	}
}
