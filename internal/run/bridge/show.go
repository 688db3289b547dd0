package bridge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

const (
	// cursor is the name of the bridge's place in the ledger, which is stored.
	cursor = "run-telegram"
	// shownActions is how many of the last actions are shown.
	shownActions = 5
	maxTitle     = 200
	// maxAnswer leaves room for the rest in a message.
	maxAnswer = 1500
)

// Run keeps the messages of runs up to date by following the ledger, on one node at a
// time, until ctx ends.
func (b *Bridge) Run(ctx context.Context) error {
	if err := b.beginCursor(ctx); err != nil {
		if ctx.Err() != nil { // the server stops before it has begun
			return nil //nolint:nilerr // which is no failure
		}
		return err
	}
	return b.ledger.Consume(ctx, cursor, isOfRun, b.follow)
}

// beginCursor sets the cursor to now, unless it is set: a bridge that is switched on
// does not show old runs.
func (b *Bridge) beginCursor(ctx context.Context) error {
	head, err := b.ledger.Head(ctx)
	if err != nil {
		return err
	}
	return b.ledger.BeginAt(ctx, cursor, head)
}

// isOfRun selects the entries about runs, of this and of other protocols.
func isOfRun(kind string) bool { return strings.HasPrefix(kind, "run.") }

// follow shows the runs in a page of entries, each once, however much has happened to
// it. Progress that Telegram does not take is dropped, since the next edit replaces it;
// the end of a run is tried again until Telegram takes it.
func (b *Bridge) follow(ctx context.Context, entries []ledger.Entry) error {
	touched := map[string]bool{} // and whether it has ended
	for _, e := range entries {
		if strings.HasPrefix(e.Subject, "run_") {
			touched[e.Subject] = touched[e.Subject] || e.Kind == "run.completed"
		}
	}
	shown := false
	// Get runs without a scope: the bridge serves the chat that asked, whose operator was
	// checked then.
	for id, ended := range touched {
		r, err := b.Runs.Get(ctx, id)
		if fault.Is(err, fault.NotFound) {
			continue // a run of another protocol
		}
		if err != nil {
			return err
		}
		chat, message, ok := readOrigin(r.Origin)
		if !ok {
			continue
		}
		shown = true
		if err := b.show(ctx, r, chat, message); err != nil {
			b.Log.Warn("cannot show a run in Telegram", "why", err.Error())
			if ended {
				return err
			}
		}
	}
	if shown { // Telegram takes a few changes a second, and people do not read faster
		select {
		case <-time.After(b.Every):
		case <-ctx.Done():
		}
	}
	return nil
}

// show replaces the message of a run by the run as it is now. The button goes with the
// end.
func (b *Bridge) show(ctx context.Context, r run.Run, chat int64, message int) error {
	events, err := b.Runs.Events(ctx, r.ID, max(0, r.Events-4*shownActions))
	if err != nil {
		return err
	}
	p := telegram.Post{Chat: chat, ID: message, Text: show.Lines(render(r, events, time.Now()))}
	if r.Status == run.Running {
		p.Button, p.Data = "Cancel", prefix+r.ID
	}
	_, err = b.Bot.Write(ctx, p)
	return err
}

// render is a run in a few lines: its status, its last actions while it goes on, and in
// the end its answer and how to resume. It is plain text, so nothing that an agent
// writes is formatted.
func render(r run.Run, events []run.Numbered, now time.Time) string {
	word, until := "working", now
	if r.EndedAt != nil {
		word, until = r.Outcome(), *r.EndedAt
	}
	head := []string{word, r.Engine, until.Sub(r.OpenedAt).Round(time.Second).String()}
	if r.Tokens > 0 {
		head = append(head, fmt.Sprintf("%d tokens", r.Tokens))
	}
	if r.CostUSD > 0 {
		head = append(head, fmt.Sprintf("$%.2f", r.CostUSD))
	}
	lines := []string{strings.Join(head, " · ")}
	var actions []string
	at := map[string]int{}
	for _, n := range events {
		var e engine.Event
		if wire.UnmarshalPart(n.Event, &e) != nil {
			continue
		}
		// A run that ended after it was read goes on here; its end is an entry of its own, and shown then.
		if e.Type == engine.Completed && r.Status != run.Running {
			lines = append(lines, outcomeLines(e)...)
		}
		if e.Type != engine.Acted || e.Action.Kind == engine.Turn || r.Status != run.Running {
			continue
		}
		if i, known := at[e.Action.ID]; known {
			actions[i] = actionLine(e)
			continue
		}
		at[e.Action.ID] = len(actions)
		actions = append(actions, actionLine(e))
	}
	lines = append(lines, actions[max(0, len(actions)-shownActions):]...)
	if r.Status != run.Running && r.Line != "" {
		lines = append(lines, "", "↩️ "+r.Line)
	}
	return strings.Join(lines, "\n")
}

// outcomeLines is the end of a run: its error, then its answer.
func outcomeLines(e engine.Event) (lines []string) {
	if e.Error != "" {
		lines = append(lines, "", cut(e.Error, maxAnswer/2))
	}
	if e.Answer != "" {
		lines = append(lines, "", cut(e.Answer, maxAnswer))
	}
	return lines
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
