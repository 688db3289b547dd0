package bench

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
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/server"
)

// serveBare runs httputil.ReverseProxy and nothing else until ctx ends, in a process of its own like the
// others. It prints its address first.
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
		Transport: &http.Transport{
			MaxIdleConns: 1024, MaxIdleConnsPerHost: 512, IdleConnTimeout: 90 * time.Second,
			DisableCompression: true,
		},
	}
	s := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Without full duplex the request's body is closed when the reply begins, which breaks off
			// replies that begin before the transport has seen the end of the body.
			_ = http.NewResponseController(w).EnableFullDuplex()
			carry.ServeHTTP(w, r)
		}),
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	_ = s.Serve(l)
	return nil
}

// standIn answers like a provider and at once, so that what is measured is the way there and back. A
// stream has 20 pieces of text, each flushed.
func standIn(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "text/event-stream")
		put := func(event, data string) { _, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data) }
		put(
			"message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message",`+
				`"role":"assistant","model":"claude-sonnet-4-6","content":[],"stop_reason":null,`+
				`"usage":{"input_tokens":100,"output_tokens":1}}}`,
		)
		_ = http.NewResponseController(w).Flush()
		put("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		for range 20 {
			put("content_block_delta",
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Some words of an answer. "}}`)
			_ = http.NewResponseController(w).Flush()
		}
		put("content_block_stop", `{"type":"content_block_stop","index":0}`)
		put("message_delta",
			`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":100}}`)
		put("message_stop", `{"type":"message_stop"}`)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if bytes.Contains(body, []byte(toolQuestion)) {
		_, _ = io.WriteString(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6",`+
			`"content":[{"type":"text","text":"I will look at the project first."},{"type":"tool_use","id":"toolu_1","name":"bash",`+
			`"input":{"command":"ls -la src"}}],"stop_reason":"tool_use","stop_sequence":null,`+
			`"usage":{"input_tokens":100,"output_tokens":100}}`)
		return
	}
	_, _ = fmt.Fprintf(
		w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6",`+
			`"content":[{"type":"text","text":%q}],"stop_reason":"end_turn","stop_sequence":null,`+
			`"usage":{"input_tokens":100,"output_tokens":100}}`, strings.Repeat("Some words of an answer. ", 20),
	)
}

// withTenRules is the policy of a new server with ten more rules at the proxy's control points, before its own. None
// matches, so that all are tried and every reply is judged.
func withTenRules() []byte {
	text := "rules:\n"
	// Half of them read the request and half the tool calls, with conditions as people write them.
	for i := range 5 {
		text += fmt.Sprintf("  - {name: prompt-%d, on: [prompt], when: 'event.model == \"model-%d\" || "+
			"\"tool-%d\" in event.tools', then: block}\n", i, i, i)
		text += fmt.Sprintf("  - {name: tool-%d, on: [tool_call], when: 'event.tool == \"tool-%d\" && "+
			"event.command.contains(\"rm\")', then: gate}\n", i, i)
	}
	return bytes.Replace(policy.Default(), []byte("rules:\n"), []byte(text), 1)
}

// beginServer starts a Signalbox with a data folder of its own, whose provider is the stand-in, and gives
// it the policy and an agent. The folder is removed with dir.
func beginServer(ctx context.Context, dir, self, provider string,
	begin func([]string, string, ...string) (io.Reader, error),
) (*carrier, error) {
	data := filepath.Join(dir, "data")
	out, err := begin([]string{
		"SIGNALBOX_PROXY_ANTHROPIC_UPSTREAM=" + provider, "SIGNALBOX_PROXY_ANTHROPIC_KEY=sk-bench",
		"SIGNALBOX_DB=",
	}, self, "up", "--data", data, "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	// A server whose output nobody reads would block on it.
	go func() { _, _ = io.Copy(io.Discard, out) }()
	// Wait until the first start has made the operator's token, which comes after the address.
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(data, server.TokenFile)); err == nil {
			break
		}
		if time.Since(began) > time.Minute || ctx.Err() != nil {
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
	// Nothing of the user's own configuration is used: address and token are those of the new server.
	client := &api.Client{Base: strings.TrimSpace(string(base)), Token: strings.TrimSpace(string(token))}
	res, err := client.Do(ctx, api.Put("/ops/policy", api.YAML(withTenRules())))
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	agent, err := client.Lend(ctx, "bench-")
	if err != nil {
		return nil, err
	}
	return &carrier{name: "signalbox", url: client.Base, key: agent.Key}, nil
}

// nginxConfig is nginx as a reverse proxy for the stand-in. It takes the folder, the provider's host and
// the address to listen on.
const nginxConfig = `worker_processes 2; daemon off; pid %[1]s/nginx.pid; error_log /dev/null;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s;
fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
upstream provider { server %[2]s; keepalive 512; }
server { listen %[3]s; location /v1/proxy/ {
proxy_pass http://provider/; proxy_http_version 1.1; proxy_set_header Connection "";
proxy_buffering off; client_max_body_size 32m; } } }
`

// beginNginx starts nginx as the same proxy, and returns its address when it accepts connections. It fails
// if nginx is not installed, which is not an error of the benchmark.
func beginNginx(ctx context.Context, dir, provider string,
	begin func([]string, string, ...string) (io.Reader, error),
) (string, error) {
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
	// nginx cannot choose a free port. Somebody else may take this one before it does, in which case it
	// does not start.
	at := l.Addr().String()
	_ = l.Close()
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, dir, strings.TrimPrefix(provider, "http://"), at),
		0o600); err != nil {
		return "", err
	}
	if _, err := begin(nil, path, "-c", file, "-p", dir); err != nil {
		return "", err
	}
	// It answers within milliseconds; two seconds are for a busy machine.
	for range 200 {
		if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at); err == nil {
			_ = c.Close()
			return "http://" + at, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return "", fmt.Errorf("nginx does not answer")
}
