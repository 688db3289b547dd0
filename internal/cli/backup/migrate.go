package backup

import (
	"context"
	"time"

	"signalbox/internal/backup"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// NewMigrate is `signalbox migrate`.
func NewMigrate(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "migrate", Short: "Move the ledger from SQLite to PostgreSQL, or back",
		Long: `Move the ledger from SQLite to PostgreSQL, or back. Every server on it must be stopped.

The database to migrate to is empty. When it is done the other one is closed: a server that is started on it says
so and ends. If this ends before it is done, run it again: it goes on where it was. With --cancel the ledger stays
where it is instead.`,
		Example: `  signalbox migrate --from sqlite --to postgres --db postgres://signalbox@db.example/signalbox`,
		Args:    command.NoArguments(),
	})
	from := c.Flags().String("from", "", "sqlite or postgres")
	to := c.Flags().String("to", "", "postgres or sqlite")
	cancel := c.Flags().Bool("cancel", false, "give a migration up that has not ended")
	flags := command.AddConfigFlags(c, "db")
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		if *from == *to || !isDatabase(*from) || !isDatabase(*to) {
			return command.Usage("Say --from sqlite --to postgres, or --from postgres --to sqlite.")
		}
		if config.DB.Reveal() == "" {
			return command.Usage("Say with --db where PostgreSQL is: postgres://user:password@host:5432/name.")
		}
		release, err := server.LockFolder(config.Data)
		if err != nil {
			return err
		}
		defer release()
		source, err := server.OpenExisting(c.Context(), of(config, *from))
		if err != nil {
			return err
		}
		defer source.Close()
		if *cancel {
			if err := backup.CancelMigration(c.Context(), source); err != nil {
				return err
			}
			return a.Show(map[string]bool{"cancelled": true}, func(w output.Printer) {
				w.Print("The ledger stays where it is. What was copied cannot be used; remove it.")
			})
		}
		return migrate(c.Context(), a, config, source, *to)
	}
	return c
}

func isDatabase(name string) bool { return name == "sqlite" || name == "postgres" }

// of is the configuration with one of the two databases.
func of(config *server.Config, database string) *server.Config {
	one := *config
	if database == "sqlite" {
		one.DB = wire.Secret{}
	}
	return &one
}

func migrate(ctx context.Context, a *command.App, config *server.Config, source *store.DB, to string) error {
	target, err := server.OpenStore(ctx, of(config, to))
	if err != nil {
		return err
	}
	defer target.Close()
	parts := server.BackupParts()
	if err := target.Migrate(ctx, parts.Schema...); err != nil {
		return err
	}
	shown := output.NewProgress(a.Err)
	moved, err := backup.Migrate(ctx, backup.Move{
		Parts: parts, From: source, To: target, Dir: config.Data, Now: time.Now,
	}, shown.Of("migrating"))
	shown.End()
	if err != nil {
		return err
	}
	return a.Show(moved, func(w output.Printer) {
		w.Print("Moved %s entries to %s.\nRoot: %s", output.Thousands(moved.Entries), moved.To, moved.Root)
		if to == "sqlite" {
			w.Print("Remove `db` from the configuration, and start the server with `signalbox up`.")
			return
		}
		w.Print("Set `db` in the configuration to the address of PostgreSQL, and start the server with `signalbox up`.")
	})
}
