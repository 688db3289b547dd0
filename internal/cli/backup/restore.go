package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/backup"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	"signalbox/internal/server"
	"signalbox/internal/store"
)

// restoreFlags are what `restore` is told.
type restoreFlags struct {
	from, keys, passphrase, old string
	identities, checkpoints     []string
	number                      int64
}

// NewRestore is `signalbox restore`.
func NewRestore(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "restore", Short: "Bring a ledger back from a backup, verified, into an empty database",
		Long: `Bring a ledger back from a backup, into an empty data folder or an empty PostgreSQL database.

Every entry is verified, and their root against the signed checkpoint with the ledger's key, which has to be in
the data folder or in the file named with --keys. A checkpoint that was kept elsewhere, or the old database, says
how many entries are younger than the backup. The ledger goes on with an entry ledger.restored.`,
		Example: `  signalbox restore --from /mnt/backup --identity backup-identity.txt --keys keys.age --data ./restored`,
		Args:    command.NoArguments(),
	})
	var f restoreFlags
	c.Flags().StringVar(&f.from, "from", "", "a folder, or s3:// and the name of a bucket; backup.to when absent")
	c.Flags().StringArrayVar(&f.identities, "identity", nil, "a file with an identity of age that can read the backup")
	c.Flags().StringVar(&f.passphrase, "passphrase-file", "", "a file with the passphrase of the identity, if it has one")
	c.Flags().StringVar(&f.keys, "keys", "", "the file of `backup keys`, if the keys are not in the data folder")
	c.Flags().StringArrayVar(&f.checkpoints, "checkpoint", nil, "a checkpoint that was kept elsewhere")
	c.Flags().StringVar(&f.old, "old-db", "", "the old database, if it can still be read: a file, or postgres://…")
	c.Flags().Int64Var(&f.number, "number", 0, "which backup; the newest when absent")
	flags := command.AddConfigFlags(c, "db")
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		if f.from == "" {
			f.from = config.Backup.To
		}
		restored, err := f.restore(c.Context(), a, config)
		if err != nil {
			return err
		}
		return a.Show(restored, func(w output.Printer) { printRestored(w, restored, config.Data) })
	}
	return c
}

// restore does what can fail without a trace before it opens the database.
func (f *restoreFlags) restore(ctx context.Context, a *command.App, config *server.Config) (r backup.Restored, err error) {
	order := backup.Order{Number: f.number, By: whoAmI(), Now: time.Now()}
	if order.From, err = backup.Open(ctx, f.from, config.Backup.S3, false); err != nil {
		return r, err
	}
	passphrase := ""
	if f.passphrase != "" {
		text, err := a.ReadFile(f.passphrase)
		if err != nil {
			return r, err
		}
		passphrase = strings.TrimRight(string(text), "\r\n")
	}
	if order.Who, err = backup.Identities(f.identities, passphrase); err != nil {
		return r, err
	}
	if err := os.MkdirAll(config.Data, 0o700); err != nil {
		return r, fault.Wrap(err, fault.StoreReadOnly, "Cannot create the data folder %s. Choose another with --data.",
			config.Data)
	}
	release, err := server.LockFolder(config.Data)
	if err != nil {
		return r, err
	}
	defer release()
	if f.keys != "" {
		if err := backup.LoadKeys(f.keys, config.Data, order.Who); err != nil {
			return r, err
		}
	}
	if order.Known, err = f.known(ctx, a, config.Data); err != nil {
		return r, err
	}
	db, err := server.OpenStore(ctx, config)
	if err != nil {
		return r, err
	}
	defer db.Close()
	parts := server.BackupParts()
	if err := db.Migrate(ctx, parts.Schema...); err != nil {
		return r, err
	}
	blobs, err := server.OpenBlobs(ctx, config)
	if err != nil {
		return r, err
	}
	shown := output.NewProgress(a.Err)
	defer shown.End()
	return backup.Restore(ctx, backup.Target{Parts: parts, DB: db, Dir: config.Data, Blobs: blobs}, order,
		shown.Of("restoring"))
}

// known are the checkpoints that say how long the ledger was.
func (f *restoreFlags) known(ctx context.Context, a *command.App, dir string) (all [][]byte, err error) {
	for _, path := range f.checkpoints {
		text, err := a.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	text, err := os.ReadFile(filepath.Join(dir, ledger.CheckpointFile))
	switch {
	case err == nil:
		all = append(all, text)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if f.old == "" {
		return all, nil
	}
	if _, err := os.Stat(f.old); err != nil && !strings.Contains(f.old, "://") {
		return nil, fault.Wrap(err, fault.NotFound, "There is no database at %s.", f.old)
	}
	db, err := store.Open(ctx, f.old)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	v, err := dump.Look(ctx, db, nil)
	if err == nil && v.Newest != "" {
		all = append(all, []byte(v.Newest))
	}
	return all, err
}

// whoAmI is who restores, as far as this machine knows.
func whoAmI() string {
	host, _ := os.Hostname()
	name := "unknown"
	if who, err := user.Current(); err == nil {
		name = who.Username
	}
	return name + "@" + host
}

func printRestored(w output.Printer, r backup.Restored, dir string) {
	w.Print("Restored and verified %s entries of backup %d, made at %s, and %s.", output.Thousands(r.Entries), r.Number,
		r.At.Format(time.RFC3339), output.Count(r.Blobs, "attachment"))
	w.Print("Root: %s", r.Root)
	switch {
	case r.Missing == nil:
		w.Print("Nobody knows how many entries are younger than the backup: no checkpoint was given.")
	case *r.Missing == 0:
		w.Print("No entry is known to be missing.")
	default:
		w.Print("MISSING: %s entries are younger than the backup. What they changed is as before: keys that were revoked then "+
			"work again, and what was decided then waits again.", output.Thousands(*r.Missing))
	}
	w.Print("Start the server with `signalbox up --data %s`.", dir)
	if _, err := os.Stat(filepath.Join(dir, server.VaultKeyFile)); err != nil {
		w.Print("There is no %s in the data folder: the providers' keys cannot be read, and have to be set again.",
			server.VaultKeyFile)
	}
}
