package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// newTail prints the last entries in their order, and with -f all that follow.
// Following begins after the last entry of the first answer, so none is missed or
// printed twice between the two calls.
func newTail(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "tail", Short: "Print the last entries, and with -f those that follow", Args: command.NoArguments(),
		Example: `  signalbox ledger tail -f
  signalbox ledger tail --kind agent.added --body
  signalbox ledger tail --user alice`,
	})
	n := c.Flags().IntP("lines", "n", 20, "how many of the last entries")
	follow := c.Flags().BoolP("follow", "f", false, "go on printing entries as they are written")
	kind := c.Flags().String("kind", "", "only entries of this kind")
	subject := c.Flags().String("subject", "", "only entries about this id")
	trace := c.Flags().String("trace", "", "only entries of this trace")
	user := c.Flags().String("user", "", "only entries on behalf of this user: a name, an id or an e-mail")
	claimed := c.Flags().Bool("claimed", false, "with --user: only entries that claim it without proof")
	body := c.Flags().Bool("body", false, "print the body below each entry")
	c.RunE = func(c *command.Command, _ []string) error {
		cl, err := a.Client()
		if err != nil {
			return err
		}
		if *claimed && *user == "" {
			return command.Usage("--claimed says which entries of a user are meant: name one with --user.")
		}
		q := api.Query{"newest": 1, "limit": *n, "kind": *kind, "subject": *subject, "trace": *trace, "user": *user}
		if *claimed {
			q["claimed"] = 1
		}
		var page ledger.EntryPage
		if err := cl.Call(c.Context(), api.Find("/ops/ledger", q), &page); err != nil {
			return err
		}
		for _, e := range page.Entries {
			if err := printEntry(a, e, *body); err != nil {
				return err
			}
		}
		if !*follow {
			return nil
		}
		// The stream has no filters, so the filters of the first call are repeated here.
		wanted := func(e ledger.EntryView) bool {
			return (*kind == "" || e.Kind == *kind) && (*subject == "" || e.Subject == *subject) &&
				(*trace == "" || e.Trace == *trace)
		}
		if *user != "" {
			return followUser(c.Context(), a, cl, q, page.Next, *body)
		}
		return followEntries(c.Context(), a, cl, page.Next, *body, wanted)
	}
	return c
}

// printEntry prints an entry in one line and, if body is set, its body below. An erased
// body is gone for good; its record still proves that it existed.
func printEntry(a *command.App, e ledger.EntryView, body bool) error {
	return a.Show(e, func(w output.Printer) {
		w.Line(fmt.Sprintf("%6d  %s  %-18s %-18s %s",
			e.Seq, e.At.Local().Format("2006-01-02 15:04:05.000"), e.Kind, e.Actor, e.Subject))
		switch {
		case !body:
		case e.Erased:
			w.Print("        (erased)")
		case len(e.RawBody) > 0:
			w.Print("        (%d bytes)", len(e.RawBody))
		default:
			w.Print("        %s", string(e.Body))
		}
	})
}

// followUser prints the entries of a user until ctx ends. The stream knows no users, so it asks again every second; what
// it asks for is found by an index.
func followUser(ctx context.Context, a *command.App, cl *api.Client, q api.Query, after int64, body bool) error {
	delete(q, "newest")
	for q["limit"] = wire.MaxPage; ; clock.Pause(ctx, time.Second) {
		q["after"] = after
		var page ledger.EntryPage
		err := cl.Call(ctx, api.Find("/ops/ledger", q), &page)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is how following ends
		}
		if err != nil && !fault.Is(err, api.Unreachable) {
			return err
		}
		for _, e := range page.Entries {
			if err := printEntry(a, e, body); err != nil {
				return err
			}
		}
		after = max(after, page.Next)
	}
}

// followEntries prints entries until ctx ends. If the server goes away it connects
// again, with a pause that doubles from 1 to 15 seconds, and goes on after the last
// entry that it printed. Any other error ends it, such as a token that was revoked.
func followEntries(ctx context.Context, a *command.App, cl *api.Client, after int64, body bool,
	wanted func(ledger.EntryView) bool,
) error {
	for pause := time.Second; ; {
		last, err := printEvents(ctx, a, cl, after, body, wanted)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is how following ends
		}
		if last > after {
			after, pause = last, time.Second
		}
		if !fault.Is(err, api.Unreachable) {
			return err
		}
		a.Err.Print("The server cannot be reached; retrying in %s.", pause)
		clock.Pause(ctx, pause)
		pause = min(2*pause, 15*time.Second)
	}
}

// printEvents prints one stream of entries. It always returns an error, because a stream
// ends only when the server or ctx does, together with the number of the last entry it
// has seen.
func printEvents(ctx context.Context, a *command.App, cl *api.Client, after int64, body bool,
	wanted func(ledger.EntryView) bool,
) (last int64, err error) {
	events, err := cl.Events(ctx, "/ops/events?after="+strconv.FormatInt(after, 10))
	if err != nil {
		return after, err
	}
	defer events.Close()
	for {
		_, data, err := events.Next()
		var e ledger.EntryView
		if err == nil {
			err = wire.Unmarshal([]byte(data), &e)
		}
		if err == nil && wanted(e) {
			err = printEntry(a, e, body)
		}
		if err != nil {
			return after, err
		}
		// Also for an entry that was filtered out: it must not be read again after a
		// reconnect.
		after = e.Seq
	}
}

// verifyCommand is the command that checks files of export and prove. It is printed
// after each download, since a file that nobody verifies proves nothing.
const verifyCommand = "signalbox ledger verify"

// newExport writes a file that proves itself: all records and bodies, and a
// checkpoint that covers them. Progress and hints go to standard error; standard output
// may be the file.
func newExport(a *command.App) *command.Command {
	c := &command.Command{
		Use: "export", Short: "Write all entries and a checkpoint to a file that verifies offline",
		Args: command.NoArguments(),
	}
	out := c.Flags().String("out", "", "the file to write; standard output when absent")
	witnessed := c.Flags().Bool("witnessed", false, "up to the newest checkpoint that the quorum of witnesses has cosigned")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{}
		if *witnessed {
			q["witnessed"] = "true"
		}
		return a.Download(c.Context(), api.Find("/ops/ledger/export", q), *out, verifyCommand)
	}
	return c
}

// newProve writes a proof for one entry. It reveals the record of that entry and
// hashes of others, and its body only with --body, so it can be given to somebody who must not see the ledger.
func newProve(a *command.App) *command.Command {
	c := &command.Command{
		Use:   "prove SEQ",
		Short: "Write a proof that an entry is in the ledger, as a tlog-proof@v1 file",
		Args:  command.Exactly(1, "the sequence number of an entry"),
		Example: `  signalbox ledger prove 42 --out 42.tlog-proof
  signalbox ledger verify 42.tlog-proof
  signalbox ledger prove 42 --body --out 42.tlog-proof`,
	}
	out := c.Flags().String("out", "", "the file to write; standard output when absent")
	body := c.Flags().Bool("body", false, "put the body into the file, so that it proves what the entry says")
	c.RunE = func(c *command.Command, args []string) error {
		q := api.Query{}
		if *body {
			q["body"] = "true"
		}
		seq, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || seq < 1 {
			return command.Usage("The sequence number should be a whole number, 1 or more, and is %q.", args[0])
		}
		return a.Download(c.Context(), api.Find(fmt.Sprintf("/ops/ledger/%d/proof", seq), q).With("Accept", "text/plain"), *out,
			verifyCommand)
	}
	return c
}

// newRebuild runs in this process, on the database, not in the server: a server
// whose tables are wrong should not be asked to repair them.
func newRebuild(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "rebuild", Short: "Rebuild every table from the ledger; with --check only compare",
		Long: `Rebuild every table from the ledger.

With --check the tables are built beside the live ones and compared, and nothing is
changed; the server may be running. Without it they are replaced in one transaction.
On SQLite the server must be stopped for that. On PostgreSQL writes wait, and are
refused when it takes longer than 15 seconds.`,
		Args: command.NoArguments(),
	})
	check := c.Flags().Bool("check", false, "compare, and change nothing")
	flags := command.AddConfigFlags(c, "db")
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		// On SQLite no server may run meanwhile. The lock is the one that a server
		// takes: this fails if a server is running, and none can start before the
		// rebuild is done.
		if !*check && config.DB.Reveal() == "" {
			release, err := server.LockFolder(config.Data)
			if err != nil {
				return err
			}
			defer release()
		}
		db, err := server.OpenExisting(c.Context(), config)
		if err != nil {
			return err
		}
		defer db.Close()
		if *check {
			return checkRebuild(c.Context(), a, db)
		}
		return rebuild(c.Context(), a, db, config.Data)
	}
	return c
}

// checkRebuild builds the tables beside the live ones and compares. It changes nothing
// that lasts. A difference is exit code 1: either somebody changed a table by hand, or
// an apply function is not deterministic.
func checkRebuild(ctx context.Context, a *command.App, db *store.DB) error {
	shown := output.NewProgress(a.Err)
	got, err := ledger.CheckRebuild(ctx, db, server.Migrations(), server.Projections(), shown.Of("rebuilding"))
	shown.End()
	if err != nil {
		return err
	}
	err = a.Show(got, func(w output.Printer) {
		for _, d := range got.Differences {
			switch {
			case d.Live == "":
				w.Print("%s: missing  %s", d.Table, d.Built)
			case d.Built == "":
				w.Print("%s: extra    %s", d.Table, d.Live)
			default:
				w.Print("%s: is       %s\n%s: should be %s", d.Table, d.Live, d.Table, d.Built)
			}
		}
		w.Print("Compared %s rows of %d tables with what %s entries say: %d differences.",
			output.Thousands(got.Rows), got.Tables, output.Thousands(got.Entries), len(got.Differences))
	})
	if err == nil && len(got.Differences) > 0 {
		return fault.New(fault.VerificationFailed,
			"The tables are not what the ledger says. "+
				"`signalbox ledger rebuild` replaces them; find out first who changed them.")
	}
	return err
}

// rebuild replaces the tables. It refuses a ledger that is not the one that was signed:
// tables built from forged entries would make the forgery effective.
func rebuild(ctx context.Context, a *command.App, db *store.DB, folder string) error {
	if err := ledger.Compare(ctx, db, folder); err != nil {
		return err
	}
	shown := output.NewProgress(a.Err)
	n, err := ledger.Rebuild(ctx, db, server.Projections(), shown.Of("rebuilding"))
	shown.End()
	if err == nil {
		// Counted and indexed again by the server, beside its work.
		err = errors.Join(counter.Reset(ctx, db), behalf.Reset(ctx, db))
	}
	if err != nil {
		return err
	}
	return a.Show(map[string]int64{"entries": n}, func(w output.Printer) {
		w.Print("Rebuilt every table from %s entries.", output.Thousands(n))
	})
}
