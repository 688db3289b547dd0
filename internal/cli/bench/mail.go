package bench

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// newMail makes `bench mail`.
func newMail(a *command.App) *command.Command {
	b := newBench(a, "message", 16, &command.Command{
		Use: "mail", Short: "Send signed messages as fast as they are taken, or at a rate",
		Long: `Registers agents that write to each other in circles, and prints how many messages were
taken and how fast, and then the latencies at half of that rate. Every message is signed
beforehand and verified by the server. With --rate, and at half the rate, the time of a
message begins when it is due, so that stalls of the server show in the latencies. Agents
whose queues are nearly full are replaced by others; in long loads their queues are
fetched and acknowledged on the way.

Messages are recorded for good, in the tenant bench. Use a server that you set up for it.
The agents are removed at the end.`,
		Example: `  signalbox bench mail --compare
  signalbox bench mail --rate 2500 --duration 30s`,
		Args: command.NoArguments(),
	})
	agents := b.command.Flags().Int("agents", 40, "how many agents write to one another at a time")
	b.compareFlag("a bare HTTP handler")
	return b.withLoad(func(ctx context.Context) (Report, error) {
		if *agents < 2 || *agents > 10_000 {
			return Report{}, command.Usage("--agents takes 2 to 10000.")
		}
		return b.mail(ctx, *agents)
	})
}

// tenant is the workspace of the agents.
const tenant = "bench"

// correspondent is an agent that writes to the next one.
type correspondent struct {
	directory.Registered
	private ed25519.PrivateKey
	bodies  [][]byte     // a message for each of its recipients, signed once
	waiting atomic.Int64 // messages in its queue, if all that were sent have arrived
}

// correspondents are agents that write to one another, in circles. One circle writes at a time; the next
// takes over before its queues are full, since a full queue refuses.
type correspondents struct {
	operator *api.Client
	circle   int // agents in a circle
	agents   []*correspondent
	sent     int64               // messages of earlier loads, which occupy their queues
	full     chan *correspondent // agents whose queue is to be emptied; nil if there is room for all
}

const (
	// fromOne is how many messages a queue gets of one sender, who may fill a quarter of its 1,000, before the next
	// circle's turn, and writers is how many senders write to a queue.
	fromOne, writers = 200, 4
	// mailAtMost is for how many messages a second there is room, if no rate is given.
	mailAtMost = 15_000
	// maxCorrespondents is how many agents are registered at most; registering takes a while.
	maxCorrespondents = 640
)

// mail registers the agents, measures at full speed and, unless a rate is given, at half of what that
// reached: latencies at full speed say nothing.
func (b *bench) mail(ctx context.Context, agents int) (report Report, err error) {
	operator, err := b.Client()
	if err != nil {
		return report, err
	}
	all := &correspondents{operator: operator, circle: agents}
	defer all.removeAgents(ctx)
	if err := all.register(ctx, all.needed(b.flags)); err != nil {
		return report, err
	}
	l := b.load(operator.Base + "/v1/route")
	l.body, l.keyOf = all.body, all.key
	// The bare handler delivers nothing, so its messages do not count in the queues afterwards.
	if b.compare {
		bare, err := b.bareMail(ctx, l)
		if err != nil {
			return report, err
		}
		report.Bare = &bare
		for _, one := range all.agents {
			one.waiting.Store(0)
		}
	}
	// Queues are emptied beside the load, by requests that are not measured.
	draining, stop := context.WithCancel(ctx)
	var drained sync.WaitGroup
	drained.Go(func() { all.drain(draining) })
	defer drained.Wait()
	defer stop()
	if report.Server, err = b.measure(ctx, "server", l); err != nil {
		return report, err
	}
	report.compare()
	// Half of the throughput is a load that the server can carry; its latencies are worth reading.
	if b.rate == 0 && report.Server.PerSecond > 0 {
		all.sent, l.rate = report.Server.Requests, report.Server.PerSecond/2
		half, err := b.measure(ctx, "at half the rate", l)
		report.Half = &half
		return report, err
	}
	return report, nil
}

// needed is how many agents have to be registered so that no queue becomes full. If that is too many, it
// makes s.full, and queues are emptied on the way (drain).
func (s *correspondents) needed(f flags) int {
	// Without a rate: as many as a fast server may take, and half as many again at half the rate.
	messages := f.duration.Seconds() * cmp.Or(f.rate, 1.5*mailAtMost) // with those at half the rate
	agents := s.circle * int(math.Ceil(max(1, messages/float64(int64(s.circle)*s.nearlyFull()))))
	// Whole circles only, so that everybody has somebody to write to.
	if most := max(1, maxCorrespondents/s.circle) * s.circle; agents > most {
		s.full = make(chan *correspondent, most)
		return most
	}
	return agents
}

// register registers n agents with keys of their own, lifts their rate limits, and signs their messages.
func (s *correspondents) register(ctx context.Context, n int) error {
	// The workspace stays: another benchmark may run at the same time.
	err := s.operator.Call(ctx, api.Post("/ops/workspaces", map[string]string{"name": tenant}), nil)
	if err != nil && !fault.Is(err, fault.AlreadyExists) {
		return err
	}
	prefix := "bench-" + strings.ToLower(rand.Text()[:8]) + "-"
	for i := range n {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return err
		}
		c := &correspondent{private: private}
		in := map[string]string{
			"tenant": tenant, "name": fmt.Sprint(prefix, i), "public_key": roster.EncodePublicKey(public),
			"key_algorithm": "Ed25519",
		}
		if err := s.operator.Call(ctx, api.Post("/v1/register", in), &c.Registered); err != nil {
			return err
		}
		s.agents = append(s.agents, c)
		// What is measured is the server, and not its limits.
		if err := s.operator.Unlimit(ctx, in["name"], tenant); err != nil {
			return err
		}
	}
	for i, c := range s.agents {
		for turn := range s.writers() {
			if err := c.signMessage(s.recipientOf(i, turn)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writers is how many agents of a circle write to the same queue.
func (s *correspondents) writers() int64 { return int64(min(writers, s.circle-1)) }

// nearlyFull is how many messages a queue gets before the next circle's turn.
func (s *correspondents) nearlyFull() int64 { return fromOne * s.writers() }

// recipientOf is the agent that agent i writes to in one of its turns: one of those behind it in its circle.
func (s *correspondents) recipientOf(i int, turn int64) *correspondent {
	first := i - i%s.circle
	return s.agents[first+(i+1+int(turn)-first)%s.circle]
}

// senderOf is the index of the agent that sends message number n, and the turn that decides about its recipient: the
// agents of a circle one after the other, and the next circle when all its queues are nearly full.
func (s *correspondents) senderOf(n int64) (i int, turn int64) {
	// Earlier loads have filled the first queues; go on behind them.
	n += s.sent
	size := int64(s.circle)
	circle := n / (size * s.nearlyFull()) * size
	return int((circle + n%size) % int64(len(s.agents))), n / size % s.writers()
}

// signMessage makes and signs a message that an agent sends. The server accepts the same bytes many times,
// since a message's id is its own.
func (c *correspondent) signMessage(to *correspondent) error {
	payload := []byte(
		`{"context":{"source":"signalbox bench"},` +
			`"message":"Please process the following task, and tell me when it is done.","type":"request"}`,
	)
	// The address is the one that the server gave the agent; a signature covers it.
	signature, err := amp.Signed{
		From: []string{c.Address}, To: []string{to.Address}, Subject: "Task request",
		Priority: "normal", Payload: payload,
	}.Sign(c.private)
	if err != nil {
		return err
	}
	body, err := wire.Marshal(map[string]any{
		"to": to.Address, "subject": "Task request", "priority": "normal",
		"payload": wire.Raw(payload), "signature": signature,
	})
	c.bodies = append(c.bodies, body)
	return err
}

// key is load.keyOf: the key of the agent that sends message number n.
func (s *correspondents) key(n int64) string {
	i, _ := s.senderOf(n)
	return s.agents[i].APIKey
}

// body is load.body. It counts the message in its recipient's queue, and has that emptied in time.
func (s *correspondents) body(n int64) []byte {
	i, turn := s.senderOf(n)
	// Exactly once per filling: Add returns each number to one caller.
	if to := s.recipientOf(i, turn); to.waiting.Add(1) == s.nearlyFull() && s.full != nil {
		s.full <- to
	}
	return s.agents[i].bodies[turn]
}

// drain empties queues that are nearly full until ctx ends. Without s.full it only waits.
func (s *correspondents) drain(ctx context.Context) {
	for {
		select {
		case c := <-s.full:
			n, err := s.emptyQueue(ctx, c)
			// It may have been filled again while it was emptied; then nobody else reports it.
			if err == nil && c.waiting.Add(-n) >= s.nearlyFull() {
				s.full <- c
			}
		case <-ctx.Done():
			return
		}
	}
}

// emptyQueue fetches and acknowledges what waits for an agent, and returns how many messages that were.
func (s *correspondents) emptyQueue(ctx context.Context, c *correspondent) (int64, error) {
	as := s.operator.As(c.APIKey)
	// A page may have 1,000 messages; it is read only as far as the ids.
	var raw wire.Raw // of a page nothing is needed but the ids
	if err := as.Call(ctx, api.Get("/v1/messages/pending?limit=1000"), &raw); err != nil {
		return 0, err
	}
	var page struct {
		Messages []struct {
			ID string `json:"id"`
		} `json:"messages"`
	}
	if err := wire.UnmarshalPart(raw, &page); err != nil || len(page.Messages) == 0 {
		return 0, err
	}
	var ids struct {
		IDs []string `json:"ids"`
	}
	for _, m := range page.Messages {
		ids.IDs = append(ids.IDs, m.ID)
	}
	return int64(len(ids.IDs)), as.Call(ctx, api.Post("/v1/messages/pending/ack", ids), nil)
}

// removeAgents removes the agents, also if the command was stopped with Ctrl-C.
func (s *correspondents) removeAgents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var leaving errgroup.Group
	leaving.SetLimit(8)
	for _, c := range s.agents {
		leaving.Go(func() error {
			as := s.operator.As(c.APIKey)
			return as.Call(ctx, api.Delete("/v1/agents/me"), nil)
		})
	}
	_ = leaving.Wait() // agents that stay are in the tenant bench, where nobody else is
}

// bareMessage is a message, for a handler that only parses it.
type bareMessage struct {
	To        string `json:"to"`
	Subject   string `json:"subject"`
	Priority  string `json:"priority"`
	Signature string `json:"signature"`
	Payload   struct {
		Type    string   `json:"type"`
		Message string   `json:"message"`
		Context wire.Raw `json:"context"`
	} `json:"payload"`
}

// bareMail measures a handler that reads and parses a message and answers. The difference to the server is
// what verifying, deciding and recording take.
func (b *bench) bareMail(ctx context.Context, l load) (Load, error) {
	return b.measureBare(ctx, l, "/v1/route", func(w http.ResponseWriter, r *http.Request) {
		var m bareMessage
		if err := wire.ReadJSON(w, r, 1<<20, &m); err != nil || m.To == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = wire.Reply(w, http.StatusOK,
			mail.Answer{
				ID: "msg_1706648400_abc123", Status: mail.Queued, Method: mail.ByRelay,
				QueuedAt: "2026-01-01T00:00:00Z",
			})
	})
}
