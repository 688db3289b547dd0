package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/alarm"
	"signalbox/internal/audit"
	"signalbox/internal/backup"
	"signalbox/internal/behalf"
	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/delegate"
	"signalbox/internal/deliver"
	"signalbox/internal/drift"
	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/harness"
	"signalbox/internal/kin"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	"signalbox/internal/ledger/routes"
	"signalbox/internal/notify"
	"signalbox/internal/oidc"
	"signalbox/internal/passkey"
	"signalbox/internal/price"
	"signalbox/internal/protocol"
	"signalbox/internal/ready"
	"signalbox/internal/refusal"
	"signalbox/internal/rekey"
	"signalbox/internal/reload"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/secret"
	"signalbox/internal/server/taskmail"
	"signalbox/internal/server/vigil"
	"signalbox/internal/sink"
	"signalbox/internal/store"
	"signalbox/internal/telemetry"
	"signalbox/internal/web"
	"signalbox/internal/wire"
	"signalbox/internal/witness"
)

// Migrations are the tables of every package, in the order in which packages may import each other, so that no table
// refers to one that does not exist yet. more are protocols beside our own.
func Migrations(more ...protocol.Protocol) []store.Migrations {
	core := []store.Migrations{
		ledger.Migrations,
		clock.Migrations,
		roster.Migrations,
		alarm.Migrations,
		price.Migrations,
		passkey.Migrations,
		handoff.Migrations,
		behalf.Migrations,
		rulebook.Migrations,
		gate.Migrations,
		counter.Migrations,
		deliver.Migrations,
		notify.Migrations,
		witness.Migrations,
	}
	return slices.Concat(core, append(Protocols(), more...).Migrations(), []store.Migrations{web.Migrations})
}

// Projections are the apply functions of every package. A rebuild uses the same list as the server; a projection that
// is missing here would leave its tables empty after a rebuild.
func Projections(more ...protocol.Protocol) []ledger.Projection {
	core := []ledger.Projection{
		clock.Projection(),
		roster.Projection(),
		alarm.Projection(),
		price.Projection(),
		kin.Projection(),
		passkey.Projection(),
		handoff.Projection(),
		rulebook.Projection(),
		gate.Projection(),
		counter.Projection(),
		deliver.Projection(),
		notify.Projection(),
	}
	return slices.Concat(core, append(Protocols(), more...).Projections(), []ledger.Projection{web.Projection()})
}

// core is everything over the database that one server opens. It is complete after open
// and does not change afterwards. Fields of protocol.Core are what protocols may use.
type core struct {
	protocol.Core
	services

	edge      *edge
	vigil     vigil.Vigil
	clock     *drift.Server
	keeper    *drift.Keeper
	witness   *witness.Keeper
	asker     *witness.Asker
	passkeys  *passkey.Keys
	notifier  *notify.Notifier
	opened    []protocol.Service
	taskMail  *taskmail.Sender
	timers    *clock.Timers
	audit     *audit.Audit
	backups   *backup.Schedule
	counters  *counter.Counters
	sinks     *sink.Sinks
	telemetry *telemetry.Telemetry
	web       *web.Web
	reloader  *reload.Reloader
	node      *ready.Node
	perAgent  atomic.Pointer[int64] // the limit in force
}

// openCore opens everything over the database. After an error nothing stays open. base is the address at which people
// reach the server, for links; more are protocols beside our own.
func openCore(ctx context.Context, c *Config, base string, e *edge, log *slog.Logger,
	more []protocol.Protocol,
) (*core, error) {
	db, err := OpenStore(ctx, c)
	if err != nil {
		return nil, err
	}
	opened := &core{edge: e, Core: protocol.Core{DB: db, Log: log, BaseURL: base}}
	if err := opened.open(ctx, c, more); err != nil {
		db.Close()
		return nil, err
	}
	return opened, nil
}

// open opens the core, then the protocols, then what shows them. The order is that of the dependencies, and a service
// must not use one that is opened after it. The list of protocols is made first, because migrations and projections
// need it before any service exists.
func (c *core) open(ctx context.Context, config *Config, more []protocol.Protocol) (err error) {
	list := append(c.protocols(config), more...)
	if err := c.DB.Migrate(ctx, Migrations(more...)...); err != nil {
		return err
	}
	if err := dump.InUse(ctx, c.DB); err != nil {
		return err
	}
	if c.clock, err = drift.Open(config.Data, config.MovableClock, config.Machine); err != nil {
		return err
	}
	// Everything below works by this clock.
	c.Now = c.clock.Now
	if c.Key, err = keyFile(config, WebhookKeyFile); err != nil {
		return err
	}
	c.Secrets = secret.New(c.Derive("secrets"))
	clean := list.Clean(c.Secrets)
	if config.KeepSecrets {
		clean = nil
	}
	c.Ledger, err = ledger.Open(ctx, ledger.Options{
		DB: c.DB, Dir: config.Data, Now: c.Now, Origin: origin(config), Projections: Projections(more...),
		Retention: config.Retention, Clean: clean, Alone: c.DB.Name() == "sqlite", Log: c.Log,
	})
	if err != nil {
		return err
	}
	c.perAgent.Store(config.PerAgent)
	c.node = ready.New(ready.Options{DB: c.DB, Ledger: c.Ledger, Dir: config.Data, Now: c.Now})
	c.Refusals = refusal.New(c.Ledger, c.Now, c.Log)
	c.Roster = roster.New(roster.Options{
		DB: c.DB, Ledger: c.Ledger, Now: c.Now, Log: c.Log, Provider: config.Provider,
		PerAgent: c.perAgent.Load, Tokens: oidc.New(config.UserIssuers, c.Now, c.Log),
	})
	c.Alarms = alarm.New(c.DB, c.Ledger)
	c.keeper = drift.Keep(drift.Options{
		DB: c.DB, Ledger: c.Ledger, Alarms: c.Alarms, Clock: c.clock.Steady(), Now: c.Now, Log: c.Log,
	})
	if err := c.openWitness(config); err != nil {
		return err
	}
	if c.Prices, err = price.New(c.DB, c.Ledger, c.Now, c.Log); err != nil {
		return err
	}
	c.Kin = kin.New(kin.Options{
		Ledger: c.Ledger, Roster: c.Roster, Alarms: c.Alarms, Log: c.Log, Watch: c.watched(config, more),
	})
	c.Ledger.OnContradiction(func(tx *ledger.Tx, found ledger.Contradiction) error {
		return alarm.Raise(tx, alarm.Alarm{
			Kind: "table_contradicted", Title: "The table " + found.Table + " of the database is not what the ledger says.",
			Detail: "Somebody has written to the database: " + found.Detail + ". What the table says there counts for nothing. " +
				"`signalbox ledger rebuild --check` shows what differs, and `signalbox ledger rebuild` repairs it.",
		})
	})
	// A replay reads decisions back from entries; each kind of entry needs its reader.
	readers := gate.Readers()
	maps.Copy(readers, list.Readers())
	c.Handoffs = handoff.New(handoff.Options{
		DB: c.DB, Ledger: c.Ledger, Roster: c.Roster, Now: c.Now, Key: c.Derive("handoff"),
	})
	c.Book = rulebook.New(c.DB, c.Ledger, c.Roster, c.Handoffs, c.Now, c.Log, readers)
	c.Handoffs.Count(c.Book.Spent)
	c.Behalf = behalf.New(c.DB, c.Ledger, c.Roster)
	c.Gates = gate.New(c.DB, c.Ledger, c.Roster, c.Log)
	c.Gates.LinkTo(c.BaseURL)
	c.passkeys = passkey.New(c.DB, c.Ledger, c.BaseURL)
	if c.Outbox, err = deliver.New(deliver.Options{
		DB: c.DB, Ledger: c.Ledger, Key: c.Key, Allow: config.Allow, Own: config.ownTargets(),
		Alone: config.DB.Reveal() == "", // the database is in the folder, which this process has locked
		Log:   c.Log,
	}); err != nil {
		return err
	}
	if err := c.openNotifier(config); err != nil {
		return err
	}
	// Timers of all services fire in one loop, which finds the handler by the kind of the timer.
	timers := c.Gates.Handlers()
	for _, p := range list {
		service, err := p.Open(ctx, c.Core)
		if err != nil {
			return err
		}
		c.opened = append(c.opened, service)
		maps.Copy(timers, service.Timers())
	}
	c.taskMail = &taskmail.Sender{Ledger: c.Ledger, Roster: c.Roster, Mail: c.mail}
	c.timers = clock.New(c.DB, c.Ledger, c.Now, c.Log, timers)
	c.counters = counter.New(counter.Options{
		DB: c.DB, Ledger: c.Ledger, Roster: c.Roster, Gates: c.Gates, Now: c.Now, Log: c.Log, Readers: list.Counters(),
		Decisions: list.Readers(),
	})
	if c.telemetry, err = telemetry.New(ctx, telemetry.Options{
		Ledger: c.Ledger, Log: c.Log, Version: Version, To: config.OTLP, Headers: config.OTLPHeaders,
	}); err != nil {
		return err
	}
	if c.sinks, err = sink.New(config.Export.options(c)); err != nil {
		return err
	}
	c.openAudit(config, more)
	if err := c.openBackups(ctx, config); err != nil {
		return err
	}
	return c.openWeb(config, list)
}

// AttachmentsFolder is the folder of mail's attachments in the data folder, if no bucket
// is configured. A backup needs it beside the database.
const AttachmentsFolder = "attachments"

// WebhookKeyFile holds the key from which the secrets of webhook receivers and the codes of buttons are derived. All
// nodes of one database need the same file; with another one, receivers refuse the signatures.
const WebhookKeyFile = "webhook.key"

// keyFile reads a secret of the data folder, and creates it at the first start. It is readable for the owner only.
func keyFile(c *Config, name string) ([]byte, error) {
	path := filepath.Join(c.Data, name)
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		// Two texts of 128 bits each. Half a file would be a key too.
		text = []byte(rand.Text() + rand.Text() + "\n")
		if err = file.Create(path, text, 0o600); errors.Is(err, fs.ErrExist) { // another process was first
			text, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot read or create %s. Check that this user may read and write the data folder.", path)
	}
	return bytes.TrimSpace(text), nil
}

// run runs everything that works beside the calls, until ctx ends. It waits for all of them. An error of one does not
// stop the others: a dashboard without counters is better than none.
func (c *core) run(ctx context.Context) error {
	running := []func(context.Context) error{
		c.Roster.Run, c.Prices.Run, c.Handoffs.Run, c.Refusals.Run, c.Book.Run, c.timers.Run, c.Outbox.Run, c.notifier.Run,
		c.Behalf.Run, c.counters.Run, c.web.Run, c.taskMail.Run, c.Kin.Run, c.vigil.Run, c.sinks.Run,
		c.telemetry.Run, c.reloader.Run, c.audit.Run, c.backups.Run, c.keeper.Run, c.asker.Run,
	}
	for _, s := range c.opened {
		running = append(running, s.Run)
	}
	var g errgroup.Group
	for _, run := range running {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// routes are the HTTP surface of every package. handler adds the server's own.
func (c *core) routes() []wire.Route {
	all := slices.Concat(
		routes.Of(c.Ledger, c.asker.Witnessed, c.Log),
		c.witness.Routes(),
		rekey.Routes(c.Ledger),
		c.Behalf.Routes(),
		c.Roster.Routes(),
		c.Alarms.Routes(),
		c.Prices.Routes(),
		c.Kin.Routes(),
		c.reloader.Routes(),
		c.Handoffs.Routes(),
		delegate.New(c.Ledger, c.Book, c.Handoffs).Routes(),
		c.Book.Routes(),
		c.Gates.Routes(),
		c.counters.Routes(),
		c.Outbox.Routes(),
		c.notifier.Routes(),
	)
	for _, s := range c.opened {
		all = append(all, s.Routes()...)
	}
	return slices.Concat(all, c.clock.Routes(c.timers.Settle), c.web.Routes())
}

// watched is what agents could change behind the server's back.
func (c *core) watched(config *Config, more []protocol.Protocol) kin.Watch {
	return kin.Watch{
		Host: kin.Host(), Intact: config.HookIntact, Config: cmp.Or(config.File, filepath.Join(config.Data, ConfigFile)),
		ConfigSum: config.sum,
		Socket:    filepath.Join(config.Data, harness.SocketFile),
		Local: func(ctx context.Context) (roster.Identity, error) {
			return c.Roster.Named(ctx, roster.DefaultWorkspace, config.Harness.SocketAgent)
		},
		Foreign: c.DB.Foreign,
		Check: func(ctx context.Context) error {
			return c.Ledger.CheckAll(ctx, Migrations(more...), Projections(more...))
		},
	}
}

// DatabaseFile is the SQLite database in the data folder. Copying it while a server runs
// gives a broken copy without its write-ahead log; `signalbox backup` makes a whole one.
const DatabaseFile = "signalbox.db"

// OpenStore opens the database that the configuration names, without migrating it.
func OpenStore(ctx context.Context, c *Config) (*store.DB, error) {
	if address := c.DB.Reveal(); address != "" {
		return store.Open(ctx, address)
	}
	return store.Open(ctx, filepath.Join(c.Data, DatabaseFile))
}

// origin names a new log: the host, and a random word so that two logs of one host differ. It is used at the first
// start only. A log keeps its origin for good, since signed checkpoints contain it.
func origin(c *Config) string {
	host := "signalbox.local"
	if u, err := url.Parse(c.PublicURL); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	return host + "/ledger-" + strings.ToLower(rand.Text()[:8])
}

// TokenFile holds the operator token of this machine. Whoever can read it is an admin.
const TokenFile = "operator.token"

// URLFile holds the address of the server of this folder. Commands on this machine find
// it there. It stays after a stop, so that they can say which server is not running.
const URLFile = "server.url"

// ensureToken makes sure that the token file holds a working token. It makes one if the
// file is missing, or is from another database. A token that was revoked is left alone,
// with a warning: somebody meant it, and a restart must not give access back.
func (c *core) ensureToken(ctx context.Context, dir string, log *slog.Logger) error {
	path := filepath.Join(dir, TokenFile)
	text, err := os.ReadFile(path)
	if err == nil {
		_, err := c.Roster.Authenticate(ctx, strings.TrimSpace(string(text)))
		if err == nil {
			return nil
		}
		if !fault.Is(err, fault.Unauthenticated) {
			return err
		}
		// A token that the database has never seen belongs to another database: the data
		// folder was kept and the database was not.
		if known, err := c.Roster.Knows(ctx, strings.TrimSpace(string(text))); err != nil || known {
			log.Warn("the operator token in the data folder was revoked; to get a new one, remove the file and restart",
				"file", path)
			return err
		}
	} else if !os.IsNotExist(err) {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot read %s. Check that this user may read it.", path)
	}
	token, err := c.Roster.LocalToken(ctx)
	if err != nil {
		return err
	}
	return file.Replace(path, []byte(token.Secret+"\n"), 0o600) // whoever waits for it must not read half of it
}

// OpenExisting opens a database that a server has made, for commands that work beside
// it. It refuses a schema of another version and changes nothing.
func OpenExisting(ctx context.Context, c *Config) (*store.DB, error) {
	if c.DB.Reveal() == "" {
		path := filepath.Join(c.Data, DatabaseFile)
		if _, err := os.Stat(path); err != nil {
			return nil, fault.Wrap(err, fault.NotFound,
				"There is no database at %s. Say with --data or --db where it is, or start a server with `signalbox up`.", path)
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
