package store

import (
	"errors"
	"time"
)

// watched are the rows of a query inside a Tx. An error that shows only while they
// are read is noted, so that the Tx knows it is lost.
//
// The two databases differ in what they do about a query while the rows of another
// are still open: SQLite answers it, PostgreSQL cannot. Here rows end with the next
// query, the commit or the rollback on both. Leaving them behind, as after a panic,
// is no harm; reading on in them loses the transaction.
type watched struct {
	Rows
	tx     *Tx
	closed bool
	cut    bool  // closed by the Tx, before the end was read
	err    error // of closing
}

var errCut = errors.New("these rows ended with the next statement of their transaction; read them to the end first")

// Next closes the rows after the last one, so that the transaction can go on without a call of
// Close.
func (w *watched) Next() bool {
	if w.cut {
		w.tx.lose(errCut)
		return false
	}
	if w.Rows.Next() {
		return true
	}
	_ = w.Close() // Err and a second Close give its error
	return false
}

// Scan loses the transaction when it fails: pgx closes the rows then, and SQLite
// shall not be more patient.
func (w *watched) Scan(dest ...any) error {
	err := w.Rows.Scan(dest...)
	w.tx.lose(err)
	return err
}

func (w *watched) Err() error {
	if w.cut {
		return errCut
	}
	if w.err != nil {
		return w.err
	}
	return w.Rows.Err()
}

// Close may be called again, and returns the same error.
func (w *watched) Close() error {
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.tx.open == w {
		w.tx.open = nil
	}
	w.err = w.Rows.Err()
	if err := w.Rows.Close(); w.err == nil {
		w.err = err
	}
	w.tx.lose(w.err)
	return w.err
}

// cutRows ends the rows that are still open.
func (tx *Tx) cutRows() {
	if w := tx.open; w != nil {
		_ = w.Close() // the Tx knows its error
		w.cut = true
	}
}

// lose notes the error that makes the transaction useless.
func (tx *Tx) lose(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// Moment is a time that is stored in microseconds, nil for 0, which stands for never.
func Moment(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	t := time.UnixMicro(micros).UTC()
	return &t
}
