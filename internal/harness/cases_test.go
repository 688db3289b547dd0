package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/harness"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// vector is a case with a message to send.
type vector struct {
	N         int
	Name      string
	Transport string
	Greet     bool `json:"after_handshake"`
	Send      json.RawMessage
	Expect    struct {
		Kind      string
		Result    map[string]any
		Has       map[string]any `json:"result_has"`
		Keys      []string       `json:"result_keys"`
		ID        *string
		Code      int
		Contains  string `json:"message_contains"`
		Decisions []string
	}
}

func vectors(t *testing.T) []vector {
	t.Helper()
	text := testbed.Read(t, "../conform/harness.json")
	var file struct{ Cases []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(file.Cases, func(v vector) bool { return v.Send == nil })
}

// Every case with a message, at the one function that all transports call. The others
// are about transports and clients, and are run with those.
func TestEveryMessageOfTheCasesIsAnsweredAsTheContractSays(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.fixture()
		all := vectors(t)
		if len(all) < 100 {
			t.Fatalf("only %d cases", len(all))
		}
		for _, v := range all {
			for _, transport := range []string{harness.TransportHTTP, harness.TransportSocket} {
				if err := n.try(v, transport); err != nil {
					t.Errorf("case %d, %s (%s): %v", v.N, v.Name, transport, err)
				}
			}
		}
		n.WantClean()
	})
}

func (n *node) try(v vector, transport string) error {
	send := v.Send
	var raw struct {
		Text *string `json:"__raw__"`
	}
	if json.Unmarshal(v.Send, &raw) == nil && raw.Text != nil {
		if send = []byte(*raw.Text); len(bytes.TrimSpace(send)) == 0 {
			return nil // streams pass it over before it comes here
		}
	}
	c := n.conn(transport)
	reply := n.harness.Handle(context.Background(), c, send)
	switch v.Expect.Kind {
	case "accepted":
		if !reply.Notified || reply.JSON != nil {
			return fmt.Errorf("%s", reply.JSON)
		}
		return nil
	case "rejected":
		if got := n.read(reply.JSON); !reply.Notified || got.Error == nil || got.Error.Code != -32603 ||
			!strings.HasPrefix(got.Error.Message, "Handler error: ") || !strings.Contains(got.Error.Message, v.Expect.Contains) {
			return fmt.Errorf("%s", reply.JSON)
		}
		return nil
	}
	if reply.Notified {
		return fmt.Errorf("taken for a notification")
	}
	return v.compare(reply.JSON)
}

// compare looks at the answer to a request.
func (v vector) compare(text []byte) error {
	var got struct {
		JSONRPC string
		ID      any
		Result  map[string]any
		Error   *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(text, &got); err != nil || got.JSONRPC != "2.0" {
		return fmt.Errorf("%s: %w", text, err)
	}
	if v.Expect.Kind == "error" {
		if got.Error == nil || got.Error.Code != v.Expect.Code || !strings.Contains(got.Error.Message, v.Expect.Contains) ||
			got.Result != nil {
			return fmt.Errorf("%s", text)
		}
		return nil
	}
	if got.Error != nil {
		return fmt.Errorf("%s", text)
	}
	switch v.Expect.Kind {
	case "error_or_block":
		meta, _ := got.Result["metadata"].(map[string]any)
		if got.Result["decision"] != "block" || meta["fail_closed"] != true {
			return fmt.Errorf("%s", text)
		}
	case "batch":
		var words []string
		list, _ := got.Result["decisions"].([]any)
		for _, one := range list {
			words = append(words, one.(map[string]any)["decision"].(string))
		}
		if diff := cmp.Diff(v.Expect.Decisions, words); diff != "" {
			return fmt.Errorf("%s", diff)
		}
	case "result":
		if v.Expect.Result != nil && !cmp.Equal(v.Expect.Result, got.Result) {
			return fmt.Errorf("%s", text)
		}
		for name, value := range v.Expect.Has {
			if !cmp.Equal(got.Result[name], value) {
				return fmt.Errorf("%s: %s", name, text)
			}
		}
		for _, name := range v.Expect.Keys {
			if _, there := got.Result[name]; !there {
				return fmt.Errorf("%s is missing: %s", name, text)
			}
		}
		if v.Expect.ID != nil && got.ID != *v.Expect.ID {
			return fmt.Errorf("the id is %v", got.ID)
		}
	default:
		return fmt.Errorf("what is %q?", v.Expect.Kind)
	}
	return nil
}
