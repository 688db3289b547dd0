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

	"signalbox/internal/alarm"
	"signalbox/internal/behalf"
	"signalbox/internal/counter"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/mail"
	"signalbox/internal/notify"
	"signalbox/internal/oidc"
	"signalbox/internal/passkey"
	"signalbox/internal/price"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/run"
	"signalbox/internal/store"
	"signalbox/internal/task"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Options are the services whose state the dashboard shows, and what it needs to know of the
// server. All of them are used for reading; actions call the same methods as the API does.
type Options struct {
	Roster    *roster.Roster
	Book      *rulebook.Book
	Behalf    *behalf.Index
	Handoffs  *handoff.Handoffs
	Gates     *gate.Gates
	Passkeys  *passkey.Keys
	Alarms    *alarm.Alarms
	Counters  *counter.Counters
	Outbox    *deliver.Outbox
	Notifier  *notify.Notifier
	Protocols protocol.List
	Prices    *price.Prices
	Harness   *harness.Harness
	Mail      *mail.Mail
	Tasks     *task.Tasks
	Runs      *run.Runs

	Now func() time.Time
	Log *slog.Logger
	// Key is the server's secret, from which login codes and password verifiers follow.
	Key     []byte // of this server, from which secrets follow
	BaseURL string // where people reach the server
	OIDC    OIDC   // nobody signs in with it when it has no issuer
	// Check refuses a request that was sent to another name than this server's; nil for none.
	Check func(*http.Request) error
	// Settings are what is in force, for the page that shows it; nil for none.
	Settings func() []Setting
}

// Setting is a configuration key as it is in force. The server leaves secrets out.
type Setting struct{ Key, Value, Source, Meaning string }

// Web is the dashboard. It is safe for concurrent use. Sessions are in the database; in memory are
// only what was parsed at start, the open event streams, and small caches.
type Web struct {
	Options
	db     *store.DB
	ledger *ledger.Ledger
	// pages are the parsed templates by name, assets the static files by path.
	pages    map[string]*template.Template // by name
	assets   map[string]asset              // by the path they are served under
	css, js  string                        // those paths
	tries    *tries
	sessions sessions
	hub      hub
	queues   queues
	provider *oidc.Provider
	sameSite http.CrossOriginProtection
}

// New makes the dashboard. The ledger must have Projection. Pages are up to date when they are
// loaded; they follow changes only while Run runs. Templates are parsed here, so a broken one
// fails the start and not a page.
func New(db *store.DB, l *ledger.Ledger, o Options) (*Web, error) {
	w := &Web{
		Options: o, db: db, ledger: l, assets: map[string]asset{}, tries: newTries(),
		hub: hub{watchers: map[*watcher]struct{}{}}, queues: queues{known: map[string]queue{}},
		provider: oidc.NewProvider(o.OIDC.Issuer, o.Now, o.Log),
	}
	var err error
	if w.css, err = w.addAsset("relay.css", "text/css; charset=utf-8"); err != nil {
		return nil, err
	}
	if w.js, err = w.addAsset("relay.js", "text/javascript; charset=utf-8"); err != nil {
		return nil, err
	}
	// The others are linked by their plain names.
	for _, script := range []string{"verify.js", "passkey.js"} {
		if _, err = w.addAsset(script, "text/javascript; charset=utf-8"); err != nil {
			return nil, err
		}
	}
	if _, err = w.addAsset("icon.svg", "image/svg+xml"); err != nil {
		return nil, err
	}
	w.pages, err = w.parse()
	return w, err
}

// Run follows the ledger for the open pages, until ctx ends.
func (w *Web) Run(ctx context.Context) error { return w.hub.run(ctx, w.ledger) }

// parse parses every page together with the frame and the parts that pages share. Each page gets a
// copy of the shared templates, since all of them define "main".
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
		makeVisible(pages[name])
	}
	return pages, nil
}

// asset is a file that is served as it is. Its path contains a hash of its content, so browsers
// may keep it for ever.
type asset struct {
	content []byte
	media   string
}

// addAsset adds a file and returns its path. It is served under its plain name as well, by which
// templates link scripts that few pages need, and the icon.
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

// serveAsset serves a file. It needs no session: the login page looks like the others.
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
