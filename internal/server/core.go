package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/notify"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/run"
	"signalbox/internal/run/bridge"
	"signalbox/internal/signal"
	"signalbox/internal/store"
	"signalbox/internal/task"
	"signalbox/internal/web"
	"signalbox/internal/wire"
)

// Migrations are the tables of every package, in the order of the staircase.
func Migrations() []store.Migrations {
	return []store.Migrations{
		ledger.Migrations,
		clock.Migrations,
		roster.Migrations,
		rulebook.Migrations,
		gate.Migrations,
		counter.Migrations,
		deliver.Migrations,
		notify.Migrations,
		signal.Migrations,
		proxy.Migrations,
		harness.Migrations,
		mail.Migrations,
		task.Migrations,
		run.Migrations,
		web.Migrations,
	}
}

// Projections are the state of every package.
func Projections() []ledger.Projection {
	return []ledger.Projection{
		clock.Projection(),
		roster.Projection(),
		rulebook.Projection(),
		gate.Projection(),
		counter.Projection(),
		deliver.Projection(),
		notify.Projection(),
		signal.Projection(),
		proxy.Projection(),
		harness.Projection(),
		mail.Projection(),
		task.Projection(),
		run.Projection(),
		web.Projection(),
	}
}

// decisionReaders find the decisions, and what rules count, in the entries of every
// package.
func decisionReaders() map[string]rulebook.Reader {
	readers := gate.Readers()
	maps.Copy(readers, signal.Readers())
	maps.Copy(readers, proxy.Readers())
	maps.Copy(readers, harness.Readers())
	maps.Copy(readers, mail.Readers())
	maps.Copy(readers, task.Readers())
	return readers
}

// counterReaders find what the entries of protocols add to the counters.
func counterReaders() map[string]counter.Reader {
	readers := signal.Counters()
	maps.Copy(readers, proxy.Counters())
	return readers
}

// core is what every protocol stands on.
type core struct {
	db       *store.DB
	ledger   *ledger.Ledger
	roster   *roster.Roster
	book     *rulebook.Book
	gates    *gate.Gates
	timers   *clock.Timers
	outbox   *deliver.Outbox
	notifier *notify.Notifier

	signals  *signal.Signals
	proxy    *proxy.Proxy
	harness  *harness.Harness
	mail     *mail.Mail
	tasks    *task.Tasks
	mirror   *task.Mirror
	taskMail *taskMail
	clock    *serverClock
	runs     *run.Runs
	bridge   *bridge.Bridge // nil when runs are not started by messages
	counters *counter.Counters
	web      *web.Web
}

// openCore opens everything over the database. base is where people reach the server.
func openCore(ctx context.Context, c *Config, base string, log *slog.Logger) (*core, error) {
	db, err := OpenStore(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, Migrations()...); err != nil {
		db.Close()
		return nil, err
	}
	now, err := openClock(c)
	if err != nil {
		db.Close()
		return nil, err
	}
	l, err := ledger.Open(ctx, ledger.Options{
		DB: db, Dir: c.Data, Now: now.Now, Origin: origin(c), Projections: Projections(), Retention: c.Retention, Log: log,
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	built := &core{db: db, ledger: l, clock: now}
	built.roster = roster.New(roster.Options{DB: db, Ledger: l, Now: now.Now, Log: log, Provider: c.Provider, PerAgent: c.PerAgent})
	built.book = rulebook.New(db, l, built.roster, now.Now, log, decisionReaders())
	built.gates = gate.New(db, l, built.roster, log)
	key, err := webhookKey(c)
	if err != nil {
		db.Close()
		return nil, err
	}
	if built.outbox, err = deliver.New(deliver.Options{DB: db, Ledger: l, Key: key, Allow: c.allowed(), Log: log}); err != nil {
		db.Close()
		return nil, err
	}
	if err := built.openNotifier(c, key, base, log); err != nil {
		db.Close()
		return nil, err
	}
	built.signals, err = signal.New(signal.Options{
		DB: db, Ledger: l, Book: built.book, Gates: built.gates, Outbox: built.outbox, Roster: built.roster, Now: now.Now, Log: log, Strict: c.StrictSignals,
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	if err := built.openProxy(c, base, log); err != nil {
		db.Close()
		return nil, err
	}
	c.Harness.Version = ReadBuild().Version
	built.harness = harness.New(harness.Options{
		DB: db, Ledger: l, Book: built.book, Gates: built.gates, Roster: built.roster, Now: now.Now, Log: log, Config: c.Harness,
	})
	blobs, err := openBlobs(ctx, c)
	if err != nil {
		db.Close()
		return nil, err
	}
	built.mail = mail.New(mail.Options{
		Blobs: blobs,
		DB:    db, Ledger: l, Book: built.book, Gates: built.gates, Outbox: built.outbox, Roster: built.roster, Now: now.Now, Log: log,
		Domains: amp.Domains{Own: c.Provider, Aliases: c.Aliases}, BaseURL: base, Registration: c.registration(), SignaturesRequired: c.Signatures == "required", Keep: c.keep(), Key: key, Federation: c.Federation,
		Mesh: c.mesh(), Clam: c.clam(),
	})
	built.tasks = task.New(task.Options{
		DB: db, Ledger: l, Book: built.book, Gates: built.gates, Outbox: built.outbox, Roster: built.roster, Now: now.Now, Log: log, Policy: c.tasks(),
		RepoRoots: c.RepoRoots, WatchEvery: watchEvery,
	})
	built.mirror = &task.Mirror{Ledger: l, Dir: c.TaskMirror}
	built.taskMail = &taskMail{l, built.roster, built.mail}
	built.openRuns(c, log)
	handlers := built.gates.Handlers()
	maps.Copy(handlers, built.signals.Handlers())
	maps.Copy(handlers, built.tasks.Handlers())
	built.timers = clock.New(db, l, now.Now, log, handlers)
	built.counters = counter.New(counter.Options{
		DB: db, Ledger: l, Roster: built.roster, Gates: built.gates, Now: now.Now, Log: log, Readers: counterReaders(),
	})
	if err := built.openWeb(c, key, base, log); err != nil {
		db.Close()
		return nil, err
	}
	return built, nil
}

// AttachmentsFolder holds the files of mail.
const AttachmentsFolder = "attachments"

// WebhookKeyFile holds the key from which the secrets of webhook receivers and the codes
// of buttons follow. Nodes of one database have the same.
const WebhookKeyFile = "webhook.key"

func webhookKey(c *Config) ([]byte, error) { return keyFile(c, WebhookKeyFile) }

// keyFile reads a secret of the data folder, and makes it at the first start.
func keyFile(c *Config, name string) ([]byte, error) {
	path := filepath.Join(c.Data, name)
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		text = []byte(rand.Text() + rand.Text() + "\n")
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot read or make %s. Check that this user may read and write the data folder.", path)
	}
	return bytes.TrimSpace(text), nil
}

// run runs what follows the ledger, until ctx ends.
func (c *core) run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return c.roster.Run(ctx) })
	g.Go(func() error { return c.book.Run(ctx) })
	g.Go(func() error { return c.gates.Run(ctx) })
	g.Go(func() error { return c.timers.Run(ctx) })
	g.Go(func() error { return c.outbox.Run(ctx) })
	g.Go(func() error { return c.notifier.Run(ctx) })
	g.Go(func() error { return c.signals.Run(ctx) })
	g.Go(func() error { return c.proxy.Run(ctx) })
	g.Go(func() error { return c.harness.Run(ctx) })
	g.Go(func() error { return c.mail.Run(ctx) })
	g.Go(func() error { return c.tasks.Run(ctx) })
	g.Go(func() error { return c.mirror.Run(ctx) })
	g.Go(func() error { return c.taskMail.run(ctx) })
	g.Go(func() error { return c.runs.Run(ctx) })
	if c.bridge != nil {
		g.Go(func() error { return c.bridge.Run(ctx) })
	}
	g.Go(func() error { return c.counters.Run(ctx) })
	g.Go(func() error { return c.web.Run(ctx) })
	return g.Wait()
}

// routes are the HTTP surface of every package.
func (c *core) routes() []wire.Route {
	return slices.Concat(
		c.ledger.Routes(),
		c.roster.Routes(),
		c.book.Routes(),
		c.gates.Routes(),
		c.counters.Routes(),
		c.outbox.Routes(),
		c.notifier.Routes(),
		c.signals.Routes(),
		c.proxy.Routes(),
		c.harness.Routes(),
		c.mail.Routes(),
		c.tasks.Routes(),
		c.runs.Routes(),
		c.clock.routes(c),
		c.web.Routes(),
	)
}

// DatabaseFile is the SQLite file in the data folder.
const DatabaseFile = "signalbox.db"

// OpenStore opens the database that the configuration names.
func OpenStore(ctx context.Context, c *Config) (*store.DB, error) {
	if address := c.DB.Reveal(); address != "" {
		return store.Open(ctx, address)
	}
	return store.Open(ctx, filepath.Join(c.Data, DatabaseFile))
}

// origin names a new log: the server's host, and a word so that two logs of one
// host differ.
func origin(c *Config) string {
	host := "signalbox.local"
	if u, err := url.Parse(c.PublicURL); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	return host + "/ledger-" + strings.ToLower(rand.Text()[:8])
}

// TokenFile holds the operator token of this machine.
const TokenFile = "operator.token"

// URLFile holds the address under which the server of this folder was last reached.
const URLFile = "server.url"

// ensureToken makes sure that the token file holds a token of this database. One
// that was revoked is left: somebody meant it.
func (c *core) ensureToken(ctx context.Context, dir string, log *slog.Logger) error {
	path := filepath.Join(dir, TokenFile)
	text, err := os.ReadFile(path)
	if err == nil {
		_, err := c.roster.Authenticate(ctx, strings.TrimSpace(string(text)))
		if err == nil {
			return nil
		}
		if !fault.Is(err, fault.Unauthenticated) {
			return err
		}
		if known, err := c.roster.Knows(ctx, strings.TrimSpace(string(text))); err != nil || known {
			log.Warn("the operator token in the data folder was revoked; remove the file and start again to have a new one made", "file", path)
			return err
		}
	} else if !os.IsNotExist(err) {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot read %s. Check that this user may.", path)
	}
	token, err := c.roster.LocalToken(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(token.Secret+"\n"), 0o600); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Check that this user may write to the data folder.", path)
	}
	return nil
}

// OpenExisting opens a database that a server has made, for commands that work
// beside it. The schema must be this program's; nothing is changed.
func OpenExisting(ctx context.Context, c *Config) (*store.DB, error) {
	if c.DB.Reveal() == "" {
		path := filepath.Join(c.Data, DatabaseFile)
		if _, err := os.Stat(path); err != nil {
			return nil, fault.Wrap(err, fault.NotFound, "There is no database at %s. Say with --data or --db where it is, or start a server with `signalbox up`.", path)
		}
	}
	db, err := OpenStore(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx, Migrations()...); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}
