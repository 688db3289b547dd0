package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/harness"
	"signalbox/internal/protocol"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/bridge"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/sandbox"
	"signalbox/internal/wire"
)

// Runs are the settings of runs of agent CLIs: limits, the folders in which they may
// start, and one block per engine. A limit of 0 is no limit.
type Runs struct {
	Engines map[string]engine.Settings
	Budget  run.Budget
	Daily   run.Budget
	Folders []string
	// How long an agent may take until it says something, be silent, and take in all; engines may have others.
	StartTimeout, IdleTimeout, TotalTimeout time.Duration
	Telegram                                string // who starts runs through the bot of notify.telegram: admins, true for operators, false for nobody
}

// runSettings are the keys under runs.
func runSettings() []Setting {
	money := func(key, meaning string, field func(*Runs) *float64) Setting {
		return Setting{
			Key: key, Default: "0", Meaning: meaning,
			set: func(c *Config, v string) (err error) {
				if *field(&c.Runs), err = strconv.ParseFloat(v, 64); err != nil || *field(&c.Runs) < 0 || *field(&c.Runs) > 1e6 {
					return fmt.Errorf("should be dollars such as 2.50, or 0 for no limit")
				}
				return nil
			},
			get: func(c *Config) string { return strconv.FormatFloat(*field(&c.Runs), 'f', -1, 64) },
		}
	}
	count := func(key, meaning string, field func(*Runs) *int64) Setting {
		return Setting{
			Key: key, Default: "0", Meaning: meaning,
			set: func(c *Config, v string) (err error) {
				if *field(&c.Runs), err = strconv.ParseInt(v, 10, 64); err != nil || *field(&c.Runs) < 0 {
					return fmt.Errorf("should be a whole number of tokens, or 0 for no limit")
				}
				return nil
			},
			get: func(c *Config) string { return strconv.FormatInt(*field(&c.Runs), 10) },
		}
	}
	all := []Setting{
		{
			Key: "runs.folders", Default: "",
			Meaning: "folders in which POST /runs may start runs, with commas between; nowhere when empty", List: true,
			set: setFolders, get: func(c *Config) string { return strings.Join(c.Runs.Folders, ",") },
		},
		choice("runs.telegram", telegramAdmins, []string{telegramAdmins, "true", "false"},
			"who may start runs by messages to the bot of notify.telegram: admins of all workspaces, all operators (true) or nobody (false)",
			func(c *Config) *string { return &c.Runs.Telegram }),
		money("runs.budget_usd", "the most dollars that one run may use; 0 is no limit", func(r *Runs) *float64 {
			return &r.Budget.USD
		}),
		count("runs.budget_tokens", "the most tokens that one run may use; 0 is no limit", func(r *Runs) *int64 {
			return &r.Budget.Tokens
		}),
		money("runs.daily_usd", "the most dollars that the runs of a workspace may use in a day; 0 is no limit",
			func(r *Runs) *float64 {
				return &r.Daily.USD
			}),
		count("runs.daily_tokens", "the most tokens that the runs of a workspace may use in a day; 0 is no limit",
			func(r *Runs) *int64 {
				return &r.Daily.Tokens
			}),
	}
	for _, one := range limits {
		all = append(all, Setting{
			Key: "runs." + one.name, Default: one.absent, Meaning: one.meaning,
			set: func(c *Config, v string) (err error) {
				*one.of(&c.Runs), err = engine.ParseLimit(one.name, v)
				return err
			},
			get: func(c *Config) string { return one.of(&c.Runs).String() },
		})
	}
	for _, e := range engine.All() {
		all = append(append(all, engineSettings(e)...), limitSettings(e)...)
	}
	return all
}

// limits are the settings of time, which engines may have others of.
var limits = []struct {
	name, absent, meaning string
	of                    func(*Runs) *time.Duration
	own                   func(*engine.Settings) **time.Duration
}{
	{
		"start_timeout", "90s", "how long an agent may take to say something before its run is stopped",
		func(r *Runs) *time.Duration { return &r.StartTimeout },
		func(s *engine.Settings) **time.Duration { return &s.StartTimeout },
	},
	{
		"idle_timeout", "30m", "how long an agent may be silent before its run is stopped, while nobody is asked; 0 is no limit",
		func(r *Runs) *time.Duration { return &r.IdleTimeout },
		func(s *engine.Settings) **time.Duration { return &s.IdleTimeout },
	},
	{
		"total_timeout", "24h", "how long a run may take, without the time in which somebody is asked; 0 is no limit",
		func(r *Runs) *time.Duration { return &r.TotalTimeout },
		func(s *engine.Settings) **time.Duration { return &s.TotalTimeout },
	},
}

// Limits are those of a run of an engine.
func (r *Runs) Limits(name string) run.Limits {
	var seconds [3]float64
	s := r.Engines[name]
	for i, one := range limits {
		d := one.of(r)
		if own := *one.own(&s); own != nil {
			d = own
		}
		seconds[i] = d.Seconds()
	}
	return run.Limits{Start: seconds[0], Idle: seconds[1], Total: seconds[2]}
}

// limitSettings are the limits of one engine.
func limitSettings(e *engine.Engine) (all []Setting) {
	for _, one := range limits {
		all = append(all, Setting{
			Key: "runs." + e.Name + "." + one.name, Default: "", Meaning: one.meaning + "; runs." + one.name + " when empty",
			set: func(c *Config, v string) error {
				var d *time.Duration
				if v != "" {
					limit, err := engine.ParseLimit(one.name, v)
					if err != nil {
						return err
					}
					d = &limit
				}
				c.Runs.change(e.Name, func(s *engine.Settings) { *one.own(s) = d })
				return nil
			},
			get: func(c *Config) string {
				s := c.Runs.Engines[e.Name]
				if d := *one.own(&s); d != nil {
					return d.String()
				}
				return ""
			},
		})
	}
	return all
}

// telegramAdmins is the value of runs.telegram that needs nothing but a bot: such an admin may do everything anyway.
const telegramAdmins = "admins"

// modes says what the setting "mode" means for each engine, since every CLI has another word for it.
var modes = map[string]string{
	"amp": "amp's mode, such as smart", "claude": "its own permission mode, where permissions is empty",
	"codex": "its own sandbox mode, where permissions is empty", "gemini": "its own approval mode, where permissions is empty", "opencode": "the agent", "pi": "the provider",
}

// engineSettings are the keys of one engine. Every engine has the same keys, also where
// one has no effect, so that the documentation is one table.
func engineSettings(e *engine.Engine) []Setting {
	text := func(key, absent, meaning string, field func(*engine.Settings) *string) Setting {
		return Setting{
			Key: "runs." + e.Name + "." + key, Default: absent, Meaning: meaning,
			set: func(c *Config, v string) error {
				c.Runs.change(e.Name, func(s *engine.Settings) { *field(s) = v })
				return nil
			},
			get: func(c *Config) string { s := c.Runs.Engines[e.Name]; return *field(&s) },
		}
	}
	flag := func(key string, absent bool, meaning string, field func(*engine.Settings) *bool) Setting {
		return Setting{
			Key: "runs." + e.Name + "." + key, Default: strconv.FormatBool(absent), Meaning: meaning,
			set: func(c *Config, v string) error {
				yes, err := strconv.ParseBool(v)
				if err != nil {
					return fmt.Errorf("should be true or false")
				}
				c.Runs.change(e.Name, func(s *engine.Settings) { *field(s) = yes })
				return nil
			},
			get: func(c *Config) string { s := c.Runs.Engines[e.Name]; return strconv.FormatBool(*field(&s)) },
		}
	}
	return []Setting{
		text("command", e.Name, "the program of "+e.Name, func(s *engine.Settings) *string { return &s.Command }),
		text("model", "", "the model; its own choice when empty", func(s *engine.Settings) *string { return &s.Model }),
		text("mode", "", modes[e.Name]+"; its own choice when empty", func(s *engine.Settings) *string { return &s.Mode }),
		{
			Key: "runs." + e.Name + ".env", Default: "", List: true,
			Meaning: "variables of the server's environment that its runs get beside those that " + e.Name +
				" needs, with commas between; a name may end with *",
			set: func(c *Config, v string) error {
				names := splitList(v)
				for _, name := range names {
					if !engine.IsVariable(name) {
						return fmt.Errorf("should be names such as SSH_AUTH_SOCK or AWS_*, none of which is one of Signalbox")
					}
				}
				c.Runs.change(e.Name, func(s *engine.Settings) { s.Env = names })
				return nil
			},
			get: func(c *Config) string { return strings.Join(c.Runs.Engines[e.Name].Env, ",") },
		},
		{
			Key: "runs." + e.Name + ".permissions", Default: "",
			Meaning: "what its agent may do: read, edit, full or supervised; edit when empty",
			set: func(c *Config, v string) (err error) {
				var mode engine.Mode
				if v != "" {
					if mode, err = engine.ParseMode(v); err != nil {
						return fmt.Errorf("should be read, edit, full or supervised")
					}
				}
				c.Runs.change(e.Name, func(s *engine.Settings) { s.Permissions = mode })
				return nil
			},
			get: func(c *Config) string { return string(c.Runs.Engines[e.Name].Permissions) },
		},
		flag("sandbox", false, "true has its runs work in a sandbox: their folder, nothing of yours, and the network as far as hosts allows",
			func(s *engine.Settings) *bool {
				return &s.Sandbox
			}),
		{
			Key: "runs." + e.Name + ".hosts", Default: "", List: true,
			Meaning: "hosts that its runs may call from their sandbox beside its provider's, with commas between, such as " +
				"packages.example.com",
			set: func(c *Config, v string) error {
				hosts := splitList(v)
				for _, host := range hosts {
					if _, err := sandbox.Target(host); err != nil {
						return fmt.Errorf("should be hosts such as packages.example.com or 127.0.0.1:4000")
					}
				}
				c.Runs.change(e.Name, func(s *engine.Settings) { s.Hosts = hosts })
				return nil
			},
			get: func(c *Config) string { return strings.Join(c.Runs.Engines[e.Name].Hosts, ",") },
		},
		flag("dangerously_allow_all", false, "true is the mode full, where permissions is empty",
			func(s *engine.Settings) *bool {
				return &s.AllowAll
			}),
		flag("stream_json_input", false, "true gives the prompt as amp's stream of JSON; other engines do not have it",
			func(s *engine.Settings) *bool {
				return &s.StreamInput
			}),
	}
}

// change changes the settings of one engine. A map of structs has no fields that can be assigned to.
func (r *Runs) change(name string, fn func(*engine.Settings)) {
	if r.Engines == nil {
		r.Engines = map[string]engine.Settings{}
	}
	s := r.Engines[name]
	fn(&s)
	r.Engines[name] = s
}

// setFolders reads absolute paths. A relative one would depend on the folder in which the server was started.
func setFolders(c *Config, v string) error {
	c.Runs.Folders = nil
	for folder := range strings.SplitSeq(v, ",") {
		if folder = strings.TrimSpace(folder); folder == "" {
			continue
		}
		if !filepath.IsAbs(folder) {
			return fmt.Errorf("should be absolute paths such as /srv/repo, with commas between")
		}
		c.Runs.Folders = append(c.Runs.Folders, folder)
	}
	return nil
}

// check finds settings of runs that have no effect without another.
func (r *Runs) check(n *Notify) error {
	if r.Telegram == "true" && n.TelegramToken.Reveal() == "" {
		return fault.New(fault.InvalidConfig,
			"runs.telegram needs notify.telegram.token. Set both, or neither.").About("notify.telegram.token")
	}
	return nil
}

// openRuns opens runs. Each run is supervised by a process of this same program, started detached, so a run survives
// a restart of the server. Runs use the machine's clock: their processes cannot be moved in time. A run of this
// machine is counted for the agent that its hooks act as, one of another machine for the agent that has its session.
func (s *services) openRuns(core protocol.Core, config *Config) *run.Runs {
	// The supervisor runs in another folder, so it needs an absolute path.
	data, _ := filepath.Abs(config.Data)
	core.Now = time.Now // a run is a process: its time cannot be set forward
	return run.New(core, run.Options{
		Budget: config.Runs.Budget, Daily: config.Runs.Daily, Folders: config.Runs.Folders, Limits: config.Runs.Limits,
		Mode: func(name string, asked engine.Mode) engine.Mode {
			e, err := engine.Find(name)
			if err != nil {
				return asked
			}
			return e.ModeOf(asked, config.Runs.Engines[name])
		},
		Sandboxed: func(name string) bool { return config.Runs.Engines[name].Sandbox },
		AgentOf: func(ctx context.Context, r run.Run) string {
			if host, err := os.Hostname(); r.Host == "" || err == nil && r.Host == host {
				local, _ := core.Roster.Named(ctx, roster.DefaultWorkspace, config.Harness.SocketAgent)
				return local.ID // empty until a hook has called
			}
			session, _ := s.harness.Session(ctx, r.Resume, harness.SessionFilter{})
			return session.AgentID
		},
		Vault: func(ctx context.Context, workspace, provider string) bool {
			all, err := s.proxy.Keys(wire.WithScope(ctx, "")) // a key of all workspaces is one of this
			return err == nil && slices.ContainsFunc(all.Keys, func(k proxy.ProviderKey) bool {
				return k.Provider == provider && k.Readable && (k.Workspace == "" || k.Workspace == workspace)
			})
		},
		KeyOwner:  func(ctx context.Context, sum string) (roster.Identity, error) { return s.proxy.KeyOwner(ctx, sum) },
		Addresses: []string{core.BaseURL, "http://" + config.Listen},
		HooksOf: func(ctx context.Context, workspace, named string) (roster.Identity, error) {
			if named != "" && named != config.Harness.SocketAgent {
				return core.Roster.ByID(ctx, workspace, named)
			}
			return s.harness.LocalAgent(ctx, "")
		},
		Supervise: func(id string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			args := []string{"run", "supervise", id, "--data", data}
			if config.File != "" {
				args = append(args, "--config", config.File)
			}
			return run.Detached(filepath.Join(data, "runs", id+".log"), self, args...)
		},
	})
}

// openChats lets people start runs from Telegram, unless the configuration says otherwise. It uses the bot of the
// notifications: Telegram delivers the messages of a bot to one reader only. Without folders of runs they work in one
// of their own, where POST /runs may start none.
func (s *services) openChats(core protocol.Core, config *Config) *bridge.Bridge {
	o := bridge.Options{
		Folders: config.Runs.Folders, Engine: config.Runs.installed, Admins: config.Runs.Telegram == telegramAdmins,
	}
	if config.Runs.Telegram != "false" {
		o.Bot = s.bot
	}
	if home, err := os.UserHomeDir(); err == nil {
		o.Home = filepath.Join(home, "signalbox-runs")
	}
	return bridge.New(core, s.runs, o)
}

// installed is the first engine whose program is there, "" if none is.
func (r *Runs) installed() string {
	for _, e := range engine.All() {
		if _, err := exec.LookPath(cmp.Or(r.Engines[e.Name].Command, e.Name)); err == nil {
			return e.Name
		}
	}
	return ""
}
