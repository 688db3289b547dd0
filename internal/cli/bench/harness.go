package bench

import (
	"bufio"
	"context"
	"crypto/rand"
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

	"signalbox/client/ahp"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/harness"
	"signalbox/internal/wire"
)

func newHarness(a *command.App) *command.Command {
	b := newBench(a, "decision", 64, &command.Command{
		Use: "harness", Short: "Ask for decisions as fast as they are answered, or at a rate",
		Long: "Asks over AHP whether a command may be run, and prints how many decisions there were and\n" +
			"how fast: on the Unix socket in the data folder, or with --server or a key in POSTs. With\n" +
			"--rate a question counts from when it was due, so that a server which stands still is seen\n" +
			"to. Decisions are counted by what they were.\n\n" +
			"They are recorded for good, in sessions that begin with bench-: use a server that is there\nfor it.",
		Example: "  signalbox bench harness --connections 1 --compare\n  signalbox bench harness --rate 2000 --duration 30s",
		Args:    command.NoArguments(),
	})
	b.agentFlags()
	b.compareFlag("a server that only answers")
	return b.runs(b.harness)
}

func (b *bench) harness(ctx context.Context) (report Report, err error) {
	target, err := harness.Address(b.App, b.agent.Key)
	if err != nil {
		return report, err
	}
	l, bare := b.load(target), b.echo
	l.body, l.good = questions(), isDecision
	if b.Elsewhere(b.agent.Key) {
		agent, problem := b.agent.Agent(ctx, "bench-", b.Client)
		if problem != nil {
			return report, problem
		}
		defer func() { err = errors.Join(err, agent.GiveBack(ctx)) }()
		l.key, l.read, bare = agent.Key, decided, b.bareAHP
	} else {
		l.dial = dialHarness(target)
	}
	if b.compare {
		got, err := bare(ctx, l)
		if err != nil {
			return report, err
		}
		report.Bare = &got
	}
	report.Server, err = b.measure(ctx, "server", l)
	report.compare()
	return report, err
}

// questions makes the events: the same but for the session.
func questions() func(int64) []byte {
	const sessions = 64
	run := "bench-" + strings.ToLower(rand.Text()[:10])
	at := time.Now().UTC().Format(time.RFC3339)
	return func(i int64) []byte {
		return fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":"%d","method":"ahp/event","params":{"event_type":"pre_action","session_id":"%s-%d","agent_id":"bench","timestamp":%q,"depth":0,`+
				`"payload":{"tool_name":"bash","arguments":{"command":"cargo test --all-features"}}}}`, i, run, i%sessions, at)
	}
}

// dialHarness opens a stream to a harness for one connection of a load.
func dialHarness(target string) func(context.Context) (func([]byte) string, func(), error) {
	const greeting = `{"jsonrpc":"2.0","id":"h","method":"ahp/handshake","params":{"protocol_version":"` + ahp.Version +
		`","agent_info":{"framework":"signalbox-bench","version":"` + ahp.Version +
		`","capabilities":["pre_action"]},"session_id":"bench","agent_id":"bench"}}`
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
	switch err := wire.UnmarshalPart(text, &answer); {
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

// echo measures a server that answers every line on a Unix socket.
func (b *bench) echo(ctx context.Context, l load) (Load, error) {
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
	return b.measure(ctx, bareName, l)
}

// bareAHP measures a handler that reads a POST and answers.
func (b *bench) bareAHP(ctx context.Context, l load) (Load, error) {
	return b.measureBare(ctx, l, "/ahp", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, bareAnswer)
		}
	})
}
