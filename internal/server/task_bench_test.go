package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/store/storetest"
)

// BenchmarkTaskMessages measures messages that are accepted durably over 64 connections:
// dispatches, and the acks and results that answer them.
func BenchmarkTaskMessages(b *testing.B) {
	for _, database := range []string{"sqlite", "postgres"} {
		b.Run(database, func(b *testing.B) {
			address := ""
			if database == "postgres" {
				address = storetest.Postgres(b)
			}
			s := startBench(b, address)
			keys := map[string]string{}
			for _, role := range []string{"coordinator", "executor"} {
				var made struct{ Keys map[string]string }
				s.call(b, http.DefaultClient, http.MethodPost, "/ops/agents", s.token,
					fmt.Sprintf(`{"name":%q,"labels":{"role":%q}}`, role, role), &made)
				keys[role] = made.Keys["signal"]
			}
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
			post := func(role, path, body string) { s.call(b, client, http.MethodPost, path, keys[role], body, nil) }
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			before := processorTime(b)
			for range 64 {
				wg.Go(func() {
					for {
						n := next.Add(3)
						if n > int64(b.N)+2 {
							return
						}
						id := fmt.Sprintf("T-2026-%06d", n)
						post("coordinator", "/amp/messages", strings.ReplaceAll(taskDispatch, "T-2026-044", id))
						post("executor", "/amp/messages/task_dispatch-"+id+"-1772116327000/ack", `{}`)
						post("executor", "/amp/messages", strings.ReplaceAll(taskResult, "T-2026-044", id))
					}
				})
			}
			wg.Wait()
			messages := float64(next.Load() - 64*3)
			b.ReportMetric(messages/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/messages, "cpu-us/message")
		})
	}
}

// processorTime is what this process has used so far: server and clients. On a machine that
// others use too it says more than the time that has passed.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
