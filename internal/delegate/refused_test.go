package delegate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/delegate"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// decided are the decisions about work that was to be handed on: who, what came of it, and by which rule.
func (n *node) decided() (all []string) {
	n.T.Helper()
	entries, err := n.Ledger.Entries(n.T.Context(), ledger.Query{Kinds: []string{"action.decided"}, Limit: 100})
	n.Must(err)
	for i := range entries {
		read, err := rulebook.ReadDecision(&entries[i])
		n.Must(err)
		if d := read.Decision; d.Event.Tool == delegate.Tool {
			all = append(all, fmt.Sprintf("%s %s by %s for %s", d.Agent.Name, d.Then, d.Rule, d.User.Name))
		}
	}
	return all
}

func TestWorkThatIsWiderThanWhatTheAgentHasIsRefusedAndRecorded(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		desk := delegate.New(n.Ledger, n.book, n.handoffs)
		user := ""
		give := func(agent, token string, o handoff.Opening) (delegate.Given, error) {
			r := delegate.Request{Opening: o, Delegation: token, User: user}
			return desk.Give(t.Context(), n.who[agent], "http", policy.Claim{}, r)
		}
		mail := handoff.Opening{To: "helper", Scopes: []string{"mail.read"}, Tools: []string{"read"}, Seconds: 60}
		first, err := give("lead", "", mail)
		n.Must(err)
		for _, c := range []struct {
			name, agent, token string
			o                  handoff.Opening
		}{
			{"a scope that the user does not have", "lead", "", handoff.Opening{To: "helper", Scopes: []string{"admin"}}},
			{"a scope beside those of the parent", "helper", first.Token, handoff.Opening{To: "deep", Scopes: []string{"mail.send"}}},
			{"a tool beside those of the parent", "helper", first.Token, handoff.Opening{To: "deep", Tools: []string{"pay"}}},
			{"a later end", "helper", first.Token, handoff.Opening{To: "deep", Seconds: 3600}},
			{"a token of another agent", "other", first.Token, handoff.Opening{To: "deep"}},
		} {
			got, err := give(c.agent, c.token, c.o)
			if !fault.Is(err, fault.Forbidden) || got.Token != "" || got.Handoff.ID != "" {
				t.Errorf("%s: %+v %v", c.name, got, err)
			}
		}
		if _, err := give("lead", "", handoff.Opening{To: "nobody-there"}); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		user = "alice"
		if _, err := give("other", "", handoff.Opening{To: "deep"}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("for a user for whom it does not act: %v", err)
		}
		want := "lead allow by default for alice; lead block by handoff for alice; helper block by handoff for alice; " +
			"helper block by handoff for alice; helper block by handoff for alice; other block by handoff for bob; " +
			"other block by handoff for bob"
		if got := strings.Join(n.decided(), "; "); got != want {
			t.Errorf("recorded: %s\nwant: %s", got, want)
		}
		// Another policy does not make them wider.
		p, err := policy.Parse([]byte(rules))
		n.Must(err)
		replayed, err := n.book.Replay(t.Context(), p, time.Time{}, func(int64, int64) {})
		n.Must(err)
		if replayed.Changed != 0 || replayed.OtherRule != 0 {
			t.Errorf("%+v", replayed)
		}
	})
}
