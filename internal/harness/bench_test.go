package harness_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// turns is how often what is compared takes turns, so that both meet the same machine.
const turns = 4

// load asks from so many connections for a while, each as soon as it was answered, or as
// many a second as rate says in all. It returns answers a second and how long they took,
// sorted.
func load(b *testing.B, path string, connections int, rate float64, text []byte, greet bool,
	d time.Duration,
) (perSecond float64, took []time.Duration) {
	b.Helper()
	var mu sync.Mutex
	var asking sync.WaitGroup
	begun := time.Now()
	for i := range connections {
		asking.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			in := bufio.NewReaderSize(conn, 128<<10)
			ask := func(text []byte) bool {
				if _, err := conn.Write(text); err != nil {
					b.Error(err)
					return false
				}
				line, err := in.ReadSlice('\n')
				if err != nil || greet && !bytes.Contains(line, []byte(`"result"`)) {
					b.Errorf("%.200s %v", line, err)
					return false
				}
				return true
			}
			if greet && !ask([]byte(greetingText+"\n")) {
				return
			}
			own := bytes.ReplaceAll(text, []byte(`"s0"`), fmt.Appendf(nil, `"s%d"`, i))
			var all []time.Duration
			due, pause := begun, time.Duration(0)
			if rate > 0 { // one after another, not all at once
				pause = time.Duration(float64(connections) / rate * float64(time.Second))
				due = due.Add(pause * time.Duration(i) / time.Duration(connections))
			}
			for ; time.Since(begun) < d; due = due.Add(pause) {
				if rate == 0 {
					due = time.Now()
				}
				time.Sleep(time.Until(due))
				if !ask(own) {
					return
				}
				all = append(all, time.Since(due))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, all...)
		})
	}
	asking.Wait()
	slices.Sort(took)
	return float64(len(took)) / time.Since(begun).Seconds(), took
}

func at(took []time.Duration, share float64) float64 {
	if len(took) == 0 {
		return 0
	}
	return float64(took[int(float64(len(took)-1)*share)].Microseconds()) / 1000
}

// echo is a server that answers each line with itself.
func echo(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "echo")
	testbed.Serve(b, "unix", path, func(conn net.Conn) {
		in := bufio.NewReaderSize(conn, 128<<10)
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return
			}
			if _, err := conn.Write(line); err != nil {
				return
			}
		}
	})
	return path
}

var lsText = append(event("r", "pre_action", "s0",
	map[string]any{"tool_name": "bash", "arguments": map[string]any{"command": "cargo test --all-features"}}), '\n')

// BenchmarkSocket asks for durable decisions on the Unix socket: from one connection,
// compared with a bare durable commit, and from 64, compared with an echo.
func BenchmarkSocket(b *testing.B) {
	const d = 700 * time.Millisecond
	b.Run("1", func(b *testing.B) {
		n := start(b, storetest.SQLite(b), harness.Config{})
		path, _ := n.socket()
		for b.Loop() {
			var ours, bare, ledgers []float64
			for range turns {
				_, took := load(b, path, 1, 0, lsText, true, d)
				ours = append(ours, at(took, 0.5))
				bare = append(bare, at(n.commits(d), 0.5))
				ledgers = append(ledgers, at(n.writes(d), 0.5))
			}
			slices.Sort(ours)
			slices.Sort(bare)
			slices.Sort(ledgers)
			b.ReportMetric(ledgers[turns/2], "ledger-p50-ms")
			b.ReportMetric(ours[turns/2], "p50-ms")
			b.ReportMetric(bare[turns/2], "bare-p50-ms")
			b.ReportMetric(ours[turns/2]/bare[turns/2], "times")
		}
	})
	b.Run("64", func(b *testing.B) {
		n := start(b, storetest.SQLite(b), harness.Config{})
		path, _ := n.socket()
		other := echo(b)
		for b.Loop() {
			ours, bare, ledgers := 0.0, 0.0, 0.0
			var spent time.Duration
			decisions := 0
			for range turns {
				before := testbed.ProcessorTime()
				perSecond, took := load(b, path, 64, 0, lsText, true, d)
				spent, decisions = spent+testbed.ProcessorTime()-before, decisions+len(took)
				ours += perSecond / turns
				perSecond, _ = load(b, other, 64, 0, lsText, false, d)
				bare += perSecond / turns
				ledgers += n.writers(64, d) / turns
			}
			b.ReportMetric(ledgers, "ledger/s")
			b.ReportMetric(float64(spent.Microseconds())/float64(decisions), "processor-µs")
			_, took := load(b, path, 64, ours/2, lsText, true, 2*d)
			b.ReportMetric(ours, "ours/s")
			b.ReportMetric(bare, "bare/s")
			b.ReportMetric(ours/bare, "times")
			b.ReportMetric(at(took, 0.99), "p99-ms")
		}
	})
}

// commits makes bare durable commits for a while.
func (n *node) commits(d time.Duration) (took []time.Duration) {
	n.T.Helper()
	for begun, i := time.Now(), 0; time.Since(begun) < d; i++ {
		one := time.Now()
		tx, err := n.DB.Begin(context.Background(), "ledger_tree")
		if err != nil {
			n.T.Fatal(err)
		}
		tx.Exec("INSERT INTO ledger_cursor (name, seq, holder, held_until) VALUES ($1, 0, '', 0)",
			fmt.Sprint("bench-", begun.UnixNano(), "-", i))
		if _, err := tx.Commit(false); err != nil {
			n.T.Fatal(err)
		}
		took = append(took, time.Since(one))
	}
	slices.Sort(took)
	return took
}

// writes makes writes of one entry to the ledger for a while: what a decision cannot be
// faster than.
func (n *node) writes(d time.Duration) (took []time.Duration) {
	n.T.Helper()
	for begun := time.Now(); time.Since(begun) < d; {
		one := time.Now()
		err := n.Ledger.Write(context.Background(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Workspace: "default", Kind: "bench.bare", Actor: "agent:x", Body: lsText})
			return nil
		})
		if err != nil {
			n.T.Fatal(err)
		}
		took = append(took, time.Since(one))
	}
	slices.Sort(took)
	return took
}

// writers has many write at once, and returns writes a second.
func (n *node) writers(many int, d time.Duration) float64 {
	var writing sync.WaitGroup
	var all atomic.Int64
	for range many {
		writing.Go(func() { all.Add(int64(len(n.writes(d)))) })
	}
	writing.Wait()
	return float64(all.Load()) / d.Seconds()
}

// BenchmarkPayload decides about 64 KiB.
func BenchmarkPayload(b *testing.B) {
	n := start(b, storetest.SQLite(b), harness.Config{})
	path, _ := n.socket()
	content, err := json.Marshal(strings.Repeat("All work and no play makes Jack a dull boy.\n", 64<<10/44))
	if err != nil {
		b.Fatal(err)
	}
	text := append(event("r", "pre_action", "s0",
		map[string]any{"tool_name": "write", "arguments": map[string]any{"content": json.RawMessage(content)}}), '\n')
	for b.Loop() {
		_, took := load(b, path, 1, 0, text, true, time.Second)
		b.ReportMetric(at(took, 0.5), "p50-ms")
	}
}

// BenchmarkRules decides with one rule and with a thousand at this control point, beside
// the disk: each is about a tool of its own.
func BenchmarkRules(b *testing.B) {
	for _, rules := range []int{1, 1000} {
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			n := start(b, storetest.SQLite(b), harness.Config{})
			var text strings.Builder
			text.WriteString("rules:\n")
			for i := range rules {
				fmt.Fprintf(&text, "  - {name: r%d, on: [action], when: event.tool == \"tool-%d\", then: block, reason: no}\n", i,
					i)
			}
			n.Apply(text.String())
			e := n.harness.Asked(lsText)
			for b.Loop() {
				if d := n.Book.Decide(context.Background(), n.agent, e); d.Action != "allow" {
					b.Fatal(d)
				}
			}
		})
	}
}

// BenchmarkTell floods with notifications, of which one in ten must not be lost.
func BenchmarkTell(b *testing.B) {
	n := start(b, storetest.SQLite(b), harness.Config{})
	n.Apply("rules: []\n")
	c := n.conn(harness.TransportSocket)
	note := event("", "post_action", "s1",
		map[string]any{"tool": "bash", "result": map[string]any{"success": true, "output": "ok", "exit_code": 0}})
	kept := event("", "run_lifecycle", "s1", run("executing", "2026-05-01T00:00:00Z"))
	const many = 100_000
	sent := 0
	for b.Loop() {
		begun := time.Now()
		for i := range many {
			text := note
			if i%10 == 0 {
				text = kept
				sent++
			}
			if r := n.harness.Handle(context.Background(), c, text); r.JSON != nil {
				b.Fatalf("%s", r.JSON)
			}
		}
		b.ReportMetric(many/time.Since(begun).Seconds(), "ours/s")
	}
	n.Stop()
	found := 0
	for _, e := range n.Entries("session.reported") {
		found += bytes.Count(e.Body, []byte(`"type":"run_lifecycle"`))
	}
	if found != sent {
		b.Errorf("%d of %d were kept", found, sent)
	}
}
