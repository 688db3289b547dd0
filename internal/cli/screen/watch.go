package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/show"
)

// NewWatch is `gates watch`.
func NewWatch(a *command.App) *command.Command {
	return &command.Command{
		Use:   "watch",
		Short: "The inbox on the whole terminal: see gates arrive, and decide them with a key", Args: command.NoArguments(),
		Long: "The inbox on the whole terminal. It updates itself.\n\n" + watchKeys,
		RunE: func(c *command.Command, _ []string) error {
			cl, err := a.Client()
			if err != nil {
				return err
			}
			w := &watch{ctx: c.Context(), api: cl}
			return present(c.Context(), a, cl, w, "signalbox gates ls", "gate.")
		},
	}
}

// watchKeys is shown by the key "?" and in the help of the command, so the two cannot
// differ.
const watchKeys = `  j k    next, previous      g G    first, last
  a      approve             r      reject, with a reason
  /      search              esc    leave a field, clear the search
  space  scroll the gate     ?      these keys
  q      leave`

// watch is the inbox. The cursor is the id of a gate, not a row: gates come and go while
// somebody is reading, and a vote must never hit a gate that has just moved under the
// cursor.
type watch struct {
	ctx    context.Context //nolint:containedctx // a screen lives as long as its command
	api    *api.Client
	height int // when it was last drawn

	gates  []gate.Gate
	shown  []int  // those that the search lets through
	at     string // the id of the gate under the cursor
	scroll int
	waits  int64 // how many wait, of which gates are the first

	open   reading // what is on the screen
	asking string  // approve, confirm, reject or search while somebody types
	steps  []step  // what has to be confirmed before an approval
	about  string  // the id of the gate that is being approved or rejected
	seen   string  // its digest as it was on the screen
	unseen int64   // how many bytes of it the gate does not show
	typed  string
	search string
	help   bool
	note   string // what happened last
	away   string // why the server cannot be reached
	ready  bool
}

// confirm is what is asked before the approval of something that was not shown.
const confirm = "confirm"

// step is something that was not shown. Who approves nonetheless types how much it is.
type step struct{ number, text string }

// gatesRead is the result of reading the inbox.
type gatesRead struct {
	page  gate.GatePage
	waits int64
	err   error
}

// voted is the result of a vote.
type voted struct {
	gate gate.Gate
	verb string
	err  error
}

// read reads the pending gates, at most 500, and counts them all. It runs beside the screen and touches no
// field but api and ctx.
func (w *watch) read() any {
	var r gatesRead
	r.err = w.api.Call(w.ctx, api.Get("/ops/gates?status=pending&limit=500"), &r.page)
	if r.waits = int64(len(r.page.Gates)); r.err == nil && r.page.Next != "" {
		var counted counter.Report
		r.err = w.api.Call(w.ctx, api.Get("/ops/counters?by=day"), &counted)
		r.waits = max(r.waits, counted.Total.Gates.Waiting)
	}
	return r
}

// take handles an event; see viewer. After a vote the inbox is read again at once,
// without waiting for the entry to come through the stream.
func (w *watch) take(event any) call {
	switch e := event.(type) {
	case changed:
		return w.read
	case lost:
		w.away = e.why
	case gatesRead:
		w.refresh(e)
	case voted:
		w.showVote(e)
		return w.read
	case key:
		return w.key(e)
	}
	return nil
}

// refresh takes over what was read. After an error the old gates stay on the screen,
// marked as away.
func (w *watch) refresh(r gatesRead) {
	if r.err != nil {
		w.away = r.err.Error()
		return
	}
	w.away, w.ready, w.gates, w.waits = "", true, r.page.Gates, r.waits
	w.filter()
}

// filter applies the search: every word has to occur somewhere in the gate. The cursor
// stays on its gate; if that is gone, it stays at its place in the list.
func (w *watch) filter() {
	place := w.place()
	w.shown = w.shown[:0]
	for i, g := range w.gates {
		all := strings.ToLower(strings.Join([]string{
			g.ID, g.Title, g.Summary, g.ProposedAction, g.Agent, g.Project,
			g.Origin.Protocol, g.Rule,
		}, "\n"))
		if !slices.ContainsFunc(strings.Fields(strings.ToLower(w.search)), func(word string) bool {
			return !strings.Contains(all, word)
		}) {
			w.shown = append(w.shown, i)
		}
	}
	if w.current() == nil {
		w.move(place)
	}
}

// place is the row of the cursor in the list, 0 if its gate is not shown.
func (w *watch) place() int {
	for n, i := range w.shown {
		if i < len(w.gates) && w.gates[i].ID == w.at {
			return n
		}
	}
	return 0
}

// move puts the cursor on a row, or the nearest one that exists, and scrolls its gate to
// the top.
func (w *watch) move(to int) {
	w.scroll, w.at = 0, ""
	if len(w.shown) > 0 {
		w.at = w.gates[w.shown[min(max(to, 0), len(w.shown)-1)]].ID
	}
}

// current is the gate under the cursor, or nil if the list is empty.
func (w *watch) current() *gate.Gate {
	for _, i := range w.shown {
		if w.gates[i].ID == w.at {
			return &w.gates[i]
		}
	}
	return nil
}

// key handles a key. Ctrl-C leaves in every state. While a line is typed, keys are text
// and no commands.
func (w *watch) key(k key) call {
	switch {
	case k.name == "ctrl+c":
		return quit
	case w.asking != "":
		return w.typing(k)
	case w.help:
		w.help = false
		return nil
	}
	w.note = ""
	switch k.name {
	case "q":
		return quit
	case "j", "down":
		w.move(w.place() + 1)
	case "k", "up":
		w.move(w.place() - 1)
	case "g", "home":
		w.move(0)
	case "G", "end":
		w.move(len(w.shown) - 1)
	case "space", "pgdown":
		w.scroll += max(1, w.height/2)
	case "pgup", "b":
		w.scroll = max(0, w.scroll-w.height/2)
	case "?":
		w.help = true
	// The old search is there to be edited; esc clears it.
	case "/":
		w.asking, w.typed = "search", w.search
	case "esc":
		w.search = ""
		w.filter()
	case "a", "r":
		if g := w.current(); g != nil {
			w.about, w.seen, w.unseen, w.typed = g.ID, g.Digest, g.Unseen(), ""
			w.asking = api.Reject
			if k.name == "a" {
				w.approve()
			}
		}
	}
	return nil
}

// approve begins an approval. What was not shown is confirmed first: rows that nobody scrolled to, and what
// the gate itself does not show.
func (w *watch) approve() {
	w.asking, w.steps = api.Approve, nil
	if w.open.digest != w.seen { // it has changed since it was drawn
		w.asking = ""
		return
	}
	if n := w.open.below(); n > 0 {
		w.steps = append(w.steps, step{fmt.Sprint(n), fmt.Sprintf("%d lines below were not shown (space scrolls)", n)})
	}
	if w.unseen > 0 {
		w.steps = append(w.steps, step{fmt.Sprint(w.unseen), fmt.Sprintf("The gate does not show %d bytes", w.unseen)})
	}
	if len(w.steps) > 0 {
		w.asking = confirm
	}
}

// typing handles a key while a line is typed. A search is applied with every key.
func (w *watch) typing(k key) call {
	switch k.name {
	case "esc":
		w.asking = ""
	case "backspace":
		if runes := []rune(w.typed); len(runes) > 0 {
			w.typed = string(runes[:len(runes)-1])
		}
	case "enter":
		return w.answer()
	default:
		w.typed += k.text
	}
	if w.asking == "search" {
		w.search = w.typed
		w.filter()
	}
	return nil
}

// answer ends the typed line. A rejection needs a reason, which is the only thing that
// the agent learns. The vote is for the gate that was under the cursor when the key was pressed, as it
// was then: while somebody types, gates come and go, and the cursor with them.
func (w *watch) answer() call {
	verb, id, d := w.asking, w.about, gate.Decision{Note: strings.TrimSpace(w.typed), Digest: w.seen}
	switch {
	case verb == "search":
		w.asking = ""
		return nil
	case verb == confirm:
		w.confirmStep(d.Note)
		return nil
	case verb == api.Approve:
		d.Unseen = w.unseen
	// Stay in the line, so that the reason can be typed right away.
	case verb == api.Reject && d.Note == "":
		w.note = warned.of("Say why: the agent reads the reason, and does better next time.")
		return nil
	}
	w.asking = ""
	return func() any { // later and beside the screen
		v := voted{verb: verb}
		v.err = w.api.Call(w.ctx, api.Decide(id, verb, d), &v.gate)
		return v
	}
}

// confirmStep takes the number that was typed, and goes on to the next step or to the approval.
func (w *watch) confirmStep(number string) {
	if number != w.steps[0].number {
		w.asking, w.note = "", warned.of("Not approved.")
		return
	}
	w.typed, w.steps = "", w.steps[1:]
	if len(w.steps) == 0 {
		w.asking = api.Approve
	}
}

// showVote shows the result of a vote. A gate that somebody else decided first is no error.
func (w *watch) showVote(v voted) {
	switch {
	case fault.Is(v.err, fault.AlreadyResolved), fault.Is(v.err, fault.NotWhatWasShown),
		fault.Is(v.err, fault.NotAllShown), fault.Is(v.err, fault.PresenceRequired):
		w.note = warned.of(show.Text(fault.From(v.err).Message))
	case v.err != nil:
		w.note = danger.of(show.Text(fault.From(v.err).Message))
	case v.gate.Status == gate.Pending:
		w.note = fmt.Sprintf("Your vote counts; %d of %d so far.", gate.People(v.gate.Votes, true), v.gate.Quorum)
	default:
		w.note = good.of(output.Sentence(string(v.gate.Status))+": ") + show.Text(v.gate.Title)
	}
}
