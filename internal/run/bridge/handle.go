package bridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/show"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

const (
	// gap is the shortest time between two looks for messages, however much is recorded.
	gap = 50 * time.Millisecond
	// retryPause is between two tries of what failed for a reason of ours, and patience how long it is tried.
	retryPause = 2 * time.Second
	patience   = 10 * time.Minute
	// sessionTime is how long a message waits for the run before it to tell its session: longer than a CLI may take to
	// start.
	sessionTime = 2 * time.Minute
	// maxListed is how many runs /runs shows, and among how many /stop looks for one.
	maxListed = 10
)

var (
	// errDone says that a message has been answered already.
	errDone = errors.New("the message is answered")
	// errWaits says that a message has to wait for the run before it, whose session is not known yet.
	errWaits = errors.New("the run before has not told its session")
)

// message is a heard message that is being handled.
type message struct {
	heard

	seq       int64
	at        time.Time
	chat      string
	workspace string
	who       roster.Identity
}

// handleAll handles what was heard, until ctx ends.
func (b *Bridge) handleAll(ctx context.Context) error {
	for {
		news, pause := b.core.Ledger.News(), retryPause
		if err := b.handleOpen(ctx); err != nil && ctx.Err() == nil {
			b.core.Log.Warn("cannot handle a message of Telegram; will retry", "error", err.Error())
			news = nil
		}
		if ledger.Pause(ctx, nil, gap) || ledger.Pause(ctx, news, pause) {
			return nil
		}
	}
}

// handleOpen handles the messages that are not answered, in their order within each chat. One that cannot be handled
// now holds up its chat and no other.
func (b *Bridge) handleOpen(ctx context.Context) (failed error) {
	seqs, err := store.All(b.core.DB.Reading(ctx), func(scan store.Scan) (seq int64, err error) {
		err = scan(&seq)
		return seq, err
	}, "SELECT seq FROM chat_heard WHERE done = 0 ORDER BY seq LIMIT 100")
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, seq := range seqs {
		e, err := b.core.Ledger.Entry(ctx, seq)
		if err != nil {
			return err
		}
		if held[e.Subject] {
			continue
		}
		body, err := ledger.Read[heard](&e)
		if err != nil {
			return err
		}
		m := message{heard: *body, seq: seq, at: e.At, chat: e.Subject, workspace: e.Workspace}
		switch err := b.handle(ctx, m); {
		case err == nil || errors.Is(err, errDone):
		case errors.Is(err, errWaits):
			held[m.chat] = true
		default:
			held[m.chat], failed = true, err
		}
	}
	return failed
}

// handle does what a message asks for, and answers it. What the person can put right is said; what only we can is an
// error, and tried again for a while.
func (b *Bridge) handle(ctx context.Context, m message) error {
	who, refusal, err := b.findOperator(ctx, m.Contact)
	if err == nil && refusal != "" {
		return b.answer(ctx, m, refusal, false)
	}
	if err == nil {
		// The person's workspace is the wall for everything below, as for a call over HTTP.
		m.who, m.workspace = who, workspaceOf(who)
		err = b.obey(wire.WithScope(ctx, who.Workspace), m)
	}
	switch known := (*fault.Error)(nil); {
	case err == nil, errors.Is(err, errDone), ctx.Err() != nil:
		return err
	case errors.Is(err, errWaits) && b.core.Now().Sub(m.at) > sessionTime:
		return b.answer(ctx, m, "The run before has not told its session, so nothing can go on with it. "+
			"/new begins another session, /stop ends that run.", false)
	case errors.Is(err, errWaits):
		return err
	case errors.As(err, &known) && known.Code.Status() < http.StatusInternalServerError:
		return b.answer(ctx, m, known.Message, false)
	case b.core.Now().Sub(m.at) > patience:
		return b.answer(ctx, m, "Your message could not be handled: "+fault.From(err).Message, false)
	default:
		return err
	}
}

// obey does what a message asks for.
func (b *Bridge) obey(ctx context.Context, m message) error {
	o, _ := parseOrder(m.Text, b.folders())
	switch o.command {
	case commandStop:
		return b.obeyStop(ctx, m)
	case commandRuns:
		return b.obeyRuns(ctx, m)
	case commandFile:
		return b.sendFile(ctx, m, o.prompt)
	case commandHelp:
		return b.answer(ctx, m, help, false)
	case commandNew:
		if o.prompt == "" && o.engine == "" && o.folder == "" && o.mode == "" && m.File == nil {
			return b.answer(ctx, m, "The next message begins a new session.", true)
		}
	}
	return b.obeyStart(ctx, m, o)
}

// help is the answer to /help.
const help = `Write what the agent is to do. The next message goes on with the same session.

/new begins a new session, /stop stops the run, /runs lists the runs of this chat, /file PATH sends a file.
/claude, /codex and so on choose the CLI, and the name of a folder where it works: /claude /repo fix the failing test.
/read, /edit, /full or /supervised say what the agent may do.
A file or a picture that you send is put into the folder, and named in the prompt if you write one with it.`

// answer answers a message that starts no run. fresh says that the next one begins a session.
func (b *Bridge) answer(ctx context.Context, m message, text string, fresh bool, posts ...post) error {
	return b.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		if err := m.checkOpen(tx); err != nil {
			return err
		}
		if text != "" {
			posts = append(texts(text), posts...)
		}
		for i := range posts {
			posts[i].ReplyTo = m.Message
			if _, err := b.queue(tx, m.chat, m.workspace, "", posts[i]); err != nil {
				return err
			}
		}
		tx.Append(ledger.Event{
			Workspace: m.workspace, Kind: kindAnswered, Actor: "system", Subject: m.chat,
			Body: answered{Heard: m.seq, Message: m.Message, Fresh: fresh},
		})
		return nil
	})
}

// checkOpen refuses to answer a message twice.
func (m *message) checkOpen(tx *ledger.Tx) error {
	var done int64
	err := tx.QueryRow("SELECT done FROM chat_heard WHERE chat = $1 AND message = $2", []any{m.chat, m.Message}, &done)
	if err == nil && done != 0 {
		return errDone
	}
	return err
}

// obeyStart starts a run, or goes on with a session.
func (b *Bridge) obeyStart(ctx context.Context, m message, o order) error {
	r, err := b.request(ctx, m, o)
	if err != nil {
		return err
	}
	if m.File != nil {
		path, err := b.receive(ctx, m, r.Dir)
		switch {
		case err != nil:
			return err
		case o.prompt == "":
			return b.answer(ctx, m, "Saved as "+path+". Say what to do with it.", false)
		}
		r.Prompt += "\n\nA file came with this message: " + path
	}
	if o.prompt == "" {
		return fault.New(fault.InvalidPayload, "Say what the agent is to do, such as /%s fix the failing test", r.Engine)
	}
	r, says := b.runs.Limited(ctx, m.who, r)
	r.With = func(tx *ledger.Tx, id string) error {
		if err := m.checkOpen(tx); err != nil {
			return err
		}
		if r.Resume == "" && says != "" { // the first answer of a session; the next message is edited, and this one stays
			first := post{Text: fmt.Sprintf("A new session of %s in %s. %s", r.Engine, show.Text(r.Dir), says), ReplyTo: m.Message}
			if _, err := b.queue(tx, m.chat, m.workspace, id, first); err != nil {
				return err
			}
		}
		delivery, err := b.queue(tx, m.chat, m.workspace, id, post{Text: "starting · " + r.Engine, ReplyTo: m.Message, Stop: id})
		tx.Append(ledger.Event{
			Workspace: m.workspace, Kind: kindAnswered, Actor: "system", Subject: m.chat, Trace: id,
			Body: answered{Heard: m.seq, Message: m.Message, Run: id, Delivery: delivery},
		})
		return err
	}
	_, err = b.runs.Open(ctx, m.who, r)
	return err // a run that was opened and could not be started is told as one that failed
}

// request is the run that a message asks for: the engine, the folder and the session that it names, else those of the
// message that it answers, else those of its chat.
func (b *Bridge) request(ctx context.Context, m message, o order) (run.Request, error) {
	r := run.Request{
		Engine: o.engine, Prompt: o.prompt, Dir: o.folder, Mode: o.mode, Folders: b.folders(),
		Origin: fmt.Sprintf("%s:%d", m.chat, m.Message),
	}
	last, err := b.before(ctx, m, o.command == commandNew)
	if err != nil {
		return r, err
	}
	// A resume line in the message itself beats everything, and one in what it answers is for messages that we do not
	// know.
	session, named := engine.FindResume(m.Text)
	if !named && last.ID == "" && o.command != commandNew {
		session, named = engine.FindResume(m.ReplyText)
	}
	if named {
		r.Engine, r.Resume = session.Engine, session.Value
		if last, err := b.runs.Latest(ctx, session); err == nil && r.Dir == "" {
			r.Dir = last.Dir
		}
	} else if last.ID != "" {
		err = goOn(&r, last)
	}
	if err != nil {
		return r, err
	}
	if r.Engine == "" && b.Engine != nil {
		r.Engine = b.Engine()
	}
	if r.Engine == "" {
		return r, fault.New(fault.InvalidRequest, "No agent CLI was found on the server's PATH. Install one of %s, or name its program: "+
			"`signalbox config set runs.claude.command /opt/claude/bin/claude`.", strings.Join(engine.Names(), ", "))
	}
	if folders := b.folders(); r.Dir == "" && len(folders) > 0 {
		r.Dir = folders[0]
	}
	if r.Dir != "" && r.Dir == b.Home {
		if err := os.MkdirAll(b.Home, 0o700); err != nil {
			return r, fault.Wrap(err, fault.InvalidRequest, "The folder for runs cannot be made: set runs.folders.")
		}
	}
	return r, nil
}

// goOn lets a run go on with the session of another, unless the message names another engine or folder.
func goOn(r *run.Request, last run.Run) error {
	sameDir := r.Dir == "" || r.Dir == last.Dir
	if resolved, err := filepath.EvalSymlinks(r.Dir); err == nil && resolved == last.Dir {
		sameDir = true
	}
	if r.Dir == "" {
		r.Dir = last.Dir
	}
	same := sameDir && (r.Engine == "" || r.Engine == last.Engine)
	if r.Engine == "" {
		r.Engine = last.Engine
	}
	switch {
	case !same:
	case last.Resume != "":
		r.Resume = last.Resume
	case last.Status == run.Running:
		return errWaits
	}
	return nil
}

// before is the run that a message goes on from: that of the message of ours that it answers, else the last one of its
// chat. Its zero value is none. A new session has engine and folder of the last one.
func (b *Bridge) before(ctx context.Context, m message, fresh bool) (run.Run, error) {
	id, err := b.answersTo(ctx, m)
	if err != nil {
		return run.Run{}, err
	}
	if id == "" {
		var begins int64
		err := b.core.DB.QueryRow(ctx, "SELECT run, fresh FROM chat_session WHERE chat = $1 AND workspace = $2",
			[]any{m.chat, m.workspace}, &id, &begins)
		if errors.Is(err, sql.ErrNoRows) {
			return run.Run{}, nil
		}
		if err != nil {
			return run.Run{}, err
		}
		fresh = fresh || begins != 0
	}
	last, err := b.runs.Get(ctx, id)
	if fault.Is(err, fault.NotFound) { // of another workspace
		return run.Run{}, nil
	}
	if fresh {
		last.Resume, last.Status = "", run.Done
	}
	return last, err
}

// answersTo is the run that the message is about which this one answers, "" for none.
func (b *Bridge) answersTo(ctx context.Context, m message) (id string, err error) {
	if m.ReplyTo == 0 {
		return "", nil
	}
	delivery, err := b.core.Outbox.ByReference(ctx, m.chat, reference(m.chat, m.ReplyTo))
	if err != nil || delivery == "" {
		return "", err
	}
	err = b.core.DB.QueryRow(ctx, "SELECT run FROM chat_post WHERE delivery = $1", []any{delivery}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// chatRuns are the newest runs of a chat, as far as the person may see them.
func (b *Bridge) chatRuns(ctx context.Context, m message) ([]run.Run, error) {
	ids, err := store.All(b.core.DB.Reading(ctx), store.Text,
		"SELECT run FROM chat_run WHERE chat = $1 AND workspace = $2 ORDER BY run DESC LIMIT $3", m.chat, m.workspace, maxListed)
	if err != nil {
		return nil, err
	}
	var all []run.Run
	for _, id := range ids {
		r, err := b.runs.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// obeyStop stops the run whose message is answered, else the last one of the chat that is running.
func (b *Bridge) obeyStop(ctx context.Context, m message) error {
	id, err := b.answersTo(ctx, m)
	if err != nil {
		return err
	}
	if id == "" {
		all, err := b.chatRuns(ctx, m)
		if err != nil {
			return err
		}
		for _, r := range all {
			if r.Status == run.Running && id == "" {
				id = r.ID
			}
		}
	}
	if id == "" {
		return b.answer(ctx, m, "No run of this chat is running.", false)
	}
	says, err := b.stop(ctx, m.who, id)
	if err != nil {
		return err
	}
	return b.answer(ctx, m, says, false)
}

// obeyRuns lists the newest runs of the chat.
func (b *Bridge) obeyRuns(ctx context.Context, m message) error {
	all, err := b.chatRuns(ctx, m)
	if err != nil {
		return err
	}
	var lines []string
	for _, r := range all {
		prompt, _, _ := strings.Cut(r.Prompt, "\n")
		lines = append(lines, show.Text(fmt.Sprintf("%s · %s\n%s", headLine(r, b.core.Now()), r.ID, cut(prompt, maxTitle))))
	}
	if len(lines) == 0 {
		lines = []string{"This chat has no runs yet. Write what an agent is to do."}
	}
	return b.answer(ctx, m, strings.Join(lines, "\n\n"), false)
}
