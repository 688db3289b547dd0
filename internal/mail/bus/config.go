package bus

import (
	"cmp"
	"encoding/json" // a file that people write: unknown members are passed over
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"signalbox/internal/fault"
)

// Config is bus.json. Every member but the entity has a default, which stands for 0 and "".
type Config struct {
	Entity            string `json:"entity"`
	SocketDir         string `json:"socket_dir"`
	MaxComponents     int    `json:"max_components"`
	MaxMessageBytes   int    `json:"max_message_bytes"`
	HeartbeatInterval int64  `json:"heartbeat_interval_ms"`
	HeartbeatTimeout  int64  `json:"heartbeat_timeout_ms"`
	ShutdownTimeout   int64  `json:"shutdown_timeout_ms"`
	Gateway           struct {
		Dir           string `json:"amp_dir"`
		FetchInterval int64  `json:"auto_fetch_interval_ms"`
	} `json:"gateway"`

	socket string // the path of the socket, from AMP_BUS_SOCKET
}

// nameForm is the form of the names of entities and components.
var nameForm = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Load reads the file in AMP_BUS_CONFIG, else bus.json in the folder of all agents if it exists. The
// variables AMP_BUS_ENTITY and AMP_BUS_SOCKET come before the file; the agent's name is the last
// resort for the entity.
func Load(root, agent string, env func(string) string) (Config, error) {
	var c Config
	// A file that the variable names must exist; bus.json need not.
	path := cmp.Or(env("AMP_BUS_CONFIG"), filepath.Join(root, "bus.json"))
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &c); err != nil {
			return c, fault.Wrap(err, fault.InvalidConfig,
				"Cannot read %s. It should be a JSON object such as {\"entity\": \"brain\"}.", path)
		}
	case !errors.Is(err, fs.ErrNotExist) || env("AMP_BUS_CONFIG") != "":
		return c, fault.Wrap(err, fault.InvalidConfig, "Cannot read %s.", path)
	}
	c.Entity = cmp.Or(env("AMP_BUS_ENTITY"), c.Entity, agent)
	if !nameForm.MatchString(c.Entity) {
		return c, fault.New(fault.InvalidConfig,
			"The entity of a bus should be 1 to 63 lower-case letters, digits and hyphens, and "+
				"is %.80q. Say another with AMP_BUS_ENTITY.", c.Entity)
	}
	c.socket = env("AMP_BUS_SOCKET")
	return c.withDefaults(), nil
}

// withDefaults fills in the values of the protocol. It may be called twice.
func (c Config) withDefaults() Config {
	// The path of a Unix socket is short, about 100 bytes, so the default is not below the home folder.
	c.SocketDir = cmp.Or(c.SocketDir, filepath.Join(os.TempDir(), "amp-bus-"+c.Entity))
	c.MaxComponents = cmp.Or(c.MaxComponents, 32)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 1<<20)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 10_000)
	c.HeartbeatTimeout = cmp.Or(c.HeartbeatTimeout, 30_000)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 5_000)
	c.Gateway.FetchInterval = cmp.Or(c.Gateway.FetchInterval, 30_000)
	return c
}

// Socket is the path of the socket.
func (c Config) Socket() string { return cmp.Or(c.socket, filepath.Join(c.SocketDir, "bus.sock")) }

// milliseconds is a duration from bus.json, which counts in milliseconds.
func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
