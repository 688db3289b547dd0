package server

import (
	"maps"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/reload"
)

// reloads are the settings that take effect without a restart; all others wait for one. Whatever could give somebody
// power takes effect when an operator has confirmed the file.
var reloads = map[string]reload.When{
	"log.level": reload.AtOnce, "log.format": reload.AtOnce,
	"tls.cert": reload.Confirmed, "tls.key": reload.Confirmed,
	"server.hosts": reload.Confirmed, "server.metrics": reload.Confirmed, "server.url_keys": reload.Confirmed,
	"limits.per_agent": reload.Confirmed, "webhooks.allow": reload.Confirmed,
}

// Reload is when a change of the setting takes effect.
func (s Setting) Reload() reload.When {
	if when, ok := reloads[s.Key]; ok {
		return when
	}
	return reload.Restart
}

// openReload makes what reads the configuration again.
func (s *Server) openReload() {
	s.core.reloader = reload.New(reload.Options{
		Ledger: s.core.Ledger, Kin: s.core.Kin, Log: s.log, Now: s.core.Now, Hangup: s.config.Hangup, Read: s.readAgain,
	})
}

// readAgain reads the configuration as a start would, and says what differs from the one in force.
func (s *Server) readAgain() (next reload.Next, err error) {
	if s.config.Again == nil {
		return next, fault.New(fault.Conflict,
			"This server was started by a program that does not read the configuration again. Restart it.")
	}
	read, err := s.config.Again()
	if err != nil {
		return next, err
	}
	now := s.edge.config()
	next.Sum, next.Apply = read.sum, func(keys []string) error { return s.apply(now, read, keys) }
	for _, set := range Settings {
		if now.raw[set.Key] == read.raw[set.Key] {
			continue
		}
		c := reload.Change{Key: set.Key, From: set.get(now), To: set.get(read), When: set.Reload()}
		// The listener speaks TLS or does not; only the certificate can be exchanged.
		if tls := set.Key == "tls.cert" || set.Key == "tls.key"; tls && (now.TLSCert == "" || read.TLSCert == "") {
			c.When = reload.Restart
		}
		next.Changes = append(next.Changes, c)
	}
	return next, nil
}

// apply puts settings in force, and reads the certificate again. Whatever can fail comes before the first change.
func (s *Server) apply(now, read *Config, keys []string) error {
	c := *now
	c.raw, c.Sources = maps.Clone(now.raw), maps.Clone(now.Sources)
	for _, set := range Settings {
		if !slices.Contains(keys, set.Key) {
			continue
		}
		if err := set.set(&c, read.raw[set.Key].Reveal()); err != nil {
			return err
		}
		c.raw[set.Key], c.Sources[set.Key] = read.raw[set.Key], read.Sources[set.Key]
	}
	certify, err := s.cert.Load(c.TLSCert, c.TLSKey)
	if err != nil {
		return err
	}
	if err := s.core.Outbox.Allow(c.Allow, c.ownTargets()); err != nil {
		return err
	}
	certify()
	s.core.perAgent.Store(c.PerAgent)
	c.logs.Set(c.LogLevel, c.LogFormat)
	s.edge.use(&c)
	return nil
}
