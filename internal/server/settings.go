package server

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/reload"
	"signalbox/internal/roster"
	"signalbox/internal/server/access"
	"signalbox/internal/wire"
)

// Setting is one configuration key. set checks a value and stores it in a Config; its error continues a sentence that
// begins with the key ("should be …"). get is the value as text, in a form that set accepts, with secrets redacted. A
// key must not be renamed: files and environments of users have it.
type Setting struct {
	Key     string
	Default string
	Meaning string
	Secret  bool
	List    bool // may be a list in the file
	set     func(*Config, string) error
	get     func(*Config) string
}

// Env is the environment variable of the key, such as SIGNALBOX_LEDGER_RETENTION.
func (s Setting) Env() string {
	return "SIGNALBOX_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Settings lists every key, in the order in which `config show` and the documentation show them. The data folder has
// to be the first: Load and package command rely on it, because the configuration file is in that folder.
var Settings = slices.Concat([]Setting{
	text("data", "./signalbox-data", "the data folder", func(c *Config) *string { return &c.Data }),
	{
		Key: "listen", Default: "127.0.0.1:7446", Meaning: "the address to listen on", set: setListen,
		get: func(c *Config) string {
			return c.Listen
		},
	},
	{
		Key: "db", Default: "", Meaning: "postgres://user:password@host/name; SQLite in the data folder when empty",
		Secret: true,
		set:    func(c *Config, v string) error { c.DB = wire.NewSecret(v); return nil },
		get:    func(c *Config) string { return c.DB.String() },
	},
	{
		Key: "public_url", Default: "", Meaning: "the address by which others reach this server; made from listen when empty",
		set: setPublicURL, get: func(c *Config) string {
			return c.PublicURL
		},
	},
	text("tls.cert", "", "a certificate file in PEM form; with tls.key the server speaks HTTPS", func(c *Config) *string {
		return &c.TLSCert
	}),
	text("tls.key", "", "the private key of the certificate", func(c *Config) *string { return &c.TLSKey }),
}, edgeSettings(), []Setting{
	{
		Key: "ledger.retention", Default: "none",
		Meaning: "how long the bodies of entries are kept, such as 90d; records and proofs stay", set: setRetention,
		get: func(c *Config) string {
			return formatDuration(c.Retention)
		},
	},
	flag(
		"secrets.keep",
		"keep credentials in what agents say, instead of replacing them by their kind",
		func(c *Config) *bool {
			return &c.KeepSecrets
		},
	),
	{
		Key: "mail.provider", Default: "signalbox.local",
		Meaning: "our domain in the addresses of agents; existing addresses stay", set: setProvider,
		get: func(c *Config) string {
			return c.Provider
		},
	},
	{
		Key: "mail.alias_domains", Default: "aimaestro.local",
		Meaning: "further domains of this provider, which some clients write by default, with commas between", List: true,
		set: setAliases, get: func(c *Config) string { return strings.Join(c.Aliases, ",") },
	},
	choice("mail.registration", byReach, append([]string{byReach}, directory.Modes...),
		"who may register agents; "+byReach+" is open while only this machine can reach the server, else owner",
		func(c *Config) *string {
			return &c.Registration
		}),
	choice("mail.signatures", "optional", []string{"optional", "required"}, "whether messages have to be signed",
		func(c *Config) *string {
			return &c.Signatures
		}),
	{
		Key: "mail.keep", Default: "30d",
		Meaning: "how long payloads of acknowledged mail are kept, such as 30d; " + untilAck + " keeps none, none keeps all",
		set:     setKeep, get: getKeep,
	},
	choice("mail.federation", federation.Closed, federation.Modes, "which other providers mail is exchanged with",
		func(c *Config) *string {
			return &c.Federation.Mode
		}),
	{
		Key: "mail.peers", Default: "",
		Meaning: "providers that are listed, with commas between: crabmail.ai, or " +
			"crabmail.ai=https://mail.crabmail.ai for where it is reached", List: true,
		set: setPeers, get: getPeers,
	},
	text("mail.registry", "", "the address of a registry of providers; none when empty", func(c *Config) *string {
		return &c.Federation.Registry
	}),
	{
		Key: "limits.per_agent", Default: byProtocol,
		Meaning: "how many requests, and how many messages, an agent may make per minute on each node; 0 is no limit, " +
			byProtocol + " what each protocol says", set: setPerAgent, get: getPerAgent,
	},
	{
		Key: "webhooks.allow", Default: "",
		Meaning: "private hosts and networks that outgoing calls may reach, with commas " +
			"between; loopback too while only this machine can reach the server", List: true,
		set: func(c *Config, v string) error { c.Allow = splitList(v); return nil },
		get: func(c *Config) string { return strings.Join(c.Allow, ",") },
	},
	flag("signals.strict", "true refuses signals with fields that AMP does not have; else they are kept, with a warning",
		func(c *Config) *bool {
			return &c.StrictSignals
		}),
	onByDefault(flag("tasks.plan_approval",
		"whether a person approves the plan of every task that no rule of the policy "+
			"allows; with false, of those that a rule gates", func(c *Config) *bool { return &c.PlanApproval })),
	{
		Key: "tasks.lock_after", Default: "3", Meaning: "how many rejects in a row lock a task", set: setLockAt,
		get: func(c *Config) string { return strconv.Itoa(c.LockAt) },
	},
	{
		Key: "tasks.repo_roots", Default: "",
		Meaning: "folders in which the git repositories of tasks are looked into, with commas between; none when empty",
		List:    true,
		set:     setRepoRoots, get: func(c *Config) string { return strings.Join(c.RepoRoots, ",") },
	},
	choice("tasks.require_git", "auto", []string{"auto", "true", "false"},
		"whether what is said of commits is refused where git cannot look; auto is true when tasks.repo_roots is set",
		func(c *Config) *string { return &c.RequireGit }),
}, harnessSettings(), []Setting{
	{
		Key: "tasks.mirror", Default: "",
		Meaning: "a folder that becomes a git repository with every task and message, one " +
			"commit for each event; none when empty", set: setTaskMirror, get: func(c *Config) string {
			return c.TaskMirror
		},
	},
	flag("clock.movable",
		"true lets an admin set the server's clock forward, for conformance tests; never for a server that matters",
		func(c *Config) *bool {
			return &c.MovableClock
		}),
	choice("log.level", "info", []string{"debug", "info", "warn", "error"}, "how much is logged", func(c *Config) *string {
		return &c.LogLevel
	}),
	choice("log.format", "text", []string{"text", "json"}, "the format of the log", func(c *Config) *string {
		return &c.LogFormat
	}),
	text("log.access", access.Off, "where the access log goes, a line for each request: off, stderr, or a file, which "+
		"may be rotated", func(c *Config) *string { return &c.AccessLog }),
	choice("log.access_format", "json", access.Forms, "the format of the access log", func(c *Config) *string {
		return &c.AccessForm
	}),
}, exportSettings(), telemetrySettings(), auditSettings(), mailSettings(), proxySettings(), runSettings(), notifySettings(),
	webSettings(), userSettings(), backupSettings(), witnessSettings())

// text is a setting without a check. absent is its default.
func text(key, absent, meaning string, field func(*Config) *string) Setting {
	return Setting{
		Key: key, Default: absent, Meaning: meaning,
		set: func(c *Config, v string) error { *field(c) = v; return nil },
		get: func(c *Config) string { return *field(c) },
	}
}

// flag is a setting that is true or false, and false by default.
func flag(key, meaning string, field func(*Config) *bool) Setting {
	return Setting{
		Key: key, Default: "false", Meaning: meaning,
		set: func(c *Config, v string) (err error) {
			if *field(c), err = strconv.ParseBool(v); err != nil {
				return fmt.Errorf("should be true or false")
			}
			return nil
		},
		get: func(c *Config) string { return strconv.FormatBool(*field(c)) },
	}
}

// onByDefault makes a flag true by default.
func onByDefault(s Setting) Setting {
	s.Default = "true"
	return s
}

// choice is a setting with a fixed list of values, which its meaning names.
func choice(key, absent string, known []string, meaning string, field func(*Config) *string) Setting {
	s := text(key, absent, meaning+": "+strings.Join(known, ", "), field)
	s.set = func(c *Config, v string) error {
		if !slices.Contains(known, v) {
			return fmt.Errorf("should be one of %s", strings.Join(known, ", "))
		}
		*field(c) = v
		return nil
	}
	return s
}

// splitList splits at commas and blanks, so both "a,b" and "a, b" work. Empty items are dropped.
func splitList(v string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(v, func(r rune) bool {
		return r == ',' || r == ' '
	}), func(s string) bool { return s == "" })
}

// untilAck keeps payloads only until they are acknowledged.
const untilAck = "until-ack"

// setKeep reads how long payloads are kept. In Config, 0 means until acknowledged and -1 means for ever.
func setKeep(c *Config, v string) (err error) {
	if v == untilAck {
		c.Keep = 0
		return nil
	}
	if c.Keep, err = parseDuration(v); err == nil && c.Keep == 0 {
		c.Keep = -1
	}
	return err
}

// getKeep is the inverse of setKeep.
func getKeep(c *Config) string {
	switch {
	case c.Keep == 0:
		return untilAck
	case c.Keep < 0:
		return "none"
	}
	return formatDuration(c.Keep)
}

// keep is how long payloads are kept. It is never longer than ledger.retention: a
// promise to erase bodies holds for mail too.
func (c *Config) keep() time.Duration {
	if c.Retention > 0 && (c.Keep < 0 || c.Keep > c.Retention) {
		return c.Retention
	}
	return c.Keep
}

// setAliases reads domains that are treated as our own.
func setAliases(c *Config, v string) error {
	list := splitList(strings.ToLower(v))
	for _, domain := range list {
		if len(domain) > maxProvider || !domainForm.MatchString(domain) {
			return fmt.Errorf("should be domain names with a dot in them, such as aimaestro.local")
		}
	}
	c.Aliases = list
	return nil
}

// setPeers reads other providers. One without an address is found through DNS, the registry, or its own domain.
func setPeers(c *Config, v string) error {
	c.Federation.Peers = map[string]string{}
	for _, item := range splitList(v) {
		domain, address, _ := strings.Cut(item, "=")
		u, err := url.Parse(address)
		if domain = strings.ToLower(domain); !domainForm.MatchString(domain) ||
			address != "" && (err != nil || u.Host == "") {
			return fmt.Errorf("should be domain names, such as crabmail.ai or crabmail.ai=https://mail.crabmail.ai")
		}
		c.Federation.Peers[domain] = strings.TrimSuffix(address, "/")
	}
	return nil
}

// getPeers is the list in the form that setPeers reads, sorted.
func getPeers(c *Config) string {
	var list []string
	for _, domain := range slices.Sorted(maps.Keys(c.Federation.Peers)) {
		if address := c.Federation.Peers[domain]; address != "" {
			domain += "=" + address
		}
		list = append(list, domain)
	}
	return strings.Join(list, ",")
}

// setListen reads an address and a port. Port 0 is any free port, for tests.
func setListen(c *Config, v string) error {
	_, port, err := net.SplitHostPort(v)
	if n, e := strconv.Atoi(port); err != nil || e != nil || n < 0 || n > 65535 {
		return fmt.Errorf("should be an address and a port, such as 127.0.0.1:7446, or :7446 for every address")
	}
	c.Listen = v
	return nil
}

// setPublicURL reads the address for links, and drops a slash at its end.
func setPublicURL(c *Config, v string) error {
	if v != "" {
		if u, err := url.Parse(v); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("should be an address such as https://signalbox.example.com")
		}
	}
	c.PublicURL = strings.TrimSuffix(v, "/")
	return nil
}

// domainForm is a domain name in lower case with at least one dot, without a dot at its end.
var domainForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// maxProvider leaves room for the longest name and workspace in an address, which has 254 characters at the most.
const maxProvider = 254 - 2*64

// setProvider reads our domain in addresses of mail. Agents keep the addresses that they have.
func setProvider(c *Config, v string) error {
	if len(v) > maxProvider || !domainForm.MatchString(v) {
		return fmt.Errorf("should be a domain name in lower case with a dot in it, such as "+
			"agents.example.com, of at most %d characters", maxProvider)
	}
	c.Provider = v
	return nil
}

// byProtocol leaves the limit to each protocol, which names one in its document or has none.
const byProtocol = "protocol"

// setPerAgent reads the limit in calls per minute; nil in Config is byProtocol.
func setPerAgent(c *Config, v string) error {
	if v == byProtocol {
		c.PerAgent = nil
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > roster.MaxRateLimit {
		return fmt.Errorf("should be a whole number from 0, for no limit, to %d, or %s for what each protocol says",
			roster.MaxRateLimit, byProtocol)
	}
	c.PerAgent = &n
	return nil
}

// getPerAgent is the inverse of setPerAgent.
func getPerAgent(c *Config) string {
	if c.PerAgent == nil {
		return byProtocol
	}
	return strconv.FormatInt(*c.PerAgent, 10)
}

// setRetention reads how long bodies of entries are kept; 0 is for ever.
func setRetention(c *Config, v string) (err error) {
	c.Retention, err = parseDuration(v)
	return err
}

// parseDuration reads a length of time: 30d, 12h, 90m, or none, which is 0. Days are 24
// hours. A zero or negative length is refused, because nobody means it.
func parseDuration(v string) (time.Duration, error) {
	if v == "none" || v == "" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(v, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n < 100_000 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(v); err == nil && d > 0 {
		return d, nil
	}
	return 0, fmt.Errorf("should be a length of time such as 30d or 12h, or none")
}

// formatDuration writes a length of time in the form that parseDuration reads.
func formatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "none"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return d.String()
}

// Keys lists the names of all settings, in their order. Suggestions for unknown keys come from it.
func Keys() []string {
	var keys []string
	for _, s := range Settings {
		keys = append(keys, s.Key)
	}
	return keys
}

// SettingValue is a setting as it is in force. A secret is redacted. Source is the flag,
// the variable, FILE:LINE, or "default".
type SettingValue struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Source  string `json:"source"`
	Meaning string `json:"meaning"`
	// TakesEffect says when a change does: restart, confirmed (with a reload, once an operator has confirmed the file),
	// or at_once (with every reload).
	TakesEffect reload.When `json:"takes_effect"`
}

// SettingList is every setting, in the order of Settings.
type SettingList struct {
	Settings []SettingValue `json:"settings"`
}

// InForce lists every setting with its value and source: what `config show` and /ops/settings print.
func (c *Config) InForce() (all SettingList) {
	for _, s := range Settings {
		all.Settings = append(all.Settings, SettingValue{s.Key, s.get(c), c.Sources[s.Key], s.Meaning, s.Reload()})
	}
	return all
}
