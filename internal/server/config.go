package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/backup"
	"signalbox/internal/drift"
	"signalbox/internal/fault"
	"signalbox/internal/file"
	"signalbox/internal/harness"
	"signalbox/internal/kin"
	"signalbox/internal/mail/federation"
	"signalbox/internal/oidc"
	"signalbox/internal/reload"
	"signalbox/internal/web"
	"signalbox/internal/wire"
)

// Config is the configuration in force. Load makes it, and it does not change afterwards: a reload makes another.
// Values are checked; services do not check them again. Sources and Warnings are for people.
type Config struct {
	Data          string
	Listen        string
	DB            wire.Secret // "" is SQLite in the data folder
	PublicURL     string
	TLSCert       string
	TLSKey        string
	Proxies       []netip.Prefix // whose X-Forwarded headers are believed
	Hosts         []string       // further names of this server
	Metrics       string         // who may read /metrics
	Shared        string         // a folder for users whom it lets in; the data folder when empty
	URLKeys       bool           // keys may be part of an address
	Retention     time.Duration  // 0 is for ever
	Audit         Audit
	KeepSecrets   bool // what agents say is kept with its credentials
	Provider      string
	Aliases       []string // domains that mean us too
	Registration  string
	Signatures    string
	Federation    federation.Peering
	Mail          MailConfig
	Keep          time.Duration // of payloads after a message's end; less than 0 is for ever
	PerAgent      *int64        // a minute, 0 for none; nil leaves it to the protocols
	Allow         []string      // private hosts and networks that outgoing calls may reach
	Harness       harness.Config
	HookIntact    func(kin.Hook) error // says what is wrong with installed hooks; nil looks at none
	StrictSignals bool
	PlanApproval  bool     // a person approves the plan of every task that no rule allows
	LockAt        int      // rejects in a row that lock a task
	RepoRoots     []string // folders in which the repositories of tasks are looked into
	RequireGit    string   // auto, true or false: whether what nobody can verify of commits is refused
	TaskMirror    string   // a folder that becomes a git repository with every task
	Witness       Witness
	MovableClock  bool          // an admin may set the clock forward, for conformance tests
	Machine       drift.Machine // what tells the time; the zero one is this machine, and tests have their own
	LogLevel      string
	LogFormat     string
	AccessLog     string // off, stderr or a file
	AccessForm    string
	Export        Export
	OTLP          string // a collector of OpenTelemetry
	OTLPHeaders   wire.Secret
	Notify        Notify
	Runs          Runs
	OIDC          web.OIDC
	UserIssuers   []oidc.Issuer       // whose tokens prove who a user is
	Proxy         map[string]Upstream // by provider
	Backup        backup.Config

	// File is the configuration file that was named, with its whole path; "" for that of the data folder. sum is the
	// SHA-256 of the file that was read, in hex, "" if there is none.
	File, sum string
	// raw has the value of each key, as it was read.
	raw map[string]wire.Secret
	// Again reads the configuration once more, from where this one came, and Hangup brings signals to do so. A nil
	// Again is that of a server that cannot.
	Again  func() (*Config, error)
	Hangup <-chan os.Signal
	logs   *reload.Logs
	// Sources says where each value came from, by key.
	Sources map[string]string
	// Warnings are things that are not errors but should be said.
	Warnings []string
}

// FileSum is the SHA-256 of the configuration file that was read, in hex, "" if there is none.
func (c *Config) FileSum() string { return c.sum }

// ConfigFile is the name of the configuration file in the data folder. It may hold
// secrets, so this program writes it readable for the owner only.
const ConfigFile = "signalbox.yaml"

// Value is the value of a key as text, with secrets redacted, or "" for a key that does not exist.
func (c *Config) Value(key string) string {
	for _, s := range Settings {
		if s.Key == key {
			return s.get(c)
		}
	}
	return ""
}

// Load decides about every key, in this order: flag, environment, file, default. An empty variable counts as not set,
// since container systems set variables to "". path is --config; if it is "", the file in the data folder is read, if
// it exists. The first value that is not valid is the error; its text names the source, because the same key may be
// set in three places.
func Load(flags map[string]string, env []string, path string) (*Config, error) {
	c := &Config{Sources: map[string]string{}, raw: map[string]wire.Secret{}}
	environment := map[string]string{}
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok {
			environment[name] = value
		}
	}
	// pick decides about one key. The value of a secret is never part of an error.
	pick := func(s Setting, fromFile map[string]fileValue) error {
		value, source := s.Default, "default"
		if v, ok := fromFile[s.Key]; ok {
			value, source = v.text, v.where
		}
		if v := environment[s.Env()]; v != "" {
			value, source = v, s.Env()
		}
		if v, ok := flags[s.Key]; ok {
			value, source = v, "--"+flagName(s.Key)
		}
		if err := s.set(c, value); err != nil {
			shown := fmt.Sprintf(", and is %q", value)
			if s.Secret {
				shown = ""
			}
			return fault.New(fault.InvalidConfig, "%s (from %s) %s%s.", s.Key, source, err, shown).About(s.Key)
		}
		c.Sources[s.Key], c.raw[s.Key] = source, wire.NewSecret(value)
		return nil
	}
	// The data folder is settled first, since it may hold the file.
	if err := pick(Settings[0], nil); err != nil {
		return nil, err
	}
	values, err := c.readFile(path)
	if err != nil {
		return nil, err
	}
	if path != "" {
		if c.File, err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	for _, s := range Settings {
		if err := pick(s, values); err != nil {
			return nil, err
		}
	}
	// Settings that need each other can be checked only after all are read.
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, fault.New(fault.InvalidConfig,
			"tls.cert and tls.key go together. Give both, or neither.").About("tls.key")
	}
	if err := c.Witness.check(); err != nil {
		return nil, fault.New(fault.InvalidConfig, "%s.", err).About("witness.quorum")
	}
	if err := errors.Join(c.Mail.check(), c.Notify.check(), c.Runs.check(&c.Notify), c.Backup.Check()); err != nil {
		return nil, err
	}
	c.Warnings = unknownEnv(environment)
	return c, nil
}

// flagName is the flag of a key. Package command makes flags by the same rule.
func flagName(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// clientEnv are variables that the command line reads and the server does not. They are
// known, so they cause no warning.
var clientEnv = []string{"SIGNALBOX_SERVER", "SIGNALBOX_TOKEN", "SIGNALBOX_KEY", "SIGNALBOX_CONFIG", "SIGNALBOX_RUN"}

// unknownEnv finds variables that begin with SIGNALBOX_ and are not known, most often typing mistakes. They are
// warnings and not errors: the environment belongs to others too.
func unknownEnv(environment map[string]string) (warnings []string) {
	known := slices.Clone(clientEnv)
	for _, s := range Settings {
		known = append(known, s.Env())
	}
	for name := range environment {
		if strings.HasPrefix(name, "SIGNALBOX_") && !strings.HasPrefix(name, "SIGNALBOX_TEST_") &&
			!slices.Contains(known, name) {
			warnings = append(warnings,
				fmt.Sprintf("The environment variable %s is not known. %s", name, fault.DidYouMean(name, known)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// fileValue is a value in the file, as text, and its place as FILE:LINE.
type fileValue struct{ text, where string }

// readFile reads the configuration file. One that was named has to exist. The one in the
// data folder may be missing, and so may the folder itself, before the first start.
func (c *Config) readFile(path string) (map[string]fileValue, error) {
	explicit := path != ""
	if !explicit {
		path = filepath.Join(c.Data, ConfigFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		if _, noFolder := os.Stat(c.Data); !explicit && (os.IsNotExist(err) || noFolder != nil) {
			return nil, nil //nolint:nilerr // a folder that cannot be used is reported by whoever uses it
		}
		return nil, fault.Wrap(err, fault.InvalidConfig,
			"Cannot read the configuration file %s. Check that it exists and that this user may read it.", path)
	}
	digest := sha256.Sum256(content)
	c.sum = hex.EncodeToString(digest[:])
	return parseFile(path, content)
}

// CheckFile checks a configuration file without applying it, and counts its keys. Settings that need each other are
// not checked, because the others may come from flags or the environment.
func CheckFile(path string, content []byte) (keys int, err error) {
	values, err := parseFile(path, content)
	return len(values), err
}

// parseFile reads a file and checks names and values. Values are tried on a scratch
// configuration, so the checks are the very ones of the start.
func parseFile(path string, content []byte) (map[string]fileValue, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, fault.New(fault.InvalidConfig, "%s is not valid YAML: %s.", path,
			strings.TrimPrefix(err.Error(), "yaml: "))
	}
	values := map[string]fileValue{}
	if len(root.Content) == 0 {
		return values, nil
	}
	if err := flatten(path, "", root.Content[0], values); err != nil {
		return nil, err
	}
	// In the order of Settings, so that the same file always gives the same error.
	scratch := &Config{}
	for _, s := range Settings {
		if v, ok := values[s.Key]; ok {
			if err := s.set(scratch, v.text); err != nil {
				return nil, fault.New(fault.InvalidConfig, "%s: %s %s.", v.where, s.Key, err).About(s.Key)
			}
		}
	}
	return values, nil
}

// flatten turns nested maps into dotted keys, and refuses unknown and duplicate ones: a
// key that is silently ignored may be the one that was meant to protect something.
func flatten(path, prefix string, n *yaml.Node, values map[string]fileValue) error {
	if n.Kind != yaml.MappingNode {
		return fault.New(fault.InvalidConfig,
			"%s:%d: expected keys and values, such as \"listen: 127.0.0.1:7446\".", path, n.Line)
	}
	keys := Keys()
	for i := 0; i < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key := prefix + k.Value
		where := fmt.Sprintf("%s:%d", path, k.Line)
		// Both spellings are allowed: "ledger.retention: 90d", and ledger with retention below it.
		group := slices.ContainsFunc(keys, func(known string) bool { return strings.HasPrefix(known, key+".") })
		switch {
		case group && v.Kind == yaml.MappingNode:
			if err := flatten(path, key+".", v, values); err != nil {
				return err
			}
		case !slices.Contains(keys, key):
			return fault.New(fault.InvalidConfig, "%s: the key %q is not known. %s", where, key,
				fault.DidYouMean(key, keys)).About(key)
		case v.Kind == yaml.SequenceNode && isList(key):
			var items []string
			for _, n := range v.Content {
				text, err := itemText(n)
				if err != nil {
					return fault.New(fault.InvalidConfig, "%s: %s should be a list of texts.", where, key).About(key)
				}
				items = append(items, text)
			}
			// Lists have one form after this: the one that flags and the environment have.
			values[key] = fileValue{strings.Join(items, ","), where}
		case v.Kind != yaml.ScalarNode:
			return fault.New(fault.InvalidConfig, "%s: %s should be one value.", where, key).About(key)
		default:
			if _, twice := values[key]; twice {
				return fault.New(fault.InvalidConfig, "%s: duplicate key %q.", where, key).About(key)
			}
			values[key] = fileValue{v.Value, where}
		}
	}
	return nil
}

// isList reports whether a key takes a list.
func isList(key string) bool {
	return slices.ContainsFunc(Settings, func(s Setting) bool { return s.Key == key && s.List })
}

// WriteConfig replaces a configuration file, or the one that it is a link to. It is for the owner alone, since it may hold
// passwords and tokens.
func WriteConfig(path string, content []byte) error {
	if linked, err := filepath.EvalSymlinks(path); err == nil {
		path = linked
	}
	return file.Replace(path, content, 0o600)
}

// SetInFile changes one key in a configuration file and returns the new content. It works on the YAML tree, so
// comments and the order of keys stay. The result is parsed before it is returned. Nothing is written.
func SetInFile(path string, content []byte, key, value string) ([]byte, error) {
	if !slices.Contains(Keys(), key) {
		return nil, fault.New(fault.InvalidConfig, "The key %q is not known. %s", key,
			fault.DidYouMean(key, Keys())).About(key)
	}
	// The file is found through this key.
	if key == "data" {
		return nil, fault.New(fault.InvalidConfig,
			"The data folder holds this file, so it is set with --data or SIGNALBOX_DATA.").About(key)
	}
	if _, err := parseFile(path, content); err != nil {
		return nil, err
	}
	var root yaml.Node
	_ = yaml.Unmarshal(content, &root) // parseFile has read it already
	if len(root.Content) == 0 {
		root = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	at := root.Content[0]
	parts := strings.Split(key, ".")
	if slices.ContainsFunc(at.Content, func(n *yaml.Node) bool { return n.Value == key }) {
		parts = []string{key} // spelt with its dots in the file
	}
	for _, part := range parts[:len(parts)-1] {
		at = child(at, part, yaml.MappingNode)
	}
	leaf := child(at, parts[len(parts)-1], yaml.ScalarNode)
	// A text in every case: a version or a port that looks like a number must keep its form.
	leaf.Value, leaf.Tag, leaf.Style = value, "!!str", 0
	out, err := yaml.Marshal(&root)
	if err != nil {
		return nil, err
	}
	_, err = parseFile(path, out)
	return out, err
}

// child is the value of a key in a map. It is appended if it does not exist, or is of another kind.
func child(n *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i+1].Kind == kind {
			return n.Content[i+1]
		}
	}
	v := &yaml.Node{Kind: kind}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, v)
	return v
}
