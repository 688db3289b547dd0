package telegram

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/notify"
)

// Said is a message that somebody wrote to the bot.
type Said struct {
	Chat      int64
	ID        int
	Contact   string // who wrote it, as contacts have them
	Text      string // or what stands under a file
	File      *File  // nil for none
	Private   bool
	ReplyTo   int    // the message that it answers, 0 for none
	ReplyText string // what that said
	ToBot     bool   // that was the bot's own
}

// File is a file that somebody sent.
type File struct {
	ID   string `json:"id"` // as Telegram names it, for Download
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Talk handles messages to the bot, and buttons that are not those of gates, such as those of runs
// (package run/bridge). What returns an error is not acknowledged, and told again.
type Talk struct {
	Prefix string // of what such buttons carry
	Hear   func(ctx context.Context, m Said) error
	Press  func(ctx context.Context, contact, data string) (say string, err error)
}

// Converse lets the bot hear messages. Call it before Listen. Of messages in a group a bot with privacy mode, which is
// the default, hears commands, and those that answer its own, such as the reason of a rejection.
func (b *Bot) Converse(t Talk) { b.talk = &t }

// handleMessage rejects with the reason that somebody gives, or hands a message to Talk. last is as for handle.
func (b *Bot) handleMessage(ctx context.Context, m *models.Message, n *notify.Notifier, last bool) error {
	if m.From == nil {
		return nil
	}
	if data := reasonFor(m.ReplyToMessage); data != "" && m.Text != "" {
		return b.handleReason(ctx, m, data, n, last)
	}
	if b.talk == nil {
		return nil
	}
	said := Said{
		Chat: m.Chat.ID, ID: m.ID, Contact: strconv.FormatInt(m.From.ID, 10), Text: m.Text + m.Caption, File: fileOf(m),
		Private: m.Chat.Type == models.ChatTypePrivate,
	}
	if r := m.ReplyToMessage; r != nil {
		said.ReplyTo, said.ReplyText = r.ID, r.Text
		said.ToBot = r.From != nil && r.From.IsBot
	}
	return b.talk.Hear(ctx, said)
}

// fileOf is the file of a message, nil if it has none. Of a picture it is the largest that Telegram keeps.
func fileOf(m *models.Message) *File {
	switch {
	case m.Document != nil:
		return &File{m.Document.FileID, m.Document.FileName, m.Document.FileSize}
	case len(m.Photo) > 0:
		largest := m.Photo[len(m.Photo)-1]
		return &File{largest.FileID, "picture.jpg", int64(largest.FileSize)}
	}
	return nil
}

// MaxFile is the largest file, in bytes, that bots may download.
const MaxFile = 20 << 20

// Download reads a file that somebody sent. A fault with the code NotFound or TooLarge is final.
func (b *Bot) Download(ctx context.Context, f File) ([]byte, error) {
	found, err := b.client.GetFile(ctx, &bot.GetFileParams{FileID: f.ID})
	switch {
	case err != nil && judge(err).Verdict == deliver.Hopeless, err == nil && found.FilePath == "":
		return nil, fault.New(fault.NotFound, "Telegram does not hand out the file.")
	case err != nil:
		return nil, failure(judge(err).Text)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.address("file/bot")+"/"+found.FilePath, nil)
	if err != nil {
		return nil, fault.New(fault.NotFound, "Telegram does not hand out the file.")
	}
	client := b.Files
	if client == nil {
		client = b.HTTP
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, failure(judge(err).Text)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, failure(fmt.Sprintf("Telegram answered %d.", res.StatusCode))
	}
	content, err := io.ReadAll(io.LimitReader(res.Body, MaxFile+1))
	if len(content) > MaxFile {
		return nil, fault.New(fault.TooLarge, "The file has more than %d MiB.", MaxFile>>20)
	}
	if err != nil || found.FileSize > 0 && int64(len(content)) != found.FileSize {
		return nil, failure("The file did not arrive completely.")
	}
	return content, nil
}

// Post is a text that the bot writes, with a button under it unless Button is "", or a file.
type Post struct {
	Chat         int64
	ID           int // of the message to change, 0 for a new one
	ReplyTo      int
	Text         string // of at most MaxPost; of a file what stands under it
	Button, Data string
	File         io.Reader // nil for a text
	FileName     string
}

// MaxPost is the longest text, by PostSize.
const MaxPost = 4096

// PostSize is what a character takes of MaxPost: Telegram counts UTF-16.
func PostSize(r rune) int { return max(utf16.RuneLen(r), 1) }

// Post writes a text or a file, or replaces an earlier text, in one try. The reference of the result is for Referred.
func (b *Bot) Post(ctx context.Context, p Post) deliver.Result {
	// Telegram refuses a message with broken UTF-8 as a whole.
	off, text := true, notify.Cut(strings.ToValidUTF8(p.Text, "\uFFFD"), MaxPost, PostSize)
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
		// A message that is gone, or says the same already, counts as changed.
		if err == nil || refusedWith(err, "message is not modified") || refusedWith(err, "message to edit not found") ||
			refusedWith(err, "message can't be edited") {
			return deliver.Result{Verdict: deliver.Succeeded, Status: http.StatusOK}
		}
		return judge(err)
	}
	var reply *models.ReplyParameters
	if p.ReplyTo != 0 {
		reply = &models.ReplyParameters{MessageID: p.ReplyTo, ChatID: p.Chat, AllowSendingWithoutReply: true}
	}
	var sent *models.Message
	var err error
	if p.File != nil {
		sent, err = b.client.SendDocument(ctx, &bot.SendDocumentParams{
			ChatID: p.Chat, Document: &models.InputFileUpload{Filename: p.FileName, Data: p.File},
			Caption: notify.Cut(text, maxCaption, PostSize), ReplyParameters: reply,
		})
	} else {
		sent, err = b.client.SendMessage(ctx, &bot.SendMessageParams{
			ChatID: p.Chat, Text: text, LinkPreviewOptions: preview, ReplyMarkup: markup, ReplyParameters: reply,
		})
	}
	if err != nil {
		return judge(err)
	}
	return deliver.Result{Verdict: deliver.Succeeded, Status: http.StatusOK, Reference: Reference(sent.Chat.ID, sent.ID)}
}

// maxCaption is what Telegram takes of a text under a file.
const maxCaption = 1024

// Reference is how a result refers to a message; Referred reads it.
func Reference(chat int64, message int) string { return fmt.Sprintf("%d %d", chat, message) }

// Referred is the message that a result refers to, 0 for none.
func Referred(reference string) (message int) {
	_, message = earlier(reference)
	return message
}

// Write is Post with an error. Its errors never contain the token, which is part of every address that is called.
func (b *Bot) Write(ctx context.Context, p Post) error {
	if r := b.Post(ctx, p); r.Verdict != deliver.Succeeded {
		return failure(r.Text)
	}
	return nil
}

// failure is what may be told of a call that failed.
type failure string

func (f failure) Error() string { return string(f) }
