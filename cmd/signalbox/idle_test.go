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
