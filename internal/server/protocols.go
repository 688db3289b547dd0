package server

import (
	"context"

	"signalbox/internal/harness"
	"signalbox/internal/mail"
	"signalbox/internal/notify/telegram"
	"signalbox/internal/protocol"
	"signalbox/internal/proxy"
	"signalbox/internal/run"
	"signalbox/internal/run/bridge"
	"signalbox/internal/run/schedule"
	"signalbox/internal/signal"
	"signalbox/internal/task"
)

// Protocols is the list of protocols, unopened: their tables, state and names. Commands
// use it without a server. A new protocol is a package and an entry in protocols.
func Protocols() protocol.List { return new(services).protocols(&Config{}) }

// services are the opened protocols under their own types, for those that need a particular one: the dashboard, and
// protocols that use another, such as the proxy for prices. A field is nil until its protocol is opened.
type services struct {
	signals *signal.Signals
	proxy   *proxy.Proxy
	harness *harness.Harness
	mail    *mail.Mail
	tasks   *task.Tasks
	runs    *run.Runs

	schedules *schedule.Schedules
	chats     *bridge.Bridge

	bot *telegram.Bot // of the notifications, which is opened before all of them; nil if there is none
}

// protocols lists the protocols with their open functions. They are opened in this order, so one that uses another
// has to be after it. The open functions run later, when the fields of s before them are set.
func (s *services) protocols(c *Config) protocol.List {
	return protocol.List{
		opens(signal.Protocol(), &s.signals, func(_ context.Context, core protocol.Core) (*signal.Signals, error) {
			return signal.New(core, signal.Options{
				Strict: c.StrictSignals,
				Carried: func(ctx context.Context, agentID, run string) (bool, error) { // the proxy is opened after this
					return s.proxy.Carries(ctx, agentID, run)
				},
			}), nil
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
			return task.New(core, task.Options{
				Policy: c.tasks(), RepoRoots: c.RepoRoots, WatchEvery: watchEvery, Mirror: c.TaskMirror,
				RequireGit: c.RequireGit == "true" || c.RequireGit == "auto" && len(c.RepoRoots) > 0,
			}), nil
		}),
		opens(run.Protocol(), &s.runs, func(_ context.Context, core protocol.Core) (*run.Runs, error) {
			return s.openRuns(core, c), nil
		}),
		opens(schedule.Protocol(), &s.schedules, func(_ context.Context, core protocol.Core) (*schedule.Schedules, error) {
			return schedule.New(core, s.runs), nil
		}),
		opens(bridge.Protocol(), &s.chats, func(_ context.Context, core protocol.Core) (*bridge.Bridge, error) {
			return s.openChats(core, c), nil
		}),
	}
}

// opens is a protocol with its open function. The opened service is also stored in into,
// under its own type; protocol.List only knows the interface.
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
