package reload

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"signalbox/internal/secret"
)

// Logs is the server's log, whose level and form can change while it is written. Credentials in what it is told,
// such as the text of an error, are replaced by their kind.
type Logs struct {
	level slog.LevelVar
	json  atomic.Bool
	out   io.Writer
}

// NewLogs makes a log with a level (debug, info, warn or error) and a form (text or json), which were checked when
// they were set.
func NewLogs(out io.Writer, level, format string) *Logs {
	l := &Logs{out: out}
	l.Set(level, format)
	return l
}

// Set changes the level and the form. A nil log is that of a test, which has its own.
func (l *Logs) Set(level, format string) {
	if l == nil {
		return
	}
	var to slog.Level
	_ = to.UnmarshalText([]byte(level))
	l.level.Set(to)
	l.json.Store(format == "json")
}

// Logger is the log as packages use it.
func (l *Logs) Logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: &l.level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindString {
			a.Value = slog.StringValue(secret.Hide(a.Value.String()))
		}
		return a
	}}
	return slog.New(handler{logs: l, text: slog.NewTextHandler(l.out, options), json: slog.NewJSONHandler(l.out, options)})
}

// handler writes each record in the form that holds at that moment.
type handler struct {
	logs       *Logs
	text, json slog.Handler
}

// Enabled reports whether a level is logged.
func (h handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.logs.level.Level()
}

// Handle writes a record.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if h.logs.json.Load() {
		return h.json.Handle(ctx, r)
	}
	return h.text.Handle(ctx, r)
}

// WithAttrs is the handler of a logger with attributes of its own.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.logs, h.text.WithAttrs(attrs), h.json.WithAttrs(attrs)}
}

// WithGroup is the handler of a logger whose attributes are in a group.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.logs, h.text.WithGroup(name), h.json.WithGroup(name)}
}
