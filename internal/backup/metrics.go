package backup

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The numbers of scheduled backups, which there are if there is a schedule.
var (
	successAt = prometheus.NewDesc("signalbox_backup_last_success_timestamp_seconds",
		"When the last scheduled backup was made, in Unix time; -1 if none was.", nil, nil)
	failureAt = prometheus.NewDesc("signalbox_backup_last_failure_timestamp_seconds",
		"When a scheduled backup failed last, in Unix time; -1 if none has.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *Schedule) Describe(to chan<- *prometheus.Desc) {
	to <- successAt
	to <- failureAt
}

// Collect implements prometheus.Collector. What cannot be read now is left out, since -1 would be another answer.
func (s *Schedule) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state, err := s.State(ctx)
	if err != nil || state == nil {
		return
	}
	to <- prometheus.MustNewConstMetric(successAt, prometheus.GaugeValue, seconds(state.LastSuccess))
	to <- prometheus.MustNewConstMetric(failureAt, prometheus.GaugeValue, seconds(state.LastFailure))
}

func seconds(at *time.Time) float64 {
	if at == nil {
		return -1
	}
	return float64(at.Unix())
}
