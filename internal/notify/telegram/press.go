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
	// pressTime is how long a vote and its answer may take, and what becomes of a message.
	pressTime = 20 * time.Second
	// maxAnswer is how many characters Telegram shows to whoever pressed. A longer answer is refused,
	// and the person would not learn what became of the vote.
	maxAnswer = 200
)

// handlePress handles a press of a button and shows its outcome to whoever pressed. last is as for handle.
func (b *Bot) handlePress(ctx context.Context, query *models.CallbackQuery, n *notify.Notifier, last bool) error {
	contact := strconv.FormatInt(query.From.ID, 10)
	press := notify.Press{Channel: Name, Contact: contact, Data: query.Data}
	var say string
	var err error
	switch {
	// Not a button of a gate; whoever made it handles it.
	case b.talk != nil && strings.HasPrefix(query.Data, b.talk.Prefix):
		say, err = b.talk.Press(ctx, contact, query.Data)
	case notify.Rejects(query.Data):
		say = b.askReason(ctx, query, press, n)
	default:
		say, err = n.Press(ctx, press)
	}
	if err != nil && !last {
		return err
	}
	_, err = b.client.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{
		CallbackQueryID: query.ID, ShowAlert: true,
		Text: notify.Cut(say, maxAnswer, size),
	})
	if err != nil {
		b.Log.Warn("cannot answer a button press in Telegram", "class", judge(err).Class)
	}
	return nil
}
