package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/server"
)

// ProxyBench is what a load on the proxy came to, beside others that carry the same.
type ProxyBench struct {
	Rows []ProxyRow `json:"rows"`
}

// ProxyRow is one proxy: the medians of all rounds, and how they compare with the bare one's.
type ProxyRow struct {
	Name        string  `json:"name"`
	P50         float64 `json:"p50_ms"`        // of a call, one connection
	PerSecond   float64 `json:"per_second"`    // 16 connections
	FirstByte   float64 `json:"first_byte_ms"` // of a stream, p50, one connection
	P50Ratio    float64 `json:"p50_ratio,omitempty"`
	SecondRatio float64 `json:"per_second_ratio,omitempty"` // the bare one's over this one's
	FirstRatio  float64 `json:"first_byte_ratio,omitempty"`
	Errors      int64   `json:"errors"`
}

func newBenchProxy(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "proxy", Short: "Carry model calls, beside a bare reverse proxy and nginx",
		Long: "Starts a stand-in for a provider, a server of its own in a temporary folder with ten rules\nthat match nothing, a bare reverse proxy, and nginx where it is installed. Each carries the\nsame calls in turns, round after round, so that whatever else the machine does is shared.\n" +
			"Prints the medians of the rounds, and the ratio to the bare proxy.",
		Example: "  signalbox bench proxy --duration 60s", Args: exactly(0, "no arguments"),
	})
	duration := c.Flags().Duration("duration", 45*time.Second, "for how long, all together")
	rounds := c.Flags().Int("rounds", 5, "how many rounds")
	bare := c.Flags().String("bare", "", "only be the bare proxy, for this provider")
	_ = c.Flags().MarkHidden("bare")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *bare != "" {
			return serveBare(c.Context(), a.out, *bare)
		}
		if *rounds < 1 || *duration <= 0 {
			return usage("--rounds takes 1 or more, and --duration a time such as 45s.")
		}
		return a.benchProxy(c.Context(), *duration, *rounds)
	}
	return c
}

// serveBare is httputil.ReverseProxy and nothing else, until ctx ends.
func serveBare(ctx context.Context, out io.Writer, provider string) error {
	to, err := url.Parse(provider)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "http://%s\n", l.Addr())
	carry := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/v1/proxy")
		},
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 512, IdleConnTimeout: 90 * time.Second, DisableCompression: true},
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without it the body is closed when the reply begins, which breaks replies off that
		// begin before the transport has seen the body's end.
		_ = http.NewResponseController(w).EnableFullDuplex()
		carry.ServeHTTP(w, r)
	})}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	_ = s.Serve(l)
	return nil
}

// carrier is one of those that are compared.
type carrier struct {
	name, url, key  string
	p50, rate, ttfb []float64
	errors          int64
}

func (a *app) benchProxy(ctx context.Context, duration time.Duration, rounds int) error {
	dir, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(ctx)
	var ending []func() error
	defer func() {
		cancel()
		for _, wait := range ending {
			_ = wait() // it was ended
		}
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	provider := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(standIn)}
	go func() { _ = provider.Serve(listener) }()
	defer func() { _ = provider.Close() }()
	address := "http://" + listener.Addr().String()

	begin := func(env []string, name string, args ...string) (io.Reader, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			ending = append(ending, cmd.Wait)
		}
		return out, err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := begin(nil, self, "bench", "proxy", "--bare", address)
	if err != nil {
		return err
	}
	bareURL := make([]byte, 64)
	n, err := out.Read(bareURL)
	if err != nil {
		return err
	}
	all := []*carrier{{name: "bare", url: strings.TrimSpace(string(bareURL[:n]))}}
	if at, err := beginNginx(ctx, dir, address, begin); err == nil {
		all = append(all, &carrier{name: "nginx", url: at})
	} else {
		_, _ = fmt.Fprintln(a.err, "without nginx:", err)
	}
	own, err := beginServer(ctx, dir, self, address, begin)
	if err != nil {
		return err
	}
	all = append(all, own)
	each := duration / time.Duration(3*rounds*len(all))
	for round := range rounds {
		_, _ = fmt.Fprintf(a.err, "round %d of %d\n", round+1, rounds)
		for i := range all {
			if err := all[(i+round)%len(all)].measure(ctx, each); err != nil {
				return err
			}
		}
	}
	report := ProxyBench{}
	for _, c := range all {
		report.Rows = append(report.Rows, c.row(all[0]))
	}
	return a.show(report, func(w io.Writer) { printProxyBench(w, report) })
}

// standIn answers like a provider, at once.
func standIn(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "text/event-stream")
		put := func(event, data string) { _, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data) }
		put("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6","content":[],"stop_reason":null,"usage":{"input_tokens":100,"output_tokens":1}}}`)
		_ = http.NewResponseController(w).Flush()
		put("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		for range 20 {
			put("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Some words of an answer. "}}`)
			_ = http.NewResponseController(w).Flush()
		}
		put("content_block_stop", `{"type":"content_block_stop","index":0}`)
		put("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":100}}`)
		put("message_stop", `{"type":"message_stop"}`)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6","content":[{"type":"text","text":%q}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":100,"output_tokens":100}}`, strings.Repeat("Some words of an answer. ", 20))
}

// benchPolicy has ten rules at the points of the proxy, of which none matches.
func benchPolicy() []byte {
	text := "version: 1\nrules:\n"
	for i := range 5 {
		text += fmt.Sprintf("  - {name: prompt-%d, on: [prompt], when: 'event.model == \"model-%d\" || \"tool-%d\" in event.tools', then: block}\n", i, i, i)
		text += fmt.Sprintf("  - {name: tool-%d, on: [tool_call], when: 'event.tool == \"tool-%d\" && event.command.contains(\"rm\")', then: gate}\n", i, i)
	}
	return []byte(text)
}

// beginServer starts a Signalbox whose provider is the stand-in.
func beginServer(ctx context.Context, dir, self, provider string, begin func([]string, string, ...string) (io.Reader, error)) (*carrier, error) {
	data := filepath.Join(dir, "data")
	out, err := begin([]string{"SIGNALBOX_PROXY_ANTHROPIC_UPSTREAM=" + provider, "SIGNALBOX_PROXY_ANTHROPIC_KEY=sk-bench", "SIGNALBOX_DB="}, self, "up", "--data", data, "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(data, server.TokenFile)); err == nil {
			break
		}
		if time.Since(began) > 20*time.Second || ctx.Err() != nil {
			return nil, fault.New(fault.Internal, "The server did not start.")
		}
	}
	token, err := os.ReadFile(filepath.Join(data, server.TokenFile))
	if err != nil {
		return nil, err
	}
	base, err := os.ReadFile(filepath.Join(data, server.URLFile))
	if err != nil {
		return nil, err
	}
	client := &client{base: strings.TrimSpace(string(base)), token: strings.TrimSpace(string(token))}
	res, err := client.do(ctx, http.MethodPut, "/ops/policy", yamlFile(benchPolicy()))
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	agent, err := client.lend(ctx, "bench-")
	if err != nil {
		return nil, err
	}
	return &carrier{name: "signalbox", url: client.base, key: agent.key}, nil
}

const nginxConfig = `worker_processes 2; daemon off; pid %[1]s/nginx.pid; error_log /dev/null;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
upstream provider { server %[2]s; keepalive 512; }
server { listen %[3]s; location /v1/proxy/ { proxy_pass http://provider/; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; client_max_body_size 32m; } } }
`

// beginNginx starts nginx as the same proxy.
func beginNginx(ctx context.Context, dir, provider string, begin func([]string, string, ...string) (io.Reader, error)) (string, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return "", err
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	at := l.Addr().String()
	_ = l.Close()
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, dir, strings.TrimPrefix(provider, "http://"), at), 0o600); err != nil {
		return "", err
	}
	if _, err := begin(nil, path, "-c", file, "-p", dir); err != nil {
		return "", err
	}
	for range 200 {
		if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at); err == nil {
			_ = c.Close()
			return "http://" + at, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return "", fmt.Errorf("nginx does not answer")
}

const benchAsk = `{"model":"claude-sonnet-4-6","max_tokens":1024,"stream":%t,"tools":[{"name":"bash","description":"Runs a command","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],"system":"You are a careful engineer.","messages":[{"role":"user","content":"Rewrite the resume for a role at a bank, in plain words, and keep it to one page. %d"}]}`

// measure carries calls for a while: one connection, sixteen, and streams.
func (c *carrier) measure(ctx context.Context, each time.Duration) error {
	l := load{url: c.url + "/v1/proxy/v1/messages", key: c.key, connections: 1, duration: each, body: func(i int64) []byte { return fmt.Appendf(nil, benchAsk, false, i) }}
	quiet := func(int64) {}
	got, err := l.run(ctx, quiet)
	if err != nil {
		return err
	}
	c.p50, c.errors = append(c.p50, got.Latency.P50), c.errors+got.Errors
	l.connections = 16
	if got, err = l.run(ctx, quiet); err != nil {
		return err
	}
	c.rate, c.errors = append(c.rate, got.PerSecond), c.errors+got.Errors
	times, err := c.firstBytes(ctx, l.url, each)
	if err != nil {
		return err
	}
	c.ttfb = append(c.ttfb, median(times))
	return nil
}

// firstBytes is how long streams take to begin, in milliseconds.
func (c *carrier) firstBytes(ctx context.Context, target string, each time.Duration) (times []float64, err error) {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	for began := time.Now(); time.Since(began) < each; {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(fmt.Sprintf(benchAsk, true, len(times))))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Api-Key", c.key)
		sent := time.Now()
		res, err := transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		one := make([]byte, 1)
		_, err = io.ReadFull(res.Body, one)
		took := time.Since(sent)
		if _, copied := io.Copy(io.Discard, res.Body); err != nil || copied != nil || res.StatusCode != http.StatusOK {
			c.errors++
		}
		_ = res.Body.Close()
		times = append(times, float64(took.Microseconds())/1000)
	}
	return times, nil
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// row compares with the bare proxy in each round, and takes the median of the ratios.
func (c *carrier) row(bare *carrier) ProxyRow {
	ratios := func(a, b []float64) float64 {
		var all []float64
		for i := range a {
			all = append(all, a[i]/b[i])
		}
		return median(all)
	}
	return ProxyRow{
		Name: c.name, P50: median(c.p50), PerSecond: median(c.rate), FirstByte: median(c.ttfb), Errors: c.errors,
		P50Ratio: ratios(c.p50, bare.p50), SecondRatio: ratios(bare.rate, c.rate), FirstRatio: ratios(c.ttfb, bare.ttfb),
	}
}

func printProxyBench(w io.Writer, r ProxyBench) {
	var rows [][]string
	for _, c := range r.Rows {
		rows = append(rows, []string{
			c.Name, fmt.Sprintf("%.3f ms", c.P50), fmt.Sprintf("%.2f", c.P50Ratio), thousands(int64(c.PerSecond)), fmt.Sprintf("%.2f", c.SecondRatio),
			fmt.Sprintf("%.3f ms", c.FirstByte), fmt.Sprintf("%.2f", c.FirstRatio), thousands(c.Errors),
		})
	}
	table(w, "", []string{"", "P50, 1 CONN", "TIMES", "A SECOND, 16", "TIMES", "FIRST BYTE", "TIMES", "ERRORS"}, rows)
	_, _ = fmt.Fprintln(w, "times: how much more than the bare proxy it takes")
}
