package bridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/show"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

const (
	// cursor is the name of the bridge's place in the ledger, which is stored.
	cursor = "run-telegram"
	// shownActions is how many of the last actions are shown.
	shownActions = 5
	maxTitle     = 200
	// maxParts is in how many messages an answer is told. A longer one is sent as a file, below its beginning.
	maxParts = 5
	// partRoom leaves room for the number of a part.
	partRoom = telegram.MaxPost - 16
)

// beginCursor sets the cursor to now, unless it is set: a bridge that is switched on
// does not show old runs.
func (b *Bridge) beginCursor(ctx context.Context) error {
	head, err := b.core.Ledger.Head(ctx)
	if err != nil {
		return err
	}
	return b.core.Ledger.BeginAt(ctx, cursor, head)
}

// arrived is the kind of the entry that a message of ours has arrived.
const arrived = "delivery.succeeded"

// isShown selects the entries about runs, of this and of other protocols, and those after which a message of a run
// can be edited.
func isShown(kind string) bool {
	return strings.HasPrefix(kind, "run.") || kind == arrived || kind == "gate.opened"
}

// shownRun is a run of a chat.
type shownRun struct {
	id, chat, workspace, delivery string
	message                       int
}

// follow shows the runs in a page of entries, each once, however much has happened to
// it. Progress that Telegram does not take is dropped, since the next edit replaces it;
// the end of a run goes through the outbox.
func (b *Bridge) follow(ctx context.Context, entries []ledger.Entry) error {
	touched := map[string]bool{} // and whether it has ended
	var deliveries []string
	for i := range entries {
		e := &entries[i]
		if awaits := gate.AskedAt(e); awaits != "" {
			if err := b.tellAwaited(ctx, awaits, e); err != nil {
				return err
			}
		}
		switch {
		case e.Kind == arrived:
			deliveries = append(deliveries, e.Subject)
		case strings.HasPrefix(e.Kind, "run."):
			touched[e.Subject] = touched[e.Subject] || e.Kind == "run.completed"
		}
	}
	if err := b.about(ctx, deliveries, touched); err != nil {
		return err
	}
	edited := false
	for id, over := range touched {
		one, err := b.shownRun(ctx, id)
		if errors.Is(err, sql.ErrNoRows) {
			continue // not of a chat
		}
		if err == nil && over {
			err = b.tellEnd(ctx, one)
		} else if err == nil {
			edited = true
			err = b.showProgress(ctx, one)
		}
		if err != nil {
			return err
		}
	}
	if edited { // Telegram takes a few changes a second, and people do not read faster
		ledger.Pause(ctx, nil, b.Every)
	}
	return nil
}

// shownRun is a run of a chat.
func (b *Bridge) shownRun(ctx context.Context, id string) (one shownRun, err error) {
	one.id = id
	return one, b.core.DB.QueryRow(ctx, "SELECT chat, workspace, message, delivery FROM chat_run WHERE run = $1", []any{id},
		&one.chat, &one.workspace, &one.message, &one.delivery)
}

// tellAwaited tells a chat that its run waits for a person, and where. The run is the one that the agent names.
func (b *Bridge) tellAwaited(ctx context.Context, id string, e *ledger.Entry) error {
	one, err := b.shownRun(ctx, id)
	if errors.Is(err, sql.ErrNoRows) || err == nil && one.workspace != e.Workspace {
		return nil
	}
	if err != nil {
		return err
	}
	o, err := ledger.Read[gate.Opening](e)
	if err != nil {
		return err
	}
	text := show.Text("Waits for a person: "+o.Shown.Title+" ("+o.AgentName+" asks)") + "\n" + b.core.BaseURL + address.Gate.At(e.Subject)
	return b.tell(ctx, one, e.Subject, []post{{Text: text}})
}

// about adds the runs that are shown by messages that have arrived.
func (b *Bridge) about(ctx context.Context, deliveries []string, touched map[string]bool) error {
	if len(deliveries) == 0 {
		return nil
	}
	var where store.Where
	where.In("delivery", deliveries)
	ids, err := store.All(b.core.DB.Reading(ctx), store.Text, "SELECT run FROM chat_run WHERE "+where.String(), where.Args()...)
	for _, id := range ids {
		if !touched[id] { // one that has ended remains so
			touched[id] = false
		}
	}
	return err
}

// showProgress replaces the message of a run by the run as it is now.
func (b *Bridge) showProgress(ctx context.Context, one shownRun) error {
	// Without a scope: the bridge serves the chat that asked, whose operator was checked then.
	r, err := b.runs.Get(ctx, one.id)
	if err != nil {
		return err
	}
	reference, err := b.core.Outbox.Reference(ctx, one.delivery)
	if err != nil || reference == "" || r.Status != run.Running {
		return err // the message is not there yet, or the end is told next
	}
	events, err := b.runs.Events(ctx, r.ID, max(0, r.Events-4*shownActions))
	if err != nil {
		return err
	}
	err = b.Bot.Write(ctx, telegram.Post{
		Chat: readChat(one.chat), ID: telegram.Referred(reference), Text: renderProgress(r, events, b.core.Now()),
		Button: "Stop", Data: prefix + r.ID,
	})
	if err != nil {
		b.core.Log.Warn("cannot show a run in Telegram", "why", err.Error())
	}
	return nil
}

// tellEnd tells a chat the end of a run, once: its message is replaced, which notifies nobody, and new ones have the
// answer.
func (b *Bridge) tellEnd(ctx context.Context, one shownRun) error {
	r, err := b.runs.Get(ctx, one.id)
	if err != nil {
		return err
	}
	last, err := b.lastEvent(ctx, r.ID, r.Events)
	if err != nil {
		return err
	}
	posts := append([]post{{Text: show.Text(headLine(r, b.core.Now())), Of: one.delivery}}, outcome(r, last)...)
	return b.tell(ctx, one, ended, posts)
}

// tell queues messages about a run for its chat, once.
func (b *Bridge) tell(ctx context.Context, one shownRun, of string, posts []post) error {
	return b.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var known int64
		if err := tx.QueryRow("SELECT count(*) FROM chat_told WHERE run = $1 AND of = $2", []any{one.id, of}, &known); err != nil ||
			known > 0 {
			return err
		}
		body := told{Of: of, Deliveries: []string{}}
		for _, p := range posts {
			if p.Of == "" {
				p.ReplyTo = one.message
			}
			delivery, err := b.queue(tx, one.chat, one.workspace, one.id, p)
			if err != nil {
				return err
			}
			body.Deliveries = append(body.Deliveries, delivery)
		}
		tx.Append(ledger.Event{
			Workspace: one.workspace, Kind: kindTold, Actor: "system", Subject: one.id, Trace: one.id, Body: body,
		})
		return nil
	})
}

// outcome is what people are told at the end of a run: its error, its answer, and how to resume. It is plain text, so
// nothing that an agent writes is formatted.
func outcome(r run.Run, last engine.Event) (posts []post) {
	var all []string
	if last.Error != "" {
		all = append(all, word(r)+": "+last.Error)
	}
	if answer := strings.TrimSpace(last.Answer); answer != "" {
		all = append(all, answer)
	}
	if len(all) == 0 {
		all = append(all, word(r)+", without an answer.")
	}
	line := ""
	if r.Line != "" {
		line = "\n\n↩️ " + r.Line
	}
	text := show.Lines(strings.Join(all, "\n\n"))
	parts := split(text+line, partRoom)
	whole := len(parts) > maxParts
	if whole {
		note := "\n\nThe answer goes on in the file." + line
		parts = []string{split(text, partRoom-len(note))[0] + note}
	}
	for i, part := range parts {
		posts = append(posts, post{Text: named(i, len(parts)) + part})
	}
	if whole {
		posts = append(posts, post{Answer: r.ID})
	}
	return posts
}

// word is how a run has ended, as people read it everywhere.
func word(r run.Run) string {
	if r.Status == run.Running {
		return "working"
	}
	return r.Outcome()
}

// headLine is a run in one line: its status, its engine, how long it has taken, and what it has used.
func headLine(r run.Run, now time.Time) string {
	if r.EndedAt != nil {
		now = *r.EndedAt
	}
	// What it may use is said as long as it can use it.
	of := func(used, most string, limited bool) string {
		if limited && r.Status == run.Running {
			used += " of " + most
		}
		return used
	}
	taken := now.Sub(r.OpenedAt).Round(time.Second).String()
	head := []string{word(r), r.Engine, of(taken, run.Lasting(r.Limits.Total), r.Limits.Total > 0)}
	if r.Tokens > 0 || r.Budget.Tokens > 0 {
		head = append(head, of(fmt.Sprint(r.Tokens), fmt.Sprint(r.Budget.Tokens), r.Budget.Tokens > 0)+" tokens")
	}
	if r.CostUSD > 0 || r.Budget.USD > 0 {
		head = append(head, of(fmt.Sprintf("$%.2f", r.CostUSD), fmt.Sprintf("$%.2f", r.Budget.USD), r.Budget.USD > 0))
	}
	return strings.Join(head, " · ")
}

// renderProgress is a run that goes on in a few lines: its status and its last actions.
func renderProgress(r run.Run, events []run.Numbered, now time.Time) string {
	var actions []string
	at := map[string]int{}
	for _, n := range events {
		var e engine.Event
		if wire.UnmarshalPart(n.Event, &e) != nil || e.Type != engine.Acted || e.Action.Kind == engine.Turn {
			continue
		}
		if i, known := at[e.Action.ID]; known {
			actions[i] = actionLine(e)
			continue
		}
		at[e.Action.ID] = len(actions)
		actions = append(actions, actionLine(e))
	}
	lines := append([]string{headLine(r, now)}, actions[max(0, len(actions)-shownActions):]...)
	return show.Lines(strings.Join(lines, "\n"))
}

// actionLine is one line about an action.
func actionLine(e engine.Event) string {
	mark := "▸"
	switch {
	case e.OK != nil && *e.OK:
		mark = "✓"
	case e.OK != nil:
		mark = "✗"
	}
	title, _, _ := strings.Cut(e.Action.Title, "\n")
	return mark + " " + cut(title, maxTitle)
}

// cut is a text of at most n characters and an ellipsis.
func cut(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return text
}
