package spool

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

const (
	// listLife is how long a list holds. A tool that is taken off the policy can be used by a client that cannot be
	// reached for as long.
	listLife = 24 * time.Hour
	// skew is how far a client's clock may be off.
	skew = 5 * time.Minute
)

// list is what a client may allow while it cannot ask. It holds for one spool, and so for one agent.
type list struct {
	Spool  string   `json:"spool"`
	Agent  string   `json:"agent"`
	Name   string   `json:"name"`
	Tools  []string `json:"tools"`
	Policy int64    `json:"policy"`
	From   string   `json:"from"`
	Until  string   `json:"until"`
}

// list makes the list of an agent and signs it. It has the tools that rules name for the time without us, as far as the
// policy would allow each to the agent now, without arguments: rules before that one, scopes, limits and the user count.
func (s *Spools) list(ctx context.Context, who roster.Identity, name string) (string, error) {
	now := s.core.Now().UTC()
	number, p := s.core.Book.Policy()
	l := list{
		Spool: name, Agent: who.ID, Name: who.Name, Tools: []string{}, Policy: number,
		From: now.Format(time.RFC3339), Until: now.Add(listLife).Format(time.RFC3339),
	}
	if p != nil {
		for _, tool := range p.Offline(who.Name) {
			d := s.core.Book.Decide(ctx, who, policy.Event{
				Point: policy.OnAction, Protocol: s.protocol, Kind: "pre_action", Tool: tool, Tier: policy.Interactive,
			})
			if d.Action == policy.Allow && d.Record.Policy == number {
				l.Tools = append(l.Tools, tool)
			}
		}
	}
	text, err := wire.Marshal(l)
	if err != nil {
		return "", err
	}
	return signed(s.key, listPurpose, text), nil
}

// Key is the public key of the lists, by which clients know them.
func (s *Spools) Key() string {
	return base64.RawURLEncoding.EncodeToString(s.key[len(s.key)/2:])
}

// notListed says why a step that a client allowed was not allowed by any list, "" if it was.
func (s *Spools) notListed(ctx context.Context, who roster.Identity, tool string, l *line) (string, error) {
	_, source, err := s.core.Book.Version(ctx, rulebook.Layer{}, l.Policy)
	if err != nil {
		return fmt.Sprintf("there is no version %d of the policy, by whose list it was allowed", l.Policy), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parsed.number != l.Policy || s.parsed.policy == nil {
		p, err := policy.Parse(source)
		if err != nil {
			return "", err
		}
		s.parsed.number, s.parsed.policy = l.Policy, p
	}
	if !slices.Contains(s.parsed.policy.Offline(who.Name), tool) {
		return fmt.Sprintf("version %d of the policy does not allow %s to %s while the server cannot be reached", l.Policy,
			tool, who.Name), nil
	}
	at, wrongAt := time.Parse(time.RFC3339Nano, l.At)
	from, wrongFrom := time.Parse(time.RFC3339Nano, l.ListFrom)
	if wrongAt != nil || wrongFrom != nil || at.Before(from.Add(-skew)) || at.After(from.Add(listLife+skew)) {
		return "the list by which it was allowed did not hold at that time", nil
	}
	return "", nil
}
