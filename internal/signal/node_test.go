package signal_test

import (
	"context"
	"encoding/json"
	"testing"

	"signalbox/internal/counter"
	"signalbox/internal/deliver"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/roster"
	"signalbox/internal/signal"
)

// node is a process that takes signals, with everything they need.
type node struct {
	*protocoltest.Node
	signals  *signal.Signals
	counters *counter.Counters
	agent    roster.Identity // resume-tailor
}

// start starts a node. Nothing counts there; see count.
func start(t testing.TB, address string, outbox ...func(*deliver.Options)) *node {
	t.Helper()
	on := protocoltest.On{Protocol: signal.Protocol()}
	if len(outbox) > 0 {
		on.Outbox = outbox[0]
	}
	n := &node{Node: protocoltest.New(t, address, on)}
	n.signals = signal.New(n.Core, signal.Options{})
	n.counters = n.Counters()
	n.Start(n.signals)
	n.agent = n.Agent("resume-tailor")
	return n
}

// payload is a right signal, changed by the pairs of names and values; a value that is
// absent takes the field away.
func payload(pairs ...any) map[string]any {
	p := map[string]any{
		"amp_version": "1.0", "agent_id": "resume-tailor", "run_id": "run-1", "project_id": "job-search",
		"status":  "completed",
		"summary": "Rewrote the resume", "proposed_action": "Send it to the applicant", "model": "claude-sonnet-4-6",
		"input_tokens": 1842, "output_tokens": 614, "cost_usd": 0.014736, "gate_required": true,
		"started_at": "2026-03-06T22:10:38Z", "completed_at": "2026-03-06T22:10:46Z",
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == absent {
			delete(p, pairs[i].(string))
		} else {
			p[pairs[i].(string)] = pairs[i+1]
		}
	}
	return p
}

type nothing struct{}

// absent is the value of a field that is not there.
var absent = nothing{}

func encode(p map[string]any) []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return text
}

// send sends a payload of the node's agent that should be taken.
func (n *node) send(pairs ...any) signal.Received {
	n.T.Helper()
	got, err := n.signals.Receive(context.Background(), n.agent, "", encode(payload(pairs...)))
	if err != nil {
		n.T.Fatal(err)
	}
	return got
}

func (n *node) head() int64 {
	n.T.Helper()
	seq, err := n.Ledger.Head(context.Background())
	if err != nil {
		n.T.Fatal(err)
	}
	return seq
}

// received is the answer to a signal that is taken.
func (n *node) received(text string) signal.Received {
	n.T.Helper()
	got, err := n.signals.Receive(n.T.Context(), n.agent, "", []byte(text))
	if err != nil {
		n.T.Fatal(err)
	}
	return got
}
