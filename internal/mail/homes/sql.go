package homes

import (
	"context"
	"database/sql"
	"errors"

	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/store"
)

// The kinds of entries. The subject is an address in its home form.
const (
	kindClaimed  = "address.claimed"
	kindReleased = "address.released"
)

// claimed is the body of both. Of address.released it says whose reservation ends.
type claimed struct {
	Host string `json:"host"`
	// Key is the fingerprint that the agent was registered with, "" for a reservation.
	Key       string `json:"key,omitzero"`
	Short     string `json:"short"`     // the address without its scope
	Registrar string `json:"registrar"` // the host that decided
	// Place is the number of the registrar's entry, 0 for the registrar's own: then it is this entry.
	Place int64 `json:"place,omitzero"`
}

// Tables are the tables of homes, which the migrations of package mail make.
func Tables() []ledger.Table { return ledger.Tables("mail_home (address)") }

// Migration is the step of package mail that makes them. A released address keeps its row, with no host.
const Migration = `
CREATE TABLE mail_home (
  address {text} PRIMARY KEY,
  short {text} NOT NULL,
  host {text} NOT NULL,
  key {text} NOT NULL,
  registrar {text} NOT NULL,
  place {bigint} NOT NULL,
  at {bigint} NOT NULL
) {strict};
CREATE INDEX mail_home_short ON mail_home (short);
CREATE INDEX mail_home_place ON mail_home (registrar, place);
`

// Apply is how entries change them.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{kindClaimed: ledger.ApplyBody(applyClaimed), kindReleased: ledger.ApplyBody(applyReleased)}
}

// applyClaimed notes whose an address is. Its first key is that by which the agent is known from then on, in place of
// one that a message has brought before; a later key takes a proof, which comes with a message (MSG-98).
func applyClaimed(tx *store.Tx, e *ledger.Entry, b *claimed) {
	if b.Key != "" {
		tx.Exec("INSERT INTO mail_pin (address, fingerprint) SELECT CAST($1 AS text), CAST($2 AS text) WHERE NOT EXISTS "+
			"(SELECT 1 FROM mail_home WHERE address = $1 AND key <> '') ON CONFLICT (address) DO UPDATE SET fingerprint = "+
			"excluded.fingerprint", e.Subject, b.Key)
	}
	tx.Exec(`INSERT INTO mail_home (address, short, host, key, registrar, place, at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (address) DO UPDATE SET host = excluded.host, registrar = excluded.registrar, place = excluded.place,
at = excluded.at, key = CASE WHEN mail_home.key <> '' THEN mail_home.key ELSE excluded.key END`,
		e.Subject, b.Short, b.Host, b.Key, b.Registrar, placeOf(e, b), e.At.UnixMicro())
}

func applyReleased(tx *store.Tx, e *ledger.Entry, b *claimed) {
	tx.Exec("UPDATE mail_home SET host = '', registrar = $2, place = $3, at = $4 WHERE address = $1 AND key = ''",
		e.Subject, b.Registrar, placeOf(e, b), e.At.UnixMicro())
}

func placeOf(e *ledger.Entry, b *claimed) int64 {
	if b.Place > 0 {
		return b.Place
	}
	return e.Seq
}

// Home is where an address lives. The zero value is that of one which nobody has.
type Home struct {
	Address, Short string
	Host           string // "" for nobody
	Key            string // the fingerprint that it was registered with, "" while it is only reserved
	Registrar      string
	Place, At      int64
}

const columns = "address, short, host, key, registrar, place, at"

func scanHome(scan store.Scan) (r Home, err error) {
	err = scan(&r.Address, &r.Short, &r.Host, &r.Key, &r.Registrar, &r.Place, &r.At)
	return r, err
}

// read reads the row of an address, the zero Home if there is none.
func read(queryRow func(text string, args []any, dest ...any) error, address string) (r Home, err error) {
	r, err = scanHome(func(dest ...any) error {
		return queryRow("SELECT "+columns+" FROM mail_home WHERE address = $1", []any{address}, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Home{}, nil
	}
	return r, err
}

// Of is where an address lives, as far as this host knows.
func (h *Homes) Of(ctx context.Context, a amp.Address) (Home, error) {
	if !h.On() {
		return Home{}, nil
	}
	return read(func(text string, args []any, dest ...any) error {
		return h.core.DB.QueryRow(ctx, text, args, dest...)
	}, a.String())
}

// find is Of for an address as people write it: without the scope that was given, or of the only agent of that name
// with a scope (MSG-14).
func (h *Homes) find(ctx context.Context, a amp.Address) (Home, error) {
	found, err := h.Of(ctx, a)
	if err != nil || found.Host != "" {
		return found, err
	}
	if a.Scope != "" {
		a.Scope = ""
		return h.Of(ctx, a)
	}
	scoped, err := store.All(h.core.DB.Reading(ctx), scanHome,
		"SELECT "+columns+" FROM mail_home WHERE short = $1 AND host <> '' LIMIT 2", a.Short())
	if err != nil || len(scoped) != 1 {
		return Home{}, err
	}
	return scoped[0], nil
}

// newest is the place up to which this host knows what a registrar decided.
func (h *Homes) newest(ctx context.Context, registrar string) (place int64, err error) {
	err = h.core.DB.QueryRow(ctx, "SELECT COALESCE(MAX(place), 0) FROM mail_home WHERE registrar = $1", []any{registrar},
		&place)
	return place, err
}
