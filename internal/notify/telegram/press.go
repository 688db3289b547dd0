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
	// maxAnswer is how many characters Telegram shows to whoever pressed. A longer answer is refused,
	// and the person would not learn what became of the vote.
	maxAnswer = 200
	lease     = "notify-telegram"
)

// Listen asks Telegram for presses and messages, while this node holds the lease. Telegram gives
// each update to one caller only, so one node at a time asks.
func (b *Bot) Listen(ctx context.Context, n *notify.Notifier) error {
	return b.Hold(ctx, lease, func(ctx context.Context) error {
		// A new one each time: it remembers how far it has read, and another node may have
		// read on since. What it reads twice is voted once.
		client, err := bot.New(b.Token.Reveal(), b.options(func(ctx context.Context, client *bot.Bot, update *models.Update) {
			b.handlePress(ctx, client, update.CallbackQuery, n)
			b.handleMessage(ctx, update.Message, n)
		})...)
		if err != nil {
			return err
		}
		client.Start(ctx)
		return nil
	})
}

// handlePress handles a press of a button and shows its outcome to whoever pressed. It is finished
// even if the server stops, because Telegram does not repeat what was read.
func (b *Bot) handlePress(ctx context.Context, client *bot.Bot, query *models.CallbackQuery, n *notify.Notifier) {
	if query == nil {
		return
	}
	// What was read will not be sent again, so it is done even when we are stopping.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pressTime)
	defer cancel()
	contact := strconv.FormatInt(query.From.ID, 10)
	press := notify.Press{Channel: Name, Contact: contact, Data: query.Data}
	var say string
	switch {
	// Not a button of a gate; whoever made it handles it.
	case b.talk != nil && strings.HasPrefix(query.Data, b.talk.Prefix):
		say = b.talk.Press(ctx, contact, query.Data)
	case notify.Rejects(query.Data):
		say = b.askReason(ctx, query, press, n)
	default:
		say = n.Press(ctx, press)
	}
	_, err := client.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{
		CallbackQueryID: query.ID, ShowAlert: true,
		Text: notify.Cut(say, maxAnswer, size),
	})
	if err != nil {
		b.Log.Warn("cannot answer a button press in Telegram", "class", judge(err).Class)
	}
}
