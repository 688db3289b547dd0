package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/ledger/notes"
	"signalbox/internal/witness"
)

// Witness is the configuration of witnesses: those that cosign our checkpoints, and the logs that we cosign.
type Witness struct {
	Peers       []witness.Peer
	Quorum      int
	Every, Late time.Duration
	Logs        []string // verifier keys
}

// witnessSettings are the settings of witnesses.
func witnessSettings() []Setting {
	return []Setting{
		{
			Key: "witness.ask", Default: "", List: true,
			Meaning: "witnesses that cosign the ledger's checkpoints, with commas between: KEY@https://HOST/PREFIX",
			set: func(c *Config, v string) (err error) {
				if c.Witness.Peers, err = witness.ParsePeers(splitList(v)); err != nil {
					return fmt.Errorf("should be witnesses as KEY@https://HOST/PREFIX: %w", err)
				}
				return nil
			},
			get: func(c *Config) string {
				var all []string
				for _, p := range c.Witness.Peers {
					all = append(all, p.String()+"@"+p.URL)
				}
				return strings.Join(all, ",")
			},
		},
		{
			Key: "witness.quorum", Default: "0", Meaning: "how many of them have to cosign a checkpoint; 0 demands none",
			set: func(c *Config, v string) (err error) {
				if c.Witness.Quorum, err = strconv.Atoi(v); err != nil || c.Witness.Quorum < 0 {
					return fmt.Errorf("should be a whole number, such as 2")
				}
				return nil
			},
			get: func(c *Config) string { return strconv.Itoa(c.Witness.Quorum) },
		},
		span("witness.every", "10s", "the time between two checkpoints that witnesses are asked to cosign",
			func(c *Config) *time.Duration { return &c.Witness.Every }),
		span("witness.late", "10m", "how long the quorum may not be met before that is an alarm",
			func(c *Config) *time.Duration { return &c.Witness.Late }),
		{
			Key: "witness.logs", Default: "", List: true,
			Meaning: "keys of other logs whose checkpoints this server cosigns, with commas between; none when empty",
			set: func(c *Config, v string) error {
				if _, err := witness.ParseLogs(splitList(v)); err != nil {
					return fmt.Errorf("should be the keys of logs, as at /ledger/key: %w", err)
				}
				c.Witness.Logs = splitList(v)
				return nil
			},
			get: func(c *Config) string { return strings.Join(c.Witness.Logs, ",") },
		},
	}
}

// span is a setting with a length of time that is not none.
func span(key, absent, meaning string, field func(*Config) *time.Duration) Setting {
	return Setting{
		Key: key, Default: absent, Meaning: meaning,
		set: func(c *Config, v string) (err error) {
			if *field(c), err = parseDuration(v); err == nil && *field(c) == 0 {
				err = fmt.Errorf("should be a length of time such as 10s or 5m")
			}
			return err
		},
		get: func(c *Config) string { return formatDuration(*field(c)) },
	}
}

// check wants a quorum that can be met.
func (w *Witness) check() error {
	if w.Quorum > len(w.Peers) {
		return fmt.Errorf("witness.quorum is %d, and witness.ask lists %d witnesses", w.Quorum, len(w.Peers))
	}
	return nil
}

// openWitness opens both sides. All nodes of a database have the same key as a witness.
func (c *core) openWitness(config *Config) error {
	logs, err := witness.ParseLogs(config.Witness.Logs)
	if err != nil {
		return err
	}
	cosigner, err := notes.NewCosigner(c.Ledger.Origin()+"/witness", c.Derive("witness"))
	c.witness = &witness.Keeper{DB: c.DB, Alarms: c.Alarms, Cosigner: cosigner, Logs: logs, Now: c.Now, Log: c.Log}
	c.asker = witness.Ask(witness.Options{
		DB: c.DB, Ledger: c.Ledger, Alarms: c.Alarms, Peers: config.Witness.Peers, Quorum: config.Witness.Quorum,
		Every: config.Witness.Every, Bound: config.Witness.Late, Now: c.Now, Log: c.Log,
	})
	return err
}
