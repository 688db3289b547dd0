package web

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"time"

	"signalbox/internal/counter"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/mail"
	"signalbox/internal/notify"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/run"
	"signalbox/internal/signal"
	"signalbox/internal/store"
	"signalbox/internal/task"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Options say what the dashboard shows.
type Options struct {
	Roster    *roster.Roster
	Book      *rulebook.Book
	Gates     *gate.Gates
	Counters  *counter.Counters
	Outbox    *deliver.Outbox
	Notifier  *notify.Notifier
	Protocols protocol.List
	Signals   *signal.Signals
	Harness   *harness.Harness
	Mail      *mail.Mail
	Tasks     *task.Tasks
	Runs      *run.Runs

	Now     func() time.Time
	Log     *slog.Logger
	Key     []byte // of this server, from which secrets follow
	BaseURL string // where people reach the server
	OIDC    OIDC   // nobody signs in with it when it has no issuer
	// Settings are what is in force, for the page that shows it.
	Settings func() []Setting
}

// Setting is a configuration key as it is in force. Secrets are not in it.
type Setting struct{ Key, Value, Source, Meaning string }

// Web is the dashboard.
type Web struct {
	Options
	db       *store.DB
	ledger   *ledger.Ledger
	pages    map[string]*template.Template // by name
	assets   map[string]asset              // by the path they are served under
	css, js  string                        // those paths
	tries    *tries
	hub      hub
	queues   queues
	provider provider
	sameSite http.CrossOriginProtection
}

// New makes the dashboard over a ledger that has Projection. Run must be running for its
// pages to be live.
func New(db *store.DB, l *ledger.Ledger, o Options) (*Web, error) {
	w := &Web{
		Options: o, db: db, ledger: l, assets: map[string]asset{}, tries: newTries(),
		hub: hub{watchers: map[*watcher]struct{}{}}, queues: queues{known: map[string]queue{}},
	}
	var err error
	if w.css, err = w.addAsset("relay.css", "text/css; charset=utf-8"); err != nil {
		return nil, err
	}
	if w.js, err = w.addAsset("relay.js", "text/javascript; charset=utf-8"); err != nil {
		return nil, err
	}
	if _, err = w.addAsset("verify.js", "text/javascript; charset=utf-8"); err != nil {
		return nil, err
	}
	if _, err = w.addAsset("icon.svg", "image/svg+xml"); err != nil {
		return nil, err
	}
	w.pages, err = w.parse()
	return w, err
}

// Run follows the ledger for the pages that are open, until ctx ends.
func (w *Web) Run(ctx context.Context) error { return w.hub.run(ctx, w.ledger) }

// parse reads every page together with the frame and the parts that pages share.
func (w *Web) parse() (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(w.functions()).ParseFS(templateFiles, "templates/layout.html",
		"templates/parts.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, file := range files {
		name := path.Base(file[:len(file)-len(".html")])
		if name == "layout" || name == "parts" {
			continue
		}
		own, err := shared.Clone()
		if err != nil {
			return nil, err
		}
		if pages[name], err = own.ParseFS(templateFiles, file); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// asset is a file that is served as it is, for ever: its path changes with its content.
type asset struct {
	content []byte
	media   string
}

func (w *Web) addAsset(name, media string) (at string, err error) {
	content, err := staticFiles.ReadFile("static/" + name)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	at = "/ui/static/" + hex.EncodeToString(sum[:6]) + "-" + name
	w.assets[at] = asset{content, media}
	w.assets["/ui/static/"+name] = w.assets[at]
	return at, nil
}

func (w *Web) serveAsset(out http.ResponseWriter, r *http.Request) {
	found, ok := w.assets[r.URL.Path]
	if !ok {
		http.NotFound(out, r)
		return
	}
	out.Header().Set("Content-Type", found.media)
	out.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = out.Write(found.content)
}
