package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
)

// ProxyReport is the result of `bench proxy`: one row per proxy, the bare one first.
type ProxyReport struct {
	Rows []ProxyRow `json:"rows"`
}

// ProxyRow is one proxy: the medians of all rounds, and its ratios to the bare proxy. A ratio above 1 is
// slower.
type ProxyRow struct {
	Name        string  `json:"name"`
	P50         float64 `json:"p50_ms"`        // of a call, one connection
	PerSecond   float64 `json:"per_second"`    // 16 connections
	FirstByte   float64 `json:"first_byte_ms"` // of a stream, p50, one connection
	P50Ratio    float64 `json:"p50_ratio,omitempty"`
	SecondRatio float64 `json:"per_second_ratio,omitempty"` // the bare one's over this one's
	FirstRatio  float64 `json:"first_byte_ratio,omitempty"`
	// The same of calls whose reply has a tool call, which is judged.
	ToolP50         float64 `json:"tool_p50_ms"`
	ToolPerSecond   float64 `json:"tool_per_second"`
	ToolP50Ratio    float64 `json:"tool_p50_ratio,omitempty"`
	ToolSecondRatio float64 `json:"tool_per_second_ratio,omitempty"`
	Errors          int64   `json:"errors"`
}

// newProxy makes `bench proxy`. It needs no running server.
func newProxy(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "proxy", Short: "Carry model calls, beside a bare reverse proxy and nginx",
		Long: `Starts a stand-in for a provider, a server of its own in a temporary folder with the policy of
a new server and ten more rules that match nothing, a bare reverse proxy, and nginx if it is
installed. Each carries the same calls in turn, round after round, so that other load on the machine hits all of them
alike. Prints the medians of the rounds, and the ratio to the bare proxy.`,
		Example: "  signalbox bench proxy --duration 60s", Args: command.NoArguments(),
	})
	duration := c.Flags().Duration("duration", 45*time.Second, "for how long, all together")
	rounds := c.Flags().Int("rounds", 5, "how many rounds")
	bare := c.Flags().String("bare", "", "only be the bare proxy, for this provider")
	_ = c.Flags().MarkHidden("bare")
	c.RunE = func(c *command.Command, _ []string) error {
		if *bare != "" {
			return serveBare(c.Context(), a.Out.Exactly(), *bare)
		}
		if *rounds < 1 || *duration <= 0 {
			return command.Usage("--rounds takes 1 or more, and --duration a time such as 45s.")
		}
		return compareProxies(c.Context(), a, *duration, *rounds)
	}
	return c
}

// compareProxies starts everything, measures in rounds and prints the report. What it has started is ended
// with an interrupt and waited for. The order within a round shifts, so that none is always the
// first.
func compareProxies(ctx context.Context, a *command.App, duration time.Duration, rounds int) error {
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
			_ = wait() // its error is the interrupt
		}
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// The stand-in runs in this process, the proxies in processes of their own: all have the same way to
	// the provider.
	provider := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(standIn)}
	go func() { _ = provider.Serve(listener) }()
	defer func() { _ = provider.Close() }()
	address := "http://" + listener.Addr().String()

	// begin starts a process that is interrupted when ctx ends, and killed if that does not help.
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
	// The first line of its output is its address.
	bareURL := make([]byte, 64)
	n, err := out.Read(bareURL)
	if err != nil {
		return err
	}
	all := []*carrier{{name: "bare", url: strings.TrimSpace(string(bareURL[:n]))}}
	// Without nginx the comparison still says something, so its absence is only noted.
	if at, err := beginNginx(ctx, dir, address, begin); err == nil {
		all = append(all, &carrier{name: "nginx", url: at})
	} else {
		a.Err.Print("without nginx: %v", err)
	}
	own, err := beginServer(ctx, dir, self, address, begin)
	if err != nil {
		return err
	}
	all = append(all, own)
	each := duration / time.Duration(measurements*rounds*len(all))
	for round := range rounds {
		a.Err.Print("round %d of %d", round+1, rounds)
		for i := range all {
			if err := all[(i+round)%len(all)].measure(ctx, each); err != nil {
				return err
			}
		}
	}
	report := ProxyReport{}
	for _, c := range all {
		report.Rows = append(report.Rows, c.row(all[0]))
	}
	return a.Show(report, func(w output.Printer) { printProxies(w, report) })
}

// printProxies prints the report for people.
func printProxies(w output.Printer, r ProxyReport) {
	var rows [][]string
	for _, c := range r.Rows {
		rows = append(rows, []string{
			c.Name, fmt.Sprintf("%.3f ms", c.P50), fmt.Sprintf("%.2f", c.P50Ratio), output.Thousands(int64(c.PerSecond)),
			fmt.Sprintf("%.2f", c.SecondRatio),
			fmt.Sprintf("%.3f ms", c.FirstByte), fmt.Sprintf("%.2f", c.FirstRatio),
			fmt.Sprintf("%.3f ms", c.ToolP50), fmt.Sprintf("%.2f", c.ToolP50Ratio), output.Thousands(int64(c.ToolPerSecond)),
			fmt.Sprintf("%.2f", c.ToolSecondRatio), output.Thousands(c.Errors),
		})
	}
	w.Table("", []string{
		"", "P50, 1 CONN", "TIMES", "A SECOND, 16", "TIMES", "FIRST BYTE", "TIMES", "TOOL CALLS, P50", "TIMES", "A SECOND", "TIMES", "ERRORS",
	}, rows)
	w.Print("times: how many times what the bare proxy takes")
}
