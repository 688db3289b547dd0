package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
)

// ForgetPasskeys removes all passkeys of an operator, for one who has lost them. It takes no signature,
// so the server must be stopped, and whoever calls it has the data folder: with that one could write
// anything. It says how many there were.
func ForgetPasskeys(ctx context.Context, c *Config, name string) (count int, err error) {
	release, err := LockFolder(c.Data)
	if err != nil {
		return 0, err
	}
	defer release()
	db, err := OpenExisting(ctx, c)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	book, err := ledger.Open(ctx, ledger.Options{
		DB: db, Dir: c.Data, Now: time.Now, Origin: origin(c), Projections: Projections(),
		Log: slog.New(slog.DiscardHandler), // what matters is an error
	})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- book.Run(running) }()
	err = book.Write(ctx, func(tx *ledger.Tx) error {
		count, err = passkey.Forget(tx, name)
		return err
	})
	stop()
	return count, errors.Join(err, <-ended)
}
