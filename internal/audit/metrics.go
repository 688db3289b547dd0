package audit

import "github.com/prometheus/client_golang/prometheus"

// Register registers the numbers of the audit. Their names are part of the interface.
func (a *Audit) Register(r prometheus.Registerer) {
	gauge := func(name, help string, read func(Status) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "signalbox_audit_" + name, Help: help},
			func() float64 { return read(a.Status()) }))
	}
	at := func(p *Pass) float64 {
		if p == nil {
			return 0
		}
		return float64(p.At.Unix())
	}
	gauge("position", "The entry that the audit of everything has come to.", func(s Status) float64 {
		return float64(s.At)
	})
	gauge("last_whole_timestamp_seconds", "When everything was audited last, 0 for never.", func(s Status) float64 {
		return at(s.Last)
	})
	gauge("last_fast_timestamp_seconds", "When the last entries and all that grants power were audited, 0 for never.",
		func(s Status) float64 { return at(s.Fast) })
	gauge("processor_seconds", "Processor time that the audit has taken since the start.", func(s Status) float64 {
		return s.Processor
	})
	for _, k := range Kinds {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "signalbox_audit_findings_total", Help: "What the audit has found since the start, by kind.",
			ConstLabels: prometheus.Labels{"kind": string(k)},
		}, func() float64 { return float64(a.Total(k)) }))
	}
}
