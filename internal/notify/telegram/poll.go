package telegram

import (
	"context"
	"encoding/json" // Telegram's own form, in which new fields come with every version
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"signalbox/internal/clock"
	"signalbox/internal/notify"
)

const (
	// askTime is how long Telegram may hold a request for updates before it answers "none".
	askTime = 30 * time.Second
	// atOnce is how many updates one answer has at the most: all of them are read from a bounded answer.
	atOnce = 10
	// firstPause and maxPause are those between requests that fail.
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// patience is how long a press is told again that fails for a reason of ours. Then the person is told to press again.
	patience = 10 * time.Minute
	lease    = "notify-telegram"
)

// Listen asks Telegram for presses and messages, while this node holds the lease. Telegram gives each update to one
// caller only, so one node at a time asks.
//
// The next request acknowledges the updates of the one before, and Telegram never repeats what was acknowledged. So
// it is made when all of them are done. The SDK acknowledges what it has only read.
func (b *Bot) Listen(ctx context.Context, n *notify.Notifier) error {
	return b.Hold(ctx, lease, func(ctx context.Context) error {
		// From the first that is not acknowledged, each time: another node may have read on since. What is read twice
		// is voted once, and heard once.
		next, pause, logged := int64(0), firstPause, time.Time{}
		var failing int64 // the update that could not be handled, since a time
		var since time.Time
		warn := func(what string, err error) { // at most once a minute: a broken network would fill the log
			if ctx.Err() == nil && time.Since(logged) > time.Minute {
				b.Log.Warn(what, "why", judge(err).Text)
				logged = time.Now()
			}
		}
		for ctx.Err() == nil {
			updates, err := b.updates(ctx, next)
			if err != nil {
				warn("cannot poll Telegram for messages and button presses; will retry", err)
				clock.Pause(ctx, pause)
				pause = min(2*pause, maxPause)
				continue
			}
			for _, update := range updates {
				if failing != update.ID {
					failing, since = update.ID, time.Now()
				}
				if err := b.handle(ctx, update, n, time.Since(since) > patience); err != nil {
					// Not acknowledged, so Telegram sends it again, with those behind it.
					b.Log.Warn("cannot take a message or a button press of Telegram; will retry", "error", err.Error())
					clock.Pause(ctx, pause)
					pause = min(2*pause, maxPause)
					break
				}
				next, pause = update.ID+1, firstPause
			}
			if len(updates) == 0 {
				pause = firstPause
			}
		}
		return nil
	})
}

// updates asks for the updates from a number on, and so acknowledges those before.
func (b *Bot) updates(ctx context.Context, from int64) ([]*models.Update, error) {
	query := url.Values{
		"offset": {strconv.FormatInt(from, 10)}, "limit": {strconv.Itoa(atOnce)},
		"timeout":         {strconv.Itoa(int((askTime - time.Second).Seconds()))},
		"allowed_updates": {`["` + models.AllowedUpdateCallbackQuery + `","` + models.AllowedUpdateMessage + `"]`},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.address("bot")+"/getUpdates", strings.NewReader(query.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := b.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		OK         bool             `json:"ok"`
		Result     []*models.Update `json:"result"`
		Code       int              `json:"error_code"`
		Parameters struct {
			RetryAfter int `json:"retry_after"`
		} `json:"parameters"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("the answer is not one of Telegram: %w", err)
	}
	if answer.OK {
		return answer.Result, nil
	}
	switch answer.Code {
	case http.StatusUnauthorized, http.StatusNotFound:
		return nil, bot.ErrorUnauthorized
	case http.StatusConflict:
		return nil, bot.ErrorConflict
	case http.StatusTooManyRequests:
		clock.Pause(ctx, time.Duration(answer.Parameters.RetryAfter)*time.Second)
		return nil, &bot.TooManyRequestsError{RetryAfter: answer.Parameters.RetryAfter}
	}
	return nil, errors.New("Telegram refuses to tell the news")
}

// address is where the bot's calls go, or its files are. It contains the token.
func (b *Bot) address(what string) string {
	base := "https://api.telegram.org"
	if b.API != "" {
		base = strings.TrimSuffix(b.API, "/")
	}
	return base + "/" + what + b.Token.Reveal()
}

// handle handles one update, and returns an error if it has to be told again. It is finished even if the server stops.
// last says that a press or a reason is not told again: whoever pressed hears that it failed.
func (b *Bot) handle(ctx context.Context, update *models.Update, n *notify.Notifier, last bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pressTime)
	defer cancel()
	if update.CallbackQuery != nil {
		return b.handlePress(ctx, update.CallbackQuery, n, last)
	}
	if update.Message != nil {
		return b.handleMessage(ctx, update.Message, n, last)
	}
	return nil
}
