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

// newHarness makes `bench harness`.
func newHarness(a *command.App) *command.Command {
	b := newBench(a, "decision", 64, &command.Command{
		Use: "harness", Short: "Ask for decisions as fast as they are answered, or at a rate",
		Long: `Asks over AHP whether a command may be run, and prints how many decisions there were and
how fast: on the Unix socket in the data folder, or in POSTs with --server or a key.
Decisions are counted by kind. With --rate, the time of a question begins when it is due,
so that stalls of the server show in the latencies.

Decisions are recorded for good, in sessions whose names begin with bench-. Use a server
that you set up for it.`,
		Example: `  signalbox bench harness --connections 1 --compare
  signalbox bench harness --rate 2000 --duration 30s`,
		Args: command.NoArguments(),
	})
	b.agentFlags()
	b.compareFlag("a server that only answers")
	return b.withLoad(b.harness)
}

// harness puts the load on the Unix socket, as hooks on the same machine use it, or on POST /ahp if a
// server elsewhere or a key is given. The bare server of --compare speaks the same transport.
func (b *bench) harness(ctx context.Context) (report Report, err error) {
	target, err := harness.Address(b.App, b.agent.Key)
	if err != nil {
		return report, err
	}
	l, bare := b.load(target), b.bareSocket
	l.body, l.good = questions(), isDecision
	// The Unix socket takes no key: who may open it may ask. POSTs are those of an agent.
	if b.Elsewhere(b.agent.Key) {
		agent, problem := b.agent.Agent(ctx, "bench-", b.Client)
		if problem != nil {
			return report, problem
		}
		defer func() { err = errors.Join(err, agent.GiveBack(ctx)) }()
		l.key, l.read, bare = agent.Key, decisionStatus, b.bareAHP
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

// questions makes the events: one question in 64 sessions in turn. Ids and sessions differ, since the
// server knows repetitions by them.
func questions() func(int64) []byte {
	// As many sessions as the default number of connections.
	const sessions = 64
	run := "bench-" + strings.ToLower(rand.Text()[:10])
	at := time.Now().UTC().Format(time.RFC3339)
	return func(i int64) []byte {
		return fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":"%d","method":"ahp/event","params":{"event_type":"pre_action",`+
				`"session_id":"%s-%d","agent_id":"bench","timestamp":%q,"depth":0,`+
				`"payload":{"tool_name":"bash","arguments":{"command":"cargo test --all-features"}}}}`, i, run, i%sessions, at)
	}
}

// dialHarness returns load.dial for a harness: it opens a stream and does the handshake. A stream that is
// read when ctx ends is closed, so that the load ends in time.
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
			return decisionStatus(text)
		}
		// A read cannot be interrupted by a context, but by closing what is read.
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		// The answer is not looked at: if there is no handshake, every question fails and is counted.
		send([]byte(greeting))
		return send, func() { stop(); _ = s.Close() }, nil
	}
}

// decisionStatus is the decision in an answer, or a word for what is there instead. It is the status that the
// report counts.
func decisionStatus(text []byte) string {
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

// isDecision reports whether a status is a decision. A block is one: the load does not choose the policy.
func isDecision(status string) bool {
	return status == "allow" || status == "block" || status == "modify" || status == "defer" || status == "escalate"
}

// bareAnswer is the answer of the bare servers, which decide nothing.
const bareAnswer = `{"jsonrpc":"2.0","id":"0","result":{"decision":"allow"}}`

// bareSocket measures a bare server on a Unix socket, which answers every line.
func (b *bench) bareSocket(ctx context.Context, l load) (Load, error) {
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
	// Deferred calls run in reverse: close the listener, wait for the connections, remove the folder.
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

// bareAHP measures a bare handler, which reads a POST and answers.
func (b *bench) bareAHP(ctx context.Context, l load) (Load, error) {
	return b.measureBare(ctx, l, "/ahp", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, bareAnswer)
		}
	})
}
