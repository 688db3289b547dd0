package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/internal/testbed"
)

// BenchmarkIdleSessions opens 5,000 WebSockets that say nothing, and looks at the memory
// of the server.
func BenchmarkIdleSessions(b *testing.B) {
	const many = 5000
	for b.Loop() {
		p := up(b, b.TempDir())
		status, text, err := p.call(http.MethodPost, "/ops/agents", `{"name":"idle"}`)
		var added struct{ Keys map[string]string }
		if err != nil || status != http.StatusCreated || json.Unmarshal([]byte(text), &added) != nil {
			b.Fatal(status, text, err)
		}
		before := p.memory()
		var open []net.Conn
		for range many {
			open = append(open, upgrade(b, strings.TrimPrefix(p.url, "http://"), added.Keys["signal"]))
		}
		b.ReportMetric(p.memory(), "MB")
		b.ReportMetric((p.memory()-before)*1000/many, "KB/session")
		for _, conn := range open {
			_ = conn.Close()
		}
		p.stop()
	}
}

// BenchmarkIdleWatchers has 5,000 follow the ledger while nothing happens, and looks at the processor time of the
// server alone, over 20 seconds.
func BenchmarkIdleWatchers(b *testing.B) {
	const many, during = 5000, 20 * time.Second
	for b.Loop() {
		p := up(b, b.TempDir())
		var open []net.Conn
		for range many {
			open = append(open, watch(b, p))
		}
		time.Sleep(5 * time.Second) // what opening them has left to do
		began, used := time.Now(), p.processorTime()
		time.Sleep(during)
		b.ReportMetric((p.processorTime()-used).Seconds()/time.Since(began).Seconds(), "cores")
		b.ReportMetric(p.memory(), "MB")
		for _, conn := range open {
			_ = conn.Close()
		}
		p.stop()
	}
}

// watch opens a stream of the ledger by hand, and reads its header.
func watch(tb testing.TB, p *process) net.Conn {
	tb.Helper()
	host := strings.TrimPrefix(p.url, "http://")
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", host)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err = fmt.Fprintf(conn, "GET /ops/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", host,
		p.token()); err != nil {
		tb.Fatal(err)
	}
	line, err := bufio.NewReaderSize(conn, 1024).ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		tb.Fatal(line, err)
	}
	return conn
}

// processorTime is what the process has used of the processors, of all its threads.
func (p *process) processorTime() time.Duration {
	p.t.Helper()
	text := string(testbed.Read(p.t, fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)))
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the name may have blanks
	var ticks time.Duration
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * time.Second / 100
}

// upgrade opens a WebSocket by hand, which costs this side next to nothing.
func upgrade(tb testing.TB, host, key string) net.Conn {
	tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", host)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "GET /ahp?api_key=%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n", key, host)
	if err != nil {
		tb.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 1024), nil) //nolint:bodyclose // the connection is the body
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		tb.Fatal(res, err)
	}
	return conn
}

// memory is how much the process has in memory, in MB.
func (p *process) memory() float64 {
	p.t.Helper()
	text := testbed.Read(p.t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	kb, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return kb / 1000
}
