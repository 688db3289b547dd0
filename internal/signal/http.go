package signal

import (
	"cmp"
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

// maxWait is how long one call may wait for a decision (SIG-23). Common proxies and load balancers
// close a connection that was silent for longer.
const maxWait = time.Minute

// Routes are the calls of AMP v1.0 and of its later message types, and those of operators about
// webhooks, heartbeats and prices. Auth is checked before a handler runs.
func (s *Signals) Routes() []wire.Route {
	wait := wire.Param{Name: "wait", Meaning: "how long to wait for the decision, such as 30s; 60s at most"}
	inWorkspace := []wire.Param{{Name: "workspace", Meaning: "the workspace of the agent; default when absent"}}
	post := func(path, summary string, t Type) wire.Route {
		return wire.Route{
			Method: "POST", Path: path, Summary: summary, Auth: wire.Agent,
			Request: documents[cmp.Or(t, Completion)], Answer: Answer{}, Also: http.StatusAccepted, Handle: s.post(t),
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
			Auth: wire.Agent, Request: documents[Heartbeat], Answer: Pulse{}, Handle: s.postHeartbeat,
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
			Method: "GET", Path: "/ops/heartbeats", Summary: "Runs that send heartbeats, and runs that went silent",
			Auth: wire.Viewer, Answer: LiveRuns{}, Handle: wire.Answer(http.StatusOK, s.getHeartbeats),
		},
		{
			Method: "GET", Path: "/amp/gates/{gate_id}",
			Summary: "The resolution, for the agent that asked; with Accept: text/event-stream as events", Auth: wire.Agent,
			Query: []wire.Param{wait}, Answer: Answer{}, Also: http.StatusAccepted, Handle: s.getGate,
		},
	}
}

// post handles a message. t is the type that the path stands for, "" if the message names it.
// With Prefer: wait the answer is held until the decision (SIG-25); the message is on disk by
// then, so a client that gives up can poll.
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
		if wait > 0 { // also when the decision is there already: nobody has to wait for it
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
		}
		if wait > 0 && got.Status == gate.Pending {
			g, err := s.awaitGate(r.Context(), *got.GateID, wait)
			if err != nil {
				return err
			}
			got.Answer = answer(g.ID, gateOutcome(g))
		}
		return s.writeAnswer(w, r, got.Answer)
	}
}

// postHeartbeat handles a heartbeat, whose answer has another form than all others.
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

// Published is what an agent may know of the policy: the names and actions of the rules that its
// signals meet. Conditions are left out, since an agent that knows them can write around
// them, and so are rules in shadow mode, which decide nothing (SIG-48).
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

// Published is what an agent may know of the policy in force, with the layers of its workspace and of its owner.
// Without a policy, or with a layer that cannot be read, everything is blocked, and that is what it says.
func (s *Signals) Published(ctx context.Context, who roster.Identity) (Published, error) {
	number, _ := s.core.Book.Policy()
	out := Published{Version: number, Default: policy.Block, Rules: []PublishedRule{}}
	owner, err := s.core.Roster.For(ctx, who, "")
	if err != nil {
		return out, err
	}
	in, readable := s.core.Book.Stack(who, owner)
	if !readable {
		return out, nil
	}
	out.Default = in.Default(policy.OnSignal).Action
	for _, p := range in.Policies() {
		for _, r := range p.Rules() {
			if slices.Contains(r.Points, policy.OnSignal) && r.Mode != "shadow" {
				out.Rules = append(out.Rules, PublishedRule{r.Name, r.Then})
			}
		}
	}
	return out, nil
}

func (s *Signals) getPolicy(r *http.Request) (Published, error) {
	return s.Published(r.Context(), roster.From(r.Context()))
}

// maxHeader is how many bytes of text go into a header. Clients and proxies refuse headers of
// more than a few thousand.
const maxHeader = 1000

// headerText makes text safe for a header: cut to maxHeader, and everything but printable ASCII
// replaced. What agents wrote must not be able to add a header.
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

// writeAnswer writes an answer: 202 while it is pending, else 200 (SIG-2). With Prefer: resolved-by a
// header names the operator who decided (SIG-29).
func (s *Signals) writeAnswer(w http.ResponseWriter, r *http.Request, a Answer) error {
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

// Await is the state of a gate of the caller. It returns when the gate is decided, when most has
// passed, or when the server stops, whichever is first. A gate of another agent is not found
// (SIG-26).
func (s *Signals) Await(ctx context.Context, who roster.Identity, gateID string, most time.Duration) (Answer, error) {
	g, err := s.ownGate(ctx, who, gateID)
	if err == nil && most > 0 && g.Status == gate.Pending {
		g, err = s.awaitGate(ctx, g.ID, most)
	}
	if err != nil {
		return Answer{}, err
	}
	return answer(g.ID, gateOutcome(g)), nil
}

// awaitGate returns the gate when it is resolved, when most has passed or when the server stops. The
// last two are not errors: the gate is then pending.
func (s *Signals) awaitGate(ctx context.Context, gateID string, most time.Duration) (gate.Gate, error) {
	waiting, cancel := wire.Waiting(ctx, most)
	defer cancel()
	return s.core.Gates.Wait(waiting, gateID)
}

func (s *Signals) getGate(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	// First, before parameters are checked: an error about those would tell that the gate exists.
	g, err := s.ownGate(r.Context(), who, r.PathValue("gate_id"))
	if err != nil {
		return err
	}
	wait, err := wire.QueryWait(r, maxWait)
	if err != nil {
		return err
	}
	if wire.WantsEvents(r) {
		return s.streamGate(w, r, g)
	}
	a, err := s.Await(r.Context(), who, g.ID, wait)
	if err != nil {
		return err
	}
	return s.writeAnswer(w, r, a)
}

// streamGate sends the state of the gate as server-sent events, and ends after the resolution
// (SIG-24). A pending state is sent again with every beat, which keeps proxies from closing
// the connection and finds out whether the client is there.
func (s *Signals) streamGate(w http.ResponseWriter, r *http.Request, g gate.Gate) error {
	events := wire.Events(w)
	for {
		data, err := wire.Marshal(answer(g.ID, gateOutcome(g)))
		if err != nil {
			return err
		}
		gone := events.Send("", string(g.Status), data) != nil || r.Context().Err() != nil
		if gone || g.Status != gate.Pending {
			return nil
		}
		if g, err = s.awaitGate(r.Context(), g.ID, wire.StreamBeat); err != nil {
			s.core.Log.Warn("gate event stream ended early; its client reconnects", "error", err.Error())
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
