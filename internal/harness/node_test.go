package harness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/harness"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/roster"
	"signalbox/internal/testbed"
)

// node is a process with a harness, and everything it needs.
type node struct {
	*protocoltest.Node
	harness  *harness.Harness
	agent    roster.Identity // coder
	key      string
	operator roster.Identity
}

func start(t testing.TB, address string, config harness.Config) *node {
	t.Helper()
	n := &node{Node: protocoltest.New(t, address, protocoltest.On{Protocol: harness.Protocol()})}
	n.harness = harness.New(n.Core, config)
	n.Start(n.harness)
	n.agent, n.key = n.AgentWithKey("coder")
	n.operator = n.Operator("ada")
	return n
}

// fixture puts the policy of the cases in force.
func (n *node) fixture() {
	n.T.Helper()
	text := testbed.Read(n.T, "../conform/harness.yaml")
	if _, _, err := n.Book.Apply(n.T.Context(), roster.Identity{}, text, 0); err != nil {
		n.T.Fatal(err)
	}
}

// conn is a connection of the node's agent that has shaken hands, if it is a stream.
func (n *node) conn(transport string) *harness.Conn {
	c := n.harness.NewConn(transport, func(ctx context.Context) (roster.Identity, error) {
		return n.Roster.Authenticate(ctx, n.key)
	})
	if transport != harness.TransportHTTP {
		n.harness.Handle(context.Background(), c, []byte(greetingText))
	}
	return c
}

const greetingText = `{"jsonrpc":"2.0","id":"h","method":"ahp/handshake","params":{"protocol_version":"2.4",` +
	`"agent_info":{"framework":"t","version":"0","capabilities":[]},"session_id":"s1","agent_id":"a1"}}`

// event is the text of an event; without id it is a notification.
func event(id, typ, session string, payload any) []byte {
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	if id != "" {
		id = fmt.Sprintf(`"id":%q,`, id)
	}
	return fmt.Appendf(
		nil, `{"jsonrpc":"2.0",%s"method":"ahp/event","params":{"event_type":%q,"session_id":%q,"agent_id":"a1",`+
			`"timestamp":"2026-05-01T00:00:00Z","depth":0,"payload":%s}}`, id, typ, session, text,
	)
}

// answer is a response, read.
type answer struct {
	Result map[string]any
	Error  *struct {
		Code    int
		Message string
	}
}

// ask sends an event and reads the answer.
func (n *node) ask(c *harness.Conn, typ, session string, payload any) answer {
	n.T.Helper()
	return n.read(n.harness.Handle(context.Background(), c, event("r1", typ, session, payload)).JSON)
}

// askInTime asks until the answer is not that the machine had no time for one: for tests with a short Timeout.
func (n *node) askInTime(c *harness.Conn, typ, session string, payload any) (a answer) {
	n.T.Helper()
	testbed.Until(n.T, "an answer in time", func() bool {
		a = n.ask(c, typ, session, payload)
		reason, _ := a.Result["reason"].(string)
		if a.Error != nil {
			reason = a.Error.Message
		}
		return !strings.Contains(reason, "deadline exceeded") && !strings.Contains(reason, "in time")
	})
	return a
}

func (n *node) read(text []byte) (a answer) {
	n.T.Helper()
	if err := json.Unmarshal(text, &a); err != nil {
		n.T.Fatalf("%s: %v", text, err)
	}
	return a
}
