package reload

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/kin"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
)

// When says when a setting that was changed takes effect.
type When string

// Restart is what most settings take. Confirmed settings take effect with a reload of a file that an operator has
// confirmed, and settings at once with every reload: they give nobody power.
const (
	Restart   When = "restart"
	Confirmed When = "confirmed"
	AtOnce    When = "at_once"
)

// The states of a change, in Change.
const (
	inForce = "in force"
	held    = "held back"
	waits   = "waits for a restart"
)

// kindReloaded is the entry of a reload.
const kindReloaded = "config.reloaded"

// Change is a setting that differs from the one in force. Secrets are redacted.
type Change struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
	// Is says what became of it: in force, held back, or waits for a restart.
	Is string `json:"is"`

	When When `json:"-"`
}

// Next is a configuration that was read again and is not in force. Sum is the SHA-256 of its file, in hex, "" if there
// is none. Apply puts the keys that it is given in force: all of them, or after an error none.
type Next struct {
	Sum     string
	Changes []Change
	Apply   func(keys []string) error
}

// Result is what came of a reload. Problem says why nothing was changed, if so.
type Result struct {
	At      time.Time `json:"at"`
	Problem string    `json:"problem,omitzero"`
	Changes []Change  `json:"changes"`
}

// keys are those of the changes in a state.
func (r *Result) keys(is string) (keys []string) {
	for _, c := range r.Changes {
		if c.Is == is {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// Held are the keys whose changes are held back.
func (r *Result) Held() []string { return r.keys(held) }

// recorded is the body of config.reloaded.
type recorded struct {
	InForce []string `json:"in_force,omitzero"`
	Held    []string `json:"held,omitzero"`
	Restart []string `json:"restart,omitzero"`
	Problem bool     `json:"problem,omitzero"` // the log and the status say which
}

// Options are what a Reloader stands on. Hangup brings signals, nil if there are none.
type Options struct {
	Ledger *ledger.Ledger
	Kin    *kin.Kin
	Log    *slog.Logger
	Now    func() time.Time
	Hangup <-chan os.Signal
	Read   func() (Next, error)
}

// Reloader reads the configuration again, once at a time.
type Reloader struct {
	Options
	mu   sync.Mutex
	last *Result
	told string // what the last entry said
}

// New makes a Reloader, which has read nothing yet.
func New(o Options) *Reloader { return &Reloader{Options: o} }

// Last is what came of the last reload, nil before the first.
func (r *Reloader) Last() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Run reloads with every signal, until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	for {
		select {
		case <-r.Hangup:
			r.mu.Lock()
			_, _ = r.reload(ctx, "system", nil) // said in the log and the status
			r.mu.Unlock()
		case <-ctx.Done():
			return nil
		}
	}
}

// Reload is a reload that an operator asks for, who confirms a file by the SHA-256 of its bytes, or with "" that there
// is none.
func (r *Reloader) Reload(ctx context.Context, by roster.Identity, sum string) (Result, error) {
	if err := r.Kin.ExpectConfig(ctx, by, sum); err != nil {
		return Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reload(ctx, by.Actor(), &sum)
}

// reload reads the configuration and puts in force what may be. sum is that of the file that was confirmed just now,
// nil after a signal. The caller holds mu.
func (r *Reloader) reload(ctx context.Context, actor string, sum *string) (Result, error) {
	out := Result{At: r.Now().UTC(), Changes: []Change{}}
	next, err := r.Read()
	if err == nil && sum != nil && !strings.EqualFold(*sum, next.Sum) {
		err = fault.New(fault.Conflict, "The server's configuration file is not the one that you confirm: its SHA-256 is "+
			"%.64q. Look at the file that the server reads, and confirm that one.", next.Sum)
	}
	if err == nil {
		confirmed := r.Kin.Confirmed(next.Sum)
		for _, c := range next.Changes {
			switch {
			case c.When == AtOnce, c.When == Confirmed && confirmed:
				c.Is = inForce
			case c.When == Confirmed:
				c.Is = held
			default:
				c.Is = waits
			}
			out.Changes = append(out.Changes, c)
		}
		err = next.Apply(out.keys(inForce))
	}
	if err != nil {
		out.Changes, out.Problem = []Change{}, fault.From(err).Message
	}
	r.last = &out
	r.say(out)
	r.record(ctx, actor, out)
	return out, err
}

// say writes to the log what came of a reload. It follows the level that is in force now, so it is a warning where
// somebody has to do something.
func (r *Reloader) say(out Result) {
	if out.Problem != "" {
		r.Log.Error("the configuration was not reloaded; the old one stays in force", "problem", out.Problem)
		return
	}
	for _, c := range out.Changes {
		switch c.Is {
		case held:
			r.Log.Warn("a setting was changed and no operator has confirmed it, so it is held back; `signalbox config reload` "+
				"confirms the file", "key", c.Key, "from", c.From, "to", c.To)
		case waits:
			r.Log.Warn("a setting was changed and waits for a restart", "key", c.Key, "from", c.From, "to", c.To)
		default:
			r.Log.Info("a setting was changed and is in force", "key", c.Key, "from", c.From, "to", c.To)
		}
	}
	r.Log.Info("the configuration was reloaded", "in_force", len(out.keys(inForce)), "held_back", len(out.keys(held)),
		"restart", len(out.keys(waits)))
}

// record appends the entry of a reload, unless it would say what the last one says: a signal costs nothing, and
// whoever sends thousands must not fill the ledger. What was put in force is always recorded.
func (r *Reloader) record(ctx context.Context, actor string, out Result) {
	body := recorded{out.keys(inForce), out.keys(held), out.keys(waits), out.Problem != ""}
	tells := fmt.Sprint(actor, body)
	if len(body.InForce) == 0 && (tells == r.told || !body.Problem && len(slices.Concat(body.Held, body.Restart)) == 0) {
		return
	}
	err := r.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Kind: kindReloaded, Actor: actor, Body: body})
		return nil
	})
	if err != nil {
		r.Log.Error("cannot record that the configuration was reloaded", "error", err.Error())
		return
	}
	r.told = tells
}
