package server

import (
	"signalbox/internal/sink"
	"signalbox/internal/telemetry"
	"signalbox/internal/wire"
)

// telemetrySettings are the keys of OpenTelemetry.
func telemetrySettings() []Setting {
	s := text("telemetry.otlp", telemetry.Off, "a collector of OpenTelemetry that traces and metrics are sent to over "+
		"HTTP, such as http://127.0.0.1:4318; env leaves it to the variables OTEL_EXPORTER_OTLP_…, off sends nothing",
		func(c *Config) *string { return &c.OTLP })
	store := s.set
	s.set = func(c *Config, v string) error {
		if err := telemetry.CheckTarget(v); err != nil {
			return err
		}
		return store(c, v)
	}
	return []Setting{
		s,
		secretSetting("telemetry.headers",
			"headers for the collector, such as Authorization=Bearer a-token, with commas between",
			func(c *Config) *wire.Secret { return &c.OTLPHeaders }),
	}
}

// followers are the sinks that have a form of their own.
func (c *core) followers() map[string]sink.Follower {
	if c.telemetry == nil {
		return nil
	}
	return map[string]sink.Follower{"otlp": c.telemetry}
}
