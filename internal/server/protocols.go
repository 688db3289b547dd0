package server

import (
	"context"

	"signalbox/internal/harness"
	"signalbox/internal/mail"
	"signalbox/internal/protocol"
	"signalbox/internal/proxy"
	"signalbox/internal/run"
	"signalbox/internal/signal"
	"signalbox/internal/task"
)

// Protocols is the list: a new protocol is a folder and an entry here. Without a server it
// says what tables and what state there are.
func Protocols() protocol.List { return new(services).protocols(&Config{}) }

// services are the open protocols, for what has to know one of them: the dashboard, and
// those that ask another, such as the proxy for prices.
type services struct {
	signals *signal.Signals
	proxy   *proxy.Proxy
	harness *harness.Harness
	mail    *mail.Mail
	tasks   *task.Tasks
	runs    *run.Runs
}

// protocols is the list, each with how it is opened. Those that ask another stand after it.
func (s *services) protocols(c *Config) protocol.List {
	return protocol.List{
		opens(signal.Protocol(), &s.signals, func(_ context.Context, core protocol.Core) (*signal.Signals, error) {
			return signal.New(core, signal.Options{Strict: c.StrictSignals})
		}),
		opens(proxy.Protocol(), &s.proxy, func(_ context.Context, core protocol.Core) (*proxy.Proxy, error) {
			return openProxy(core, c, s.signals)
		}),
		opens(harness.Protocol(), &s.harness, func(_ context.Context, core protocol.Core) (*harness.Harness, error) {
			return openHarness(core, c), nil
		}),
		opens(mail.Protocol(), &s.mail, func(ctx context.Context, core protocol.Core) (*mail.Mail, error) {
			return openMail(ctx, core, c)
		}),
		opens(task.Protocol(), &s.tasks, func(_ context.Context, core protocol.Core) (*task.Tasks, error) {
			return task.New(core,
				task.Options{Policy: c.tasks(), RepoRoots: c.RepoRoots, WatchEvery: watchEvery, Mirror: c.TaskMirror}), nil
		}),
		opens(run.Protocol(), &s.runs, func(_ context.Context, core protocol.Core) (*run.Runs, error) {
			return openRuns(core, c, s.signals), nil
		}),
	}
}

// opens is a protocol with how it is opened; the service is kept under its own type, too.
func opens[S protocol.Service](p protocol.Protocol, into *S,
	open func(context.Context, protocol.Core) (S, error),
) protocol.Protocol {
	p.Open = func(ctx context.Context, core protocol.Core) (protocol.Service, error) {
		s, err := open(ctx, core)
		*into = s
		return s, err
	}
	return p
}
