package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client/ahp"
	"signalbox/internal/harness"
)

func newBenchHarness(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "harness", Short: "Ask for decisions as fast as they are answered, or at a rate",
		Long: "Asks over AHP whether a command may be run, and prints how many decisions there were and\nhow fast: on the Unix socket in the data folder, or with --server or a key in POSTs. With\n--rate a question counts from when it was due, so that a server which stands still is seen\nto. Decisions are counted by what they were.\n\n" +
			"They are recorded for good, in sessions that begin with bench-: use a server that is there\nfor it.",
		Example: "  signalbox bench harness --connections 1 --compare\n  signalbox bench harness --rate 2000 --duration 30s", Args: exactly(0, "no arguments"),
	})
	var f benchFlags
	f.add(c, "decision")
	c.Flags().BoolVar(&f.compare, "compare", false, "measure a server that only answers in the same way first, and print the ratio")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.bench(c.Context(), f, "decision", a.benchHarness)
	}
	return c
}

func (a *app) benchHarness(ctx context.Context, f benchFlags) (report BenchReport, err error) {
	l := load{connections: f.connections, duration: f.duration, rate: f.rate, body: benchQuestions(), good: isDecision}
	bare := a.benchEcho
	if a.elsewhere(f.agent.key) {
		if l.url, err = a.address(); err != nil {
			return report, err
		}
		agent, problem := f.agent.agent(ctx, "bench-", a.client)
		if problem != nil {
			return report, problem
		}
		defer func() { err = errors.Join(err, agent.giveBack(ctx)) }()
		l.url, l.key, l.read, bare = l.url+"/ahp", agent.key, decided, a.benchBareAHP
	} else {
		l.dial = dialHarness("unix:" + filepath.Join(a.dataDir(), harness.SocketFile))
	}
	if f.compare {
		got, err := bare(ctx, l)
		if err != nil {
			return report, err
		}
		report.Bare = &got
	}
	report.Server, err = a.measure(ctx, "server", l)
	report.compare()
	return report, err
}

// benchQuestions makes the events: the same but for the session.
func benchQuestions() func(int64) []byte {
	const sessions = 64
	run := "bench-" + strings.ToLower(rand.Text()[:10])
	at := time.Now().UTC().Format(time.RFC3339)
	return func(i int64) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"%d","method":"ahp/event","params":{"event_type":"pre_action","session_id":"%s-%d","agent_id":"bench","timestamp":%q,"depth":0,`+
			`"payload":{"tool_name":"bash","arguments":{"command":"cargo test --all-features"}}}}`, i, run, i%sessions, at)
	}
}

// dialHarness opens a stream to a harness for one connection of a load.
func dialHarness(target string) func(context.Context) (func([]byte) string, func(), error) {
	const greeting = `{"jsonrpc":"2.0","id":"h","method":"ahp/handshake","params":{"protocol_version":"` + ahp.Version + `","agent_info":{"framework":"signalbox-bench","version":"` + ahp.Version + `","capabilities":["pre_action"]},"session_id":"bench","agent_id":"bench"}}`
	return func(ctx context.Context) (func([]byte) string, func(), error) {
		s, err := ahp.OpenStream(ctx, target, "")
		if err != nil {
			return nil, nil, err
		}
		send := func(body []byte) string {
			if s.Write(body) != nil {
				return noAnswer
			}
			text, err := s.Read()
			if err != nil {
				return noAnswer
			}
			return decided(text)
		}
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		send([]byte(greeting))
		return send, func() { stop(); _ = s.Close() }, nil
	}
}

// decided is the decision in an answer, or what kind of error it is.
func decided(text []byte) string {
	var answer struct {
		Result struct {
			Decision string `json:"decision"`
		} `json:"result"`
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(text, &answer); {
	case err != nil:
		return "not readable"
	case answer.Result.Decision != "":
		return answer.Result.Decision
	}
	return fmt.Sprintf("error %d", answer.Error.Code)
}

func isDecision(status string) bool {
	return status == "allow" || status == "block" || status == "modify" || status == "defer" || status == "escalate"
}

// bareAnswer is what a server says that decides nothing.
const bareAnswer = `{"jsonrpc":"2.0","id":"0","result":{"decision":"allow"}}`

// benchEcho measures a server that answers every line on a Unix socket.
func (a *app) benchEcho(ctx context.Context, l load) (Load, error) {
	dir, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return Load{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "s")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return Load{}, err
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() { _ = listener.Close() }()
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				for in := bufio.NewReader(conn); ; {
					if _, err := in.ReadBytes('\n'); err != nil {
						return
					}
					if _, err := io.WriteString(conn, bareAnswer+"\n"); err != nil {
						return
					}
				}
			})
		}
	})
	l.dial = dialHarness("unix:" + path)
	return a.measure(ctx, bareName, l)
}

// benchBareAHP measures a handler that reads a POST and answers.
func (a *app) benchBareAHP(ctx context.Context, l load) (Load, error) {
	return a.measureBare(ctx, l, "/ahp", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, bareAnswer)
		}
	})
}
