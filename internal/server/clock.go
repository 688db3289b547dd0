package server

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// serverClock is the machine's clock, which a conformance test may set forward if the
// configuration allows it, so that deadlines of half an hour pass in a moment.
type serverClock struct {
	movable bool
	file    string // keeps how far it was set forward over a restart
	ahead   atomic.Int64
}

// clockFile is in the data folder, where the clock is movable.
const clockFile = "clock.ahead"

func openClock(c *Config) (*serverClock, error) {
	k := &serverClock{movable: c.MovableClock, file: filepath.Join(c.Data, clockFile)}
	if !k.movable {
		return k, nil
	}
	text, err := os.ReadFile(k.file)
	if os.IsNotExist(err) {
		return k, nil
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot read %s. Check that this user may.", k.file)
	}
	ahead, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "%s should hold a length of time. Remove it.", k.file)
	}
	k.ahead.Store(int64(ahead))
	return k, nil
}

// Now is the moment by which the server works.
func (k *serverClock) Now() time.Time { return time.Now().Add(time.Duration(k.ahead.Load())) }

// Clock is the answer to GET /ops/clock.
type Clock struct {
	Now     time.Time `json:"now"`
	Movable bool      `json:"movable"`
}

// NewTime sets the clock forward.
type NewTime struct {
	Now time.Time `json:"now"`
}

func (c *core) clockRoutes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/clock", Summary: "The server's clock", Auth: wire.Viewer, Answer: Clock{},
			Handle: wire.Answer(http.StatusOK, func(*http.Request) (Clock, error) {
				return c.clock.show(), nil
			}),
		},
		{
			Method: "PUT", Path: "/ops/clock", Summary: "Set the clock forward, where clock.movable allows it, and wait until " +
				"what is due by then has happened", Auth: wire.Admin, Request: NewTime{}, Answer: Clock{},
			Handle: wire.Take(http.StatusOK, 1<<10, func(r *http.Request, in NewTime) (Clock, error) {
				return c.setClock(r.Context(), in.Now)
			}),
		},
	}
}

// setClock sets the clock forward, and waits until what is due by then has happened.
func (c *core) setClock(ctx context.Context, moment time.Time) (Clock, error) {
	if err := c.clock.moveTo(ctx, moment); err != nil {
		return Clock{}, err
	}
	err := c.timers.Settle(ctx)
	return c.clock.show(), err
}

func (k *serverClock) show() Clock { return Clock{k.Now(), k.movable} }

// maxAhead keeps moments within what can be counted in microseconds.
const maxAhead = 100 * 365 * 24 * time.Hour

// moveTo sets the clock forward. A moment that is past already is left past.
func (k *serverClock) moveTo(ctx context.Context, moment time.Time) error {
	if who := roster.From(ctx); who.Workspace != "" {
		return fault.New(fault.Forbidden, "The clock is the whole server's, and your token is for one workspace.")
	}
	if !k.movable {
		return fault.New(fault.Forbidden,
			"The clock of this server cannot be set. It can where clock.movable is true, which is for conformance tests only.")
	}
	ahead := time.Until(moment)
	if ahead > maxAhead {
		return fault.New(fault.InvalidPayload,
			"The moment is too far in the future. It should be less than a hundred years away.").About("now")
	}
	if int64(ahead) <= k.ahead.Load() {
		return nil
	}
	if err := os.WriteFile(k.file, []byte(ahead.String()+"\n"), 0o600); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s.", k.file)
	}
	k.ahead.Store(int64(ahead))
	return nil
}
