package signal

import (
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/store"
)

// Migrations make the tables of signals. What was sent lives in the body of the entry
// seq, once.
var Migrations = store.Migrations{Package: "signal", Steps: []string{`
CREATE TABLE signal (
  agent {text} NOT NULL,
  run_id {text} NOT NULL,
  request {text} NOT NULL,
  seq {bigint} NOT NULL,
  gate {text} NOT NULL,
  PRIMARY KEY (agent, run_id, request)
) {strict};

CREATE TABLE price_table (
  version {bigint} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};
`}}

// The kinds of entries.
const (
	kindReceived = "signal.received"
	kindRepeated = "signal.repeated"
	kindPriced   = "prices.applied"
)

// Projection is what the entries do to the tables.
func Projection() ledger.Projection {
	return ledger.Projection{
		Name:   "signal",
		Tables: []ledger.Table{{Name: "signal", Key: "agent, run_id, request"}, {Name: "price_table", Key: "version"}},
		Apply: map[string]ledger.Apply{
			kindReceived: applyReceived,
			kindPriced: func(tx *store.Tx, e *ledger.Entry) error {
				var b pricesApplied
				if err := e.Decode(&b); err != nil {
					return err
				}
				tx.Exec("INSERT INTO price_table (version, seq) VALUES ($1, $2)", b.Version, e.Seq)
				return nil
			},
		},
	}
}

type pricesApplied struct {
	Version int64   `json:"version"`
	Models  []Price `json:"models"`
}

func applyReceived(tx *store.Tx, e *ledger.Entry) error {
	var b received
	if err := e.Decode(&b); err != nil {
		return err
	}
	tx.Exec("INSERT INTO signal (agent, run_id, request, seq, gate) VALUES ($1, $2, $3, $4, $5)", b.Agent, b.RunID, b.Request, e.Seq, b.Gate)
	return nil
}
