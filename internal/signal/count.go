package signal

import (
	"signalbox/internal/counter"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Counters count runs, tokens, cost and cost verdicts. A repetition has an entry of another kind
// and does not count (SIG-16), and neither does a gate request, since its run goes on.
func Counters() map[string]counter.Reader {
	return map[string]counter.Reader{kindReceived: countRun}
}

// countRun reads what a signal adds to the counters, from memory if this process received it.
func countRun(e *ledger.Entry) ([]counter.Count, error) {
	if b, ok := e.Value().(*received); ok {
		return count(b.Agent, b.Decision.Rule, b.parsed, b.Cost), nil
	}
	// Reading only what is counted takes a fifth of the time of parsing the signal. The fields were
	// checked when it was received.
	var b struct {
		Agent    string     `json:"agent"`
		Type     Type       `json:"type"`
		Project  string     `json:"project"`
		Cost     *CostCheck `json:"cost"`
		Decision struct {
			Rule string `json:"rule"`
		} `json:"decision"`
		Signal struct {
			Model        string   `json:"model"`
			Status       string   `json:"status"`
			InputTokens  wire.Raw `json:"input_tokens"`
			OutputTokens wire.Raw `json:"output_tokens"`
			CostUSD      wire.Raw `json:"cost_usd"`
		} `json:"signal"`
	}
	if err := wire.UnmarshalPart(e.Body, &b); err != nil {
		return nil, err
	}
	if b.Type == Failure {
		b.Signal.Status = Failed
	}
	sig := &Signal{Type: b.Type, ProjectID: b.Project, Status: b.Signal.Status, Model: b.Signal.Model}
	// A failure may leave these out; they are zero then.
	sig.InputTokens, _ = wire.ParseCount(b.Signal.InputTokens)
	sig.OutputTokens, _ = wire.ParseCount(b.Signal.OutputTokens)
	sig.CostNano, _ = parseDollars(b.Signal.CostUSD)
	return count(b.Agent, b.Decision.Rule, sig, b.Cost), nil
}

// count is what a signal adds to the counters, under the rule that decided about it; nothing for a gate request.
func count(agent, rule string, s *Signal, cost *CostCheck) []counter.Count {
	if s.Type == GateRequest {
		return nil
	}
	c := counter.Count{Project: s.ProjectID, Agent: agent, Protocol: Name, Model: s.Model, Rule: rule}
	if cost == nil || !cost.Beside {
		c.InputTokens, c.OutputTokens, c.CostNano = s.InputTokens, s.OutputTokens, s.CostNano
	}
	switch s.Status {
	case Completed:
		c.Completed = 1
	case Failed:
		c.Failed = 1
	case Interrupted:
		c.Interrupted = 1
	}
	if cost == nil {
		return []counter.Count{c}
	}
	switch cost.Verdict {
	case CostVerified:
		c.CostVerified = 1
	case CostUnder:
		c.CostUnder = 1
	case CostOver:
		c.CostOver = 1
	case CostUnknownModel:
		c.CostUnknown = 1
	case CostZero:
		c.CostZero = 1
	}
	return []counter.Count{c}
}
