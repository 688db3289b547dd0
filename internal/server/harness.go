package server

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/harness"
	"signalbox/internal/protocol"
)

// openHarness opens AHP. The version of this program goes into its handshake.
func openHarness(core protocol.Core, c *Config) *harness.Harness {
	settings := c.Harness
	settings.Version, settings.Shared = ReadBuild().Version, c.Shared != ""
	return harness.New(core, settings)
}

// harnessSettings are the keys of AHP.
func harnessSettings() []Setting {
	transports := []string{harness.TransportHTTP, harness.TransportWebSocket, harness.TransportSocket}
	return []Setting{
		{
			Key: "harness.timeout", Default: "10s",
			Meaning: "the timeout of AHP clients, at most 10m; a call is held " +
				"for 80 % of it, and never longer than 8s",
			set: func(c *Config, v string) error {
				d, err := time.ParseDuration(v)
				if err != nil || d < 100*time.Millisecond || d > 10*time.Minute {
					return fmt.Errorf("should be a length of time from 100ms to 10m, such as 10s")
				}
				c.Harness.Timeout = d
				return nil
			},
			get: func(c *Config) string { return c.Harness.Timeout.String() },
		},
		count("harness.batch_size", "100", "how many events a batch of AHP may have", func(c *Config, n int64) {
			c.Harness.BatchSize = int(n)
		}, func(c *Config) int64 { return int64(c.Harness.BatchSize) }),
		count("harness.max_depth", "10", "how deeply events of AHP may be nested", func(c *Config, n int64) {
			c.Harness.MaxDepth = n
		}, func(c *Config) int64 { return c.Harness.MaxDepth }),
		choice("harness.on_failure", harness.BlockOnFailure, []string{harness.BlockOnFailure, harness.ErrorOnFailure},
			"what AHP answers when the policy fails; some clients fail open on errors", func(c *Config) *string {
				return &c.Harness.OnFailure
			}),
		choice("harness.http_handshake", harness.HandshakeOff,
			[]string{harness.HandshakeOff, harness.HandshakeCredential, harness.HandshakeSession},
			"what a POST of AHP needs before it", func(c *Config) *string {
				return &c.Harness.HTTPHandshake
			}),
		text("harness.socket_agent", "local",
			"the agent that calls through the Unix socket of AHP; created when it is first needed", func(c *Config) *string {
				return &c.Harness.SocketAgent
			}),
		{
			Key: "harness.compat", Default: "",
			Meaning: "listeners of AHP all of whose clients are " + harness.CompatA3S +
				" (it is recognised elsewhere too), with commas between: " + strings.Join(transports, ", "), List: true,
			set: func(c *Config, v string) error {
				c.Harness.Compat = map[string]bool{}
				for _, name := range splitList(v) {
					if !slices.Contains(transports, name) {
						return fmt.Errorf("should be a list of %s", strings.Join(transports, ", "))
					}
					c.Harness.Compat[name] = true
				}
				return nil
			},
			get: func(c *Config) string {
				var on []string
				// In the fixed order of the transports, since a map has none.
				for _, name := range transports {
					if c.Harness.Compat[name] {
						on = append(on, name)
					}
				}
				return strings.Join(on, ",")
			},
		},
		{
			Key: "harness.handlers", Default: "",
			Meaning: "endpoints that answer types of events in place of Signalbox, after the policy has allowed " +
				"them: type=address, with commas between", List: true, set: setHandlers, get: getHandlers,
		},
	}
}

// count is a setting that is a whole number, 1 or more. absent is its default.
func count(key, absent, meaning string, set func(*Config, int64), get func(*Config) int64) Setting {
	return Setting{
		Key: key, Default: absent, Meaning: meaning,
		set: func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n < 1 {
				return fmt.Errorf("should be a whole number, 1 or more")
			}
			set(c, n)
			return nil
		},
		get: func(c *Config) string { return strconv.FormatInt(get(c), 10) },
	}
}

// setHandlers reads type=address pairs. Only types that are decided about can have a
// handler: nobody waits for an answer to the others.
func setHandlers(c *Config, v string) error {
	c.Harness.Handlers = map[harness.Type]string{}
	for _, one := range splitList(v) {
		name, address, _ := strings.Cut(one, "=")
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || !harness.Decides(harness.Type(name)) {
			return fmt.Errorf("should be a list of the form memory_recall=https://memory.example.com/ahp, " +
				"with types of events that get a decision")
		}
		c.Harness.Handlers[harness.Type(name)] = address
	}
	return nil
}

// getHandlers is the list in the form that setHandlers reads, sorted, so that it is always the same.
func getHandlers(c *Config) string {
	var all []string
	for t, address := range c.Harness.Handlers {
		all = append(all, string(t)+"="+address)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}
