package drift

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Server is the clock by which the server works: a Clock, plus an offset that conformance tests may
// increase where the configuration allows it, so that a deadline of half an hour passes in a moment. It never goes
// back, since entries in the ledger have times in their order. It is safe for concurrent use.
type Server struct {
	steady  *Clock
	movable bool
	file    string // keeps how far it was set forward over a restart
	ahead   atomic.Int64
}

// clockFile keeps the offset in the data folder over a restart. It exists only where the
// clock is movable and was moved.
const clockFile = "clock.ahead"

// Open reads the offset, if the clock is movable. A file that cannot be read stops
// the start: without the offset, time would go back.
func Open(folder string, movable bool, m Machine) (*Server, error) {
	k := &Server{steady: New(m), movable: movable, file: filepath.Join(folder, clockFile)}
	if !k.movable {
		return k, nil
	}
	text, err := os.ReadFile(k.file)
	if os.IsNotExist(err) {
		return k, nil
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot read %s. Check that this user may read it.", k.file)
	}
	ahead, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig,
			"%s should hold a length of time such as 30m. Remove the file to reset the clock.", k.file)
	}
	k.ahead.Store(int64(ahead))
	return k, nil
}

// Now is the current time of the server. Services take this function and never call
// time.Now for anything that is recorded or due.
func (k *Server) Now() time.Time { return k.steady.Now().Add(time.Duration(k.ahead.Load())) }

// Time is the answer to GET /ops/clock and PUT /ops/clock. Conformance tests read
// Movable to decide which cases they can run.
type Time struct {
	Now     time.Time `json:"now"`
	Movable bool      `json:"movable"`
}

// NewTime is the body of PUT /ops/clock: the time to which the clock is set.
type NewTime struct {
	Now time.Time `json:"now"`
}

// Routes are the calls that show and set the clock. Both exist on every server;
// setting is refused unless clock.movable is true.
func (k *Server) Routes(settle func(context.Context) error) []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/clock", Summary: "The server's clock", Auth: wire.Viewer, Answer: Time{},
			Handle: wire.Answer(http.StatusOK, func(*http.Request) (Time, error) {
				return k.show(), nil
			}),
		},
		{
			Method: "PUT", Path: "/ops/clock", Summary: "Set the clock forward, where clock.movable allows it, and wait until " +
				"what is due by then has happened", Auth: wire.Admin, Request: NewTime{}, Answer: Time{},
			Handle: wire.Take(http.StatusOK, 1<<10, func(r *http.Request, in NewTime) (Time, error) {
				return k.set(r.Context(), in.Now, settle)
			}),
		},
	}
}

// set sets the clock forward and returns after all timers that are due by then have
// fired, so that a test can look at their effects at once.
func (k *Server) set(ctx context.Context, moment time.Time, settle func(context.Context) error) (Time, error) {
	if err := k.moveTo(ctx, moment); err != nil {
		return Time{}, err
	}
	err := settle(ctx)
	return k.show(), err
}

// show is the answer to both calls.
func (k *Server) show() Time { return Time{k.Now(), k.movable} }

// maxAhead keeps times within what int64 microseconds and a Duration can hold.
const maxAhead = 100 * 365 * 24 * time.Hour

// moveTo sets the clock forward to a moment. A moment in the past is not an error and changes nothing. The file is
// written first: an offset that is not saved would be lost by a restart.
func (k *Server) moveTo(ctx context.Context, moment time.Time) error {
	if who := roster.From(ctx); who.Workspace != "" {
		return fault.New(fault.Forbidden, "The clock belongs to the whole server, and your token is for one workspace.")
	}
	if !k.movable {
		return fault.New(fault.Forbidden,
			"The clock of this server cannot be set. clock.movable allows it, for conformance tests only.")
	}
	ahead := moment.Sub(k.steady.Now())
	if ahead > maxAhead {
		return fault.New(fault.InvalidPayload,
			"The moment is too far in the future. It should be less than a hundred years away.").About("now")
	}
	if int64(ahead) <= k.ahead.Load() {
		return nil
	}
	if err := file.Replace(k.file, []byte(ahead.String()+"\n"), 0o600); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s.", k.file)
	}
	k.ahead.Store(int64(ahead))
	return nil
}

// Steady is the clock without the offset, for a Keeper.
func (k *Server) Steady() *Clock { return k.steady }
