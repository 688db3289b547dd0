package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/policy"
	"signalbox/internal/testbed"
)

// statuses makes the same call 100 times at once, and counts the answers by status.
func (n *node) statuses(path, body string) map[int]int {
	n.T.Helper()
	var mu sync.Mutex
	got := map[int]int{}
	testbed.AtOnce(100, func(int) {
		a := n.call("POST", path, body)
		mu.Lock()
		defer mu.Unlock()
		got[a.status]++
	})
	return got
}

func TestALimitOfModelCallsIsExact(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: sixty, on: [prompt], when: 'recent.prompts(\"1h\") >= 60', then: block}\n")
		n.provider.json(strings.ReplaceAll(formCases[0].reply, "bash", "read"))
		if got := n.statuses(messagesPath, fmt.Sprintf(messageAsk, false)); got[200] != 60 || got[403] != 40 {
			t.Errorf("%v", got)
		}
		if n.provider.calls() != 60 {
			t.Errorf("the provider was called %d times", n.provider.calls())
		}
		// A call that was written down before it was sent is counted by that, and not again by its record.
		n.called(60)
		n.apply("  - {name: look, on: [prompt], then: block,\n     when: 'recent.prompts(\"1h\") != 100 || " +
			"recent.allowed(\"1h\") != 60'}\n")
		testbed.Until(t, "each call was counted once", func() bool {
			d := n.Book.Decide(t.Context(), n.agent, policy.Event{Point: policy.OnPrompt})
			return d.Rule == policy.DefaultRule
		})
	})
}

func TestALimitOfToolCallsIsExact(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: sixty, on: [tool_call], when: 'recent.tool_calls(\"1h\") >= 60', then: block}\n")
		for _, c := range formCases[:1] {
			n.provider.json(c.reply)
			if got := n.statuses(c.path, fmt.Sprintf(c.ask, false)); got[200] != 60 || got[403] != 40 {
				t.Errorf("%s: %v", c.name, got)
			}
		}
	})
}
