package bridge

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// senderName is the kind of our deliveries. Their target is the chat.
const senderName = "chat-telegram"

// giveUpAfter is how long Telegram is tried.
const giveUpAfter = 24 * time.Hour

// post is what a delivery writes: a text, a file of a folder of runs, or the whole answer of a run as a file.
type post struct {
	Text    string `json:"text,omitzero"`
	ReplyTo int    `json:"reply_to,omitzero"`
	Stop    string `json:"stop,omitzero"` // the run that a button below stops
	Of      string `json:"of,omitzero"`   // the delivery whose message is replaced
	Dir     string `json:"dir,omitzero"`
	File    string `json:"file,omitzero"`
	Answer  string `json:"answer,omitzero"` // a run
}

// queue queues one message for a chat. All of a chat arrive in their order.
func (b *Bridge) queue(tx *ledger.Tx, chat, workspace, trace string, p post) (delivery string, err error) {
	content, err := wire.Marshal(p)
	if err != nil {
		return "", err
	}
	return deliver.Queue(tx, deliver.Delivery{
		Workspace: workspace, Sender: senderName, Target: chat, Payload: content, GiveUpAfter: giveUpAfter, Trace: trace,
	})
}

// sender sends what was queued. The outbox calls it.
type sender struct{ b *Bridge }

// Send makes one try.
func (s sender) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	var p post
	if err := wire.UnmarshalPart(a.Payload, &p); err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "internal", Text: "The message cannot be read."}
	}
	out := telegram.Post{Chat: readChat(a.Target), ReplyTo: p.ReplyTo, Text: p.Text}
	if p.Stop != "" {
		out.Button, out.Data = "Stop", prefix+p.Stop
	}
	if p.Of != "" {
		reference, err := s.b.core.Outbox.Reference(ctx, p.Of)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return s.broken(a, err)
		}
		out.ID = telegram.Referred(reference) // 0 if it has never arrived: then this is a new one
	}
	if p.File != "" {
		content, err := s.b.readFile(p.Dir, p.File)
		if err != nil {
			out.Text = "The file " + p.File + " is not sent: " + fault.From(err).Message
		} else {
			out.File, out.FileName = bytes.NewReader(content), safeName(filepath.Base(p.File))
		}
	}
	if p.Answer != "" {
		answer, err := s.b.answerOf(ctx, p.Answer)
		if err != nil {
			return s.broken(a, err)
		}
		out.File, out.FileName = bytes.NewReader([]byte(answer)), "answer.md"
	}
	return s.b.Bot.Post(ctx, out)
}

// broken is the result for a message that could not be made. It is tried again, since the database may be away for a
// moment.
func (s sender) broken(a deliver.Attempt, err error) deliver.Result {
	s.b.core.Log.Warn("cannot make a message", "delivery", a.ID, "error", err.Error())
	return deliver.Result{Class: "internal", Text: "What it is about could not be read. The server's log has the cause."}
}

// answerOf is the whole answer of a run.
func (b *Bridge) answerOf(ctx context.Context, id string) (string, error) {
	r, err := b.runs.Get(ctx, id)
	if err != nil {
		return "", err
	}
	last, err := b.lastEvent(ctx, r.ID, r.Events)
	return last.Answer, err
}

// lastEvent is the last event of a run that has ended.
func (b *Bridge) lastEvent(ctx context.Context, id string, events int64) (e engine.Event, err error) {
	all, err := b.runs.Events(ctx, id, events-1)
	if err != nil || len(all) == 0 {
		return e, err
	}
	return e, wire.UnmarshalPart(all[len(all)-1].Event, &e)
}

// reference is a message of a chat as results refer to it.
func reference(chat string, message int) string { return telegram.Reference(readChat(chat), message) }

// texts are the messages of a text.
func texts(text string) (posts []post) {
	for _, part := range split(text, telegram.MaxPost) {
		posts = append(posts, post{Text: part})
	}
	return posts
}

// named is the heading of a part that is not the only one.
func named(i, of int) string {
	if of < 2 {
		return ""
	}
	return fmt.Sprintf("(%d/%d)\n", i+1, of)
}
