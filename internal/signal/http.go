package signal

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// maxWait is the longest that one call waits for a decision.
const maxWait = time.Minute

// Routes are the calls of AMP v1.0 and of its roadmap.
func (s *Signals) Routes() []wire.Route {
	wait := wire.Param{Name: "wait", Meaning: "how long to wait for the decision, such as 30s; 60s at most"}
	inWorkspace := []wire.Param{{Name: "workspace", Meaning: "the workspace of the agent; default when absent"}}
	post := func(path, summary string, t Type) wire.Route {
		return wire.Route{
			Method: "POST", Path: path, Summary: summary, Auth: wire.Agent, RequestMedia: "application/json",
			Answer: Answer{}, Handle: s.post(t),
		}
	}
	return []wire.Route{
		post("/amp/signal", "Signal what was done and what is proposed; 202 while a person decides", ""),
		post("/amp/gate_request", "Ask for a decision in the middle of a run (AMP 2.0)", GateRequest),
		post("/amp/failure", "Report that a run failed (AMP 2.0)", Failure),
		post("/amp/register", "Register with what the agent can do and the trust it asks for (AMP 1.1)", Registration),
		post("/amp/receipt", "Report what became of an approved action (AMP 3.0)", Receipt),
		{
			Method: "POST", Path: "/amp/heartbeat", Summary: "Say that a run is alive; the answer may ask it to halt (AMP 2.0)",
			Auth: wire.Agent, RequestMedia: "application/json", Answer: Pulse{}, Handle: s.postHeartbeat,
		},
		{
			Method: "GET", Path: "/amp/policy", Summary: "The rules that the agent's signals meet (AMP 3.0)", Auth: wire.Agent,
			Answer: Published{}, Handle: wire.Answer(http.StatusOK, s.getPolicy),
		},
		{
			Method: "GET", Path: "/amp/webhook", Summary: "The agent's webhook, with the secret that verifies it",
			Auth: wire.Agent, Answer: ShownWebhook{}, Handle: wire.Answer(http.StatusOK, s.getOwnWebhook),
		},
		{
			Method: "GET", Path: "/ops/agents/{name}/webhook",
			Summary: "Show an agent's webhook, with the secret that verifies it", Auth: wire.Operator, Query: inWorkspace,
			Answer: ShownWebhook{}, Handle: wire.Answer(http.StatusOK, s.getWebhook),
		},
		{
			Method: "PUT", Path: "/ops/agents/{name}/webhook",
			Summary: "Register an agent's webhook and the hosts that its signals may name", Auth: wire.Operator,
			Query: inWorkspace, Request: NewWebhook{}, Answer: ShownWebhook{},
			Handle: wire.Take(http.StatusOK, maxBody, s.putWebhook),
		},
		{
			Method: "POST", Path: "/ops/agents/{name}/halt",
			Summary: "Ask a run, or all of an agent's, to stop with its next heartbeat", Auth: wire.Operator, Query: inWorkspace,
			Request: Halt{}, Answer: Halt{}, Handle: wire.Take(http.StatusOK, maxBody, s.postHalt),
		},
		{
			Method: "GET", Path: "/ops/heartbeats", Summary: "Runs that send heartbeats, and those that have stopped to",
			Auth: wire.Viewer, Answer: LiveRuns{}, Handle: wire.Answer(http.StatusOK, s.getHeartbeats),
		},
		{
			Method: "GET", Path: "/amp/gates/{gate_id}",
			Summary: "The resolution, for the agent that asked; with Accept: text/event-stream as events", Auth: wire.Agent,
			Query: []wire.Param{wait}, Answer: Answer{}, Handle: s.getGate,
		},
		{
			Method: "GET", Path: "/amp/pricing", Summary: "What models cost", Answer: PriceTable{},
			Handle: wire.Answer(http.StatusOK, s.getPricing),
		},
		{
			Method: "PUT", Path: "/ops/pricing", Summary: "Replace the price table", Auth: wire.Admin, Request: NewPrices{},
			Answer: PriceTable{}, Handle: wire.Take(http.StatusOK, maxBody, s.putPricing),
		},
	}
}

// post reads a message and answers it. t is the type that the address says, "" where
// the message says it itself.
func (s *Signals) post(t Type) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := wire.IsJSON(r); err != nil {
			return err
		}
		wait := wire.PreferredWait(r, maxWait)
		body, err := wire.Read(w, r, maxBody)
		if err != nil {
			return err
		}
		got, err := s.Receive(r.Context(), roster.From(r.Context()), t, body)
		if err != nil {
			return err
		}
		if got.Duplicate {
			w.Header().Set("AMP-Duplicate", "true")
		}
		if len(got.Warnings) > 0 {
			w.Header().Set("AMP-Warnings", headerText(strings.Join(got.Warnings, "; ")))
		}
		if wait > 0 && got.Status == gate.Pending {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
			g, err := s.wait(r.Context(), *got.GateID, wait)
			if err != nil {
				return err
			}
			got.Answer = answer(g.ID, resolution(g))
		}
		return s.reply(w, r, got.Answer)
	}
}

func (s *Signals) postHeartbeat(w http.ResponseWriter, r *http.Request) error {
	if err := wire.IsJSON(r); err != nil {
		return err
	}
	body, err := wire.Read(w, r, maxBody)
	if err != nil {
		return err
	}
	p, err := s.Beat(r.Context(), roster.From(r.Context()), body)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, p)
}

// Published is what an agent may know of the policy: which rules there are for its
// signals and what they do, but not what they look at.
type Published struct {
	Version int64           `json:"version"`
	Default policy.Action   `json:"default"`
	Rules   []PublishedRule `json:"rules"`
}

// PublishedRule is a rule as agents see it.
type PublishedRule struct {
	Name string        `json:"name"`
	Then policy.Action `json:"then"`
}

// Published is what agents may know of the policy in force.
func (s *Signals) Published() Published {
	number, p := s.core.Book.Policy()
	out := Published{Version: number, Default: policy.Block, Rules: []PublishedRule{}}
	if p != nil {
		out.Default = p.Defaults()[policy.OnSignal]
		for _, r := range p.Rules() {
			if slices.Contains(r.Points, policy.OnSignal) && r.Mode != "shadow" {
				out.Rules = append(out.Rules, PublishedRule{r.Name, r.Then})
			}
		}
	}
	return out
}

func (s *Signals) getPolicy(*http.Request) (Published, error) { return s.Published(), nil }

// maxHeader is how much of a text goes into a header: clients take a few thousand bytes.
const maxHeader = 1000

// headerText is text as a header can hold it.
func headerText(text string) string {
	if len(text) > maxHeader {
		text = text[:maxHeader] + "..."
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
}

func (s *Signals) reply(w http.ResponseWriter, r *http.Request, a Answer) error {
	if a.Status == gate.Pending {
		return wire.Reply(w, http.StatusAccepted, a)
	}
	if wire.Prefers(r, "resolved-by") {
		who, err := s.whoResolved(r.Context(), a)
		if err != nil {
			return err
		}
		w.Header().Set("AMP-Resolved-By", headerText(who))
		w.Header().Add("Preference-Applied", "resolved-by")
	}
	return wire.Reply(w, http.StatusOK, a)
}

// whoResolved names the operator who decided, or is "rule".
func (s *Signals) whoResolved(ctx context.Context, a Answer) (string, error) {
	if a.GateID == nil {
		return gate.ByRule.Decider(), nil
	}
	g, err := s.core.Gates.Get(ctx, *a.GateID)
	if g.Cause != gate.ByVote {
		return g.Cause.Decider(), err
	}
	return g.ResolvedBy, err
}

// Await is where a gate of the caller's stands: as soon as it is decided, or when most is
// over, or the server stops. For others than the agent that asked it is not there.
func (s *Signals) Await(ctx context.Context, who roster.Identity, gateID string, most time.Duration) (Answer, error) {
	g, err := s.ownGate(ctx, who, gateID)
	if err == nil && most > 0 && g.Status == gate.Pending {
		g, err = s.wait(ctx, g.ID, most)
	}
	if err != nil {
		return Answer{}, err
	}
	return answer(g.ID, resolution(g)), nil
}

func (s *Signals) wait(ctx context.Context, gateID string, most time.Duration) (gate.Gate, error) {
	waiting, cancel := wire.Waiting(ctx, most)
	defer cancel()
	return s.core.Gates.Wait(waiting, gateID)
}

func (s *Signals) getGate(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	// first: a gate of others is not there, whatever is asked
	g, err := s.ownGate(r.Context(), who, r.PathValue("gate_id"))
	if err != nil {
		return err
	}
	wait, err := wire.QueryWait(r, maxWait)
	if err != nil {
		return err
	}
	if wire.WantsEvents(r) {
		return s.stream(w, r, g)
	}
	a, err := s.Await(r.Context(), who, g.ID, wait)
	if err != nil {
		return err
	}
	return s.reply(w, r, a)
}

// stream sends where the gate stands, and its resolution when there is one.
func (s *Signals) stream(w http.ResponseWriter, r *http.Request, g gate.Gate) error {
	events := wire.Events(w)
	for {
		data, err := wire.Marshal(answer(g.ID, resolution(g)))
		if err != nil {
			return err
		}
		gone := events.Send("", string(g.Status), data) != nil || r.Context().Err() != nil
		if gone || g.Status != gate.Pending {
			return nil
		}
		// What is sent again after a while keeps proxies from closing the connection.
		if g, err = s.wait(r.Context(), g.ID, wire.StreamBeat); err != nil {
			s.core.Log.Warn("a stream of a gate broke off; its client connects again", "error", err.Error())
			return nil
		}
		select {
		case <-wire.Stop(r.Context()):
			return nil
		case <-r.Context().Done():
			return nil
		default:
		}
	}
}
