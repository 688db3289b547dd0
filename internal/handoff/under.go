package handoff

import (
	"context"
	"fmt"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
	"signalbox/internal/scope"
	"signalbox/internal/store"
)

// Standing is under which handoff a call happens, as far as the server knows. Under makes it.
type Standing struct {
	policy.Delegation
	User *roster.User // of a verified handoff, nil if it is for nobody
	// Within is the id of the handoff to a process in which another agent makes the call, "" for none.
	Within string

	call *call
	take string // the session that takes it with this call, "" if it is taken or not bound
}

// call is what is asked about.
type call struct {
	who     roster.Identity
	claim   policy.Claim
	session string // "" where the protocol has none
	user    string // whom it names
}

// Under finds out under which handoff an agent acts: the one whose token it shows, else the one that its session or its
// subagent is bound to. A token that is not valid here is Refused; what is claimed without one is Unverified. user is
// whom the call names, "" for nobody. It is called for every decision, so what the ledger says is cached; Recheck looks
// again in the transaction that records the decision.
func (h *Handoffs) Under(ctx context.Context, who roster.Identity, claim policy.Claim, session, user string) (Standing,
	error,
) {
	if who.Kind != roster.HolderAgent {
		return Standing{}, nil
	}
	// Most agents hold nothing and claim nothing, and pay nothing for it.
	if held, known, _ := h.held.Find(who.ID); known && len(held) == 0 && claim.Empty() {
		return Standing{}, nil
	}
	return h.find(ctx, &call{who, claim, session, user})
}

// find is Under for a call that is looked at.
func (h *Handoffs) find(ctx context.Context, c *call) (Standing, error) {
	return h.under(ctx, c, func(handoffID string) ([]hop, error) {
		return h.chains.Get(handoffID, func() ([]hop, error) { return h.chain(ctx, h.ledger.Prover(ctx), handoffID) })
	})
}

// under is Under with the chains that get reads.
func (h *Handoffs) under(ctx context.Context, c *call, get func(string) ([]hop, error)) (s Standing, err error) {
	s.call = c
	switch {
	case c.claim.Token == "" && c.claim.Within == "":
		return h.unnamed(ctx, c, get)
	case c.claim.Token == "":
		return h.inside(ctx, c, get)
	}
	chain, why, err := h.named(c.claim.Token, get)
	if err != nil || why != "" {
		return s.refuse("%s", why), err
	}
	if s, err = h.stand(ctx, c, chain); err != nil || s.Refused || c.claim.Within == "" || c.claim.Within == c.claim.Token {
		return s, err
	}
	within, err := h.inside(ctx, c, get)
	if within.Refused {
		return within, err
	}
	s.Within = within.Within
	return s, err
}

// named is the chain of the handoff with a token, or why there is none.
func (h *Handoffs) named(token string, get func(string) ([]hop, error)) (chain []hop, why string, err error) {
	handoffID := h.idIn(token)
	if handoffID == "" {
		return nil, "This is not the token of a handoff of this server. A token begins with " + tokenPrefix + "_.", nil
	}
	chain, err = get(handoffID)
	if fault.Is(err, fault.NotFound) {
		return nil, "There is no handoff with this token.", nil
	}
	return chain, "", err
}

// inside is a call in a process that was handed work. Of the agent that has the handoff it is under it; of another one
// it is not, and only belongs there.
func (h *Handoffs) inside(ctx context.Context, c *call, get func(string) ([]hop, error)) (s Standing, err error) {
	s.call = c
	chain, why, err := h.named(c.claim.Within, get)
	if err != nil || why != "" {
		return s.refuse("%s", why), err
	}
	last := &chain[len(chain)-1]
	over := overIn(chain, h.now()) != "" // then it counts for nothing, as if the call did not show it
	switch {
	case last.Workspace != c.who.Workspace:
		return s.refuse("The process of this call was handed work in another workspace."), nil
	case last.to == c.who.ID && c.claim.Token == "" && !over:
		return h.stand(ctx, c, chain)
	}
	if c.claim.Token == "" {
		if s, err = h.unnamed(ctx, c, get); err != nil || s.Refused {
			return s, err
		}
	}
	if !over {
		s.Within = last.ID
	}
	return s, nil
}

// refuse is a call whose token is not valid here.
func (s Standing) refuse(reason string, args ...any) Standing {
	s.Delegation = policy.Delegation{ID: s.ID, Refused: true, Unverified: true, Reason: fmt.Sprintf(reason, args...)}
	s.User, s.take, s.Within = nil, "", ""
	return s
}

// stand is a call under a chain, if the chain covers it.
func (h *Handoffs) stand(ctx context.Context, c *call, chain []hop) (s Standing, err error) {
	s.call = c
	last := &chain[len(chain)-1]
	s.ID = last.ID
	key := c.key()
	switch why := overIn(chain, h.now()); {
	case last.Workspace != c.who.Workspace || last.to != c.who.ID:
		return s.refuse("The handoff %s was given to another agent.", last.ID), nil
	case why != "":
		return s.refuse("The handoff %s is over: %s. Ask %s to hand the work on again.", last.ID, why, last.From), nil
	case last.Bound && key != "" && last.Session != "" && last.Session != key:
		return s.refuse("The handoff %s is used by another session. Ask %s for one of your own.", last.ID, last.From), nil
	// AHP has every event say a depth, so that 0 says nothing. Rules see the depth of the chain all the same.
	case c.claim.Depth != nil && *c.claim.Depth != 0 && *c.claim.Depth != last.Depth:
		return s.refuse("The depth is %d, and not %d: work under the handoff %s was handed on as often. Say 0, or leave it out.",
			last.Depth, *c.claim.Depth, last.ID), nil
	}
	if last.user != "" {
		if s.User, err = h.roster.KnownUser(ctx, last.Workspace, last.user); err != nil {
			return s, err
		}
		if s.User == nil {
			return s.refuse("The user %s, for whom the handoff %s is, was removed.", last.User, last.ID), nil
		}
	}
	if c.user != "" && (s.User == nil || !s.User.IsNamed(c.user)) {
		return s.refuse("The handoff %s is for %s, and not for %.80q. Leave the user out.", last.ID,
			orNobody(last.User), c.user), nil
	}
	if last.Bound && last.Session == "" {
		s.take = key
	}
	s.Delegation = delegation(chain)
	return s, nil
}

func orNobody(user string) string {
	if user == "" {
		return "nobody"
	}
	return user
}

// delegation is a chain as rules see it.
func delegation(chain []hop) policy.Delegation {
	last := &chain[len(chain)-1]
	d := policy.Delegation{
		ID: last.ID, Verified: true, Depth: last.Depth, From: last.From, Root: chain[0].From, Work: last.Work,
		Scopes: allowed(chain), Tools: last.Tools,
	}
	for i := range chain {
		d.Hops = append(d.Hops, policy.Hop{ID: chain[i].ID, From: chain[i].From, To: chain[i].To, Budget: chain[i].Budget})
	}
	return d
}

// allowed is what every hop of a chain allows, and the agents that have handed it on may do now; nil for everything.
func allowed(chain []hop) (scopes []string) {
	for i := range chain {
		scopes = scope.Common(scopes, chain[i].Scopes)
		if chain[i].sender != nil {
			scopes = scope.Common(scopes, chain[i].sender.Scopes)
		}
	}
	return scopes
}

// key is what a handoff is bound to: the session, or a subagent of it.
func (c *call) key() string { return Key(c.session, c.claim.Subagent) }

// Key is by which name a bound handoff is taken: a session, or a subagent in it.
func Key(session, subagent string) string {
	if subagent == "" {
		return session
	}
	return session + "/" + subagent
}

// unnamed is a call without a token: under the handoff that its session or subagent has taken, or one that was opened
// for such a subagent in its session and that nobody has taken. Else, what it claims is unverified, and so is an agent
// that has been handed work and does not say which.
func (h *Handoffs) unnamed(ctx context.Context, c *call, get func(string) ([]hop, error)) (s Standing, err error) {
	s.call = c
	held, err := h.held.Get(c.who.ID, func() ([]string, error) { return h.openFor(ctx, c.who.ID) })
	if err != nil {
		return s, err
	}
	found, leftOut, err := h.bound(c, held, get)
	// A subagent may ask before the cache has followed the step that started it.
	if err == nil && found == nil && c.claim.Subagent != "" {
		if held, err = h.openFor(ctx, c.who.ID); err == nil {
			found, leftOut, err = h.bound(c, held, get)
		}
	}
	if err != nil {
		return s, err
	}
	if found != nil {
		return h.stand(ctx, c, found)
	}
	switch claim := c.claim; {
	case claim.Subagent != "":
		s.Unverified, s.Reason = true, "The server knows of no handoff to this subagent."
	case claim.Hops:
		s.Unverified, s.Reason = true, "The call lists hops itself, which proves nothing: only the token of a handoff does."
	case claim.Depth != nil && *claim.Depth != 0:
		s.Unverified, s.Reason = true, fmt.Sprintf("The call says that it is %d agents deep, without the token of a handoff.",
			*claim.Depth)
	case leftOut:
		s.Unverified, s.Reason = true, "The agent has been handed work, and the call does not say under which handoff it is."
	}
	return s, nil
}

// bound is the chain of the handoff that a call without a token is under, nil if there is none, and whether the agent has
// others, of which the call may be.
func (h *Handoffs) bound(c *call, held []string, get func(string) ([]hop, error)) (found []hop, leftOut bool, err error) {
	for _, handoffID := range held { // the oldest first
		chain, err := get(handoffID)
		if err != nil {
			return nil, false, err
		}
		last := &chain[len(chain)-1]
		// Nothing is left out of what a person has handed on whole, nor of what the agent has handed to itself: to a
		// subagent, or in this session.
		own := last.from == "" && !last.narrows() ||
			last.from == c.who.ID && (last.Subagent != "" || last.opener == c.session)
		switch {
		case last.over(h.now()) != "":
		case last.Bound && c.key() != "" && last.Session == c.key(),
			last.Bound && last.Session == "" && c.claim.Subagent != "" && last.opener == c.session &&
				last.Subagent == c.claim.SubagentType:
			return chain, false, nil
		case !own:
			leftOut = true
		}
	}
	return nil, leftOut, nil
}

// openFor are the ids of the handoffs that an agent has, the oldest first.
func (h *Handoffs) openFor(ctx context.Context, agentID string) ([]string, error) {
	return store.All(h.db.Reading(ctx), store.Text,
		"SELECT id FROM handoff WHERE receiver = $1 AND ended_at = 0 AND ends_at > $2 ORDER BY id LIMIT 1000", agentID,
		h.now().UnixMicro())
}

// Admit is an error if the handoff whose token a call shows does not cover it, for calls that are refused before they are
// decided, or about which nobody decides.
func (h *Handoffs) Admit(ctx context.Context, who roster.Identity, claim policy.Claim, user string) error {
	now, err := h.Under(ctx, who, claim, "", user)
	if err != nil || !now.Refused {
		return err
	}
	return refusal.Because(fault.New(fault.Forbidden, "%s", now.Reason).About("delegation"),
		refusal.Cause{Reason: refusal.WrongHandoff, Workspace: who.Workspace, Actor: who.Actor(), Agent: who.ID})
}

// Stands is an error if the handoff whose token a call shows does not cover it, looked up in the transaction. It is for
// what was decided a while ago and is about to be given.
func (h *Handoffs) Stands(tx *ledger.Tx, who roster.Identity, claim policy.Claim, user string) error {
	if claim.Token == "" && claim.Within == "" {
		return nil
	}
	ctx := context.Background()
	now, err := h.under(ctx, &call{who: who, claim: claim, user: user}, func(handoffID string) ([]hop, error) {
		return h.chain(ctx, tx.Prover(), handoffID)
	})
	if err == nil && now.Refused {
		err = fault.New(fault.Forbidden, "%s", now.Reason).About("delegation")
	}
	return err
}

// Recheck finds out in a transaction whether a call still is under the handoff that Under has found, and has its session
// take it. If the handoff has ended meanwhile, or another session was quicker, it returns how the call stands now, and
// same is false; then nothing was appended.
func (h *Handoffs) Recheck(tx *ledger.Tx, s Standing) (now Standing, same bool, err error) {
	if !s.Verified {
		return s, true, nil
	}
	ctx, p := context.Background(), tx.Prover()
	chain, err := h.chain(ctx, p, s.ID)
	if err != nil {
		return s, false, err
	}
	if now, err = h.stand(ctx, s.call, chain); err != nil {
		return s, false, err
	}
	if now.Refused != s.Refused || !slices.Equal(now.Scopes, s.Scopes) {
		return now, false, nil
	}
	if now.take != "" {
		last := &chain[len(chain)-1]
		tx.Append(ledger.Event{
			Workspace: last.Workspace, Kind: Taken, Actor: s.call.who.Actor(), Subject: last.ID, Trace: last.trace,
			Body: taken{now.take},
		})
	}
	return now, true, nil
}
