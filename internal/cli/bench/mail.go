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

func newMail(a *command.App) *command.Command {
	b := newBench(a, "message", 16, &command.Command{
		Use: "mail", Short: "Send signed messages as fast as they are taken, or at a rate",
		Long: "Registers agents, lets each write to the next, and prints how many messages were taken\n" +
			"and how fast, and then how long they take at half of that rate. Every message is signed\n" +
			"beforehand, and verified by the server. With --rate, and at half the rate, a message\n" +
			"counts from when it was due, so that a server which stands still is seen to. When the\n" +
			"queues of the agents are nearly full others take their place; those of long loads " +
			"are\nfetched and acknowledged on the way.\n\n" +
			"Messages are recorded for good, in the tenant bench: use a server that is " +
			"there for it.\nThe agents leave at the end.",
		Example: "  signalbox bench mail --compare\n  signalbox bench mail --rate 2500 --duration 30s",
		Args:    command.NoArguments(),
	})
	agents := b.command.Flags().Int("agents", 40, "how many agents write to one another at a time")
	b.compareFlag("a bare HTTP handler")
	return b.runs(func(ctx context.Context) (Report, error) {
		if *agents < 2 || *agents > 10_000 {
			return Report{}, command.Usage("--agents takes 2 to 10000.")
		}
		return b.mail(ctx, *agents)
	})
}

// tenant is where the agents are.
const tenant = "bench"

// correspondent is an agent that writes to the next one.
type correspondent struct {
	directory.Registered
	private ed25519.PrivateKey
	body    []byte       // what it sends, always
	waiting atomic.Int64 // messages in its queue, as far as we know
}

// correspondents are agents that write to one another, in circles.
type correspondents struct {
	operator *api.Client
	circle   int // how many write at a time
	agents   []*correspondent
	sent     int64               // messages of the loads before
	full     chan *correspondent // whose queue is to be emptied; nil when there is room for all
}

const (
	// nearlyFull is when a queue, which takes 1,000, is left alone.
	nearlyFull = 800
	// mailAtMost is how many messages a second are made room for.
	mailAtMost = 15_000
	// maxCorrespondents is how many agents are registered for that at the most.
	maxCorrespondents = 640
)

func (b *bench) mail(ctx context.Context, agents int) (report Report, err error) {
	operator, err := b.Client()
	if err != nil {
		return report, err
	}
	all := &correspondents{operator: operator, circle: agents}
	defer all.leave(ctx)
	if err := all.register(ctx, all.needed(b.flags)); err != nil {
		return report, err
	}
	l := b.load(operator.Base + "/v1/route")
	l.body, l.keyOf = all.body, all.key
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
	draining, stop := context.WithCancel(ctx)
	var drained sync.WaitGroup
	drained.Go(func() { all.drain(draining) })
	defer drained.Wait()
	defer stop()
	if report.Server, err = b.measure(ctx, "server", l); err != nil {
		return report, err
	}
	report.compare()
	if b.rate == 0 && report.Server.PerSecond > 0 {
		all.sent, l.rate = report.Server.Requests, report.Server.PerSecond/2
		half, err := b.measure(ctx, "at half the rate", l)
		report.Half = &half
		return report, err
	}
	return report, nil
}

// needed is how many agents it takes for no queue to become full; if that is too many,
// queues are emptied on the way.
func (s *correspondents) needed(f flags) int {
	messages := f.duration.Seconds() * cmp.Or(f.rate, 1.5*mailAtMost) // with those at half the rate
	agents := s.circle * int(math.Ceil(max(1, messages/float64(s.circle*nearlyFull))))
	if most := max(1, maxCorrespondents/s.circle) * s.circle; agents > most {
		s.full = make(chan *correspondent, most)
		return most
	}
	return agents
}

// register registers the agents, and frees them of limits.
func (s *correspondents) register(ctx context.Context, n int) error {
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
		if err := s.operator.Unlimit(ctx, in["name"], tenant); err != nil {
			return err
		}
	}
	for i, c := range s.agents {
		if err := c.write(s.next(i)); err != nil {
			return err
		}
	}
	return nil
}

// next is who an agent writes to: the next one of its circle.
func (s *correspondents) next(i int) *correspondent {
	first := i - i%s.circle
	return s.agents[first+(i+1-first)%s.circle]
}

// from is who sends the message with the number.
func (s *correspondents) from(n int64) int {
	n += s.sent
	circle := n / int64(s.circle*nearlyFull) * int64(s.circle)
	return int((circle + n%int64(s.circle)) % int64(len(s.agents)))
}

// write makes the message that an agent sends.
func (c *correspondent) write(to *correspondent) error {
	payload := []byte(
		`{"context":{"source":"signalbox bench"},"message":"Please process the following task, and tell me when it is done.","type":"request"}`,
	)
	signature, err := amp.Signed{
		From: []string{c.Address}, To: []string{to.Address}, Subject: "Task request",
		Priority: "normal", Payload: payload,
	}.Sign(c.private)
	if err != nil {
		return err
	}
	c.body, err = wire.Marshal(map[string]any{
		"to": to.Address, "subject": "Task request", "priority": "normal",
		"payload": wire.Raw(payload), "signature": signature,
	})
	return err
}

func (s *correspondents) key(n int64) string { return s.agents[s.from(n)].APIKey }

func (s *correspondents) body(n int64) []byte {
	i := s.from(n)
	if to := s.next(i); to.waiting.Add(1) == nearlyFull && s.full != nil {
		s.full <- to
	}
	return s.agents[i].body
}

// drain empties queues that are nearly full, if that is needed, until ctx ends.
func (s *correspondents) drain(ctx context.Context) {
	for {
		select {
		case c := <-s.full:
			n, err := s.empty(ctx, c)
			if err == nil && c.waiting.Add(-n) >= nearlyFull {
				s.full <- c
			}
		case <-ctx.Done():
			return
		}
	}
}

// empty fetches and acknowledges what waits for an agent.
func (s *correspondents) empty(ctx context.Context, c *correspondent) (int64, error) {
	as := s.operator.As(c.APIKey)
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

// leave lets the agents leave, also when the command was stopped by Ctrl-C.
func (s *correspondents) leave(ctx context.Context) {
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
	_ = leaving.Wait() // what stays is in the tenant bench
}

// bareMessage is a message, for a handler that does nothing but read it.
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

// bareMail measures a handler that reads and parses a message and answers: what is
// left of the time is what verifying, deciding and recording take.
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
