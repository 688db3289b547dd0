package rulebook

import (
	"cmp"
	"crypto/sha256"
	"strings"

	"signalbox/internal/policy"
)

// Belongs is what something that is counted belongs to. A protocol leaves empty what it does not know.
type Belongs struct {
	Agent   string // its id
	Tool    string
	Session string
	User    string // the id of the user on whose behalf it is; the rulebook fills it in
	Tier    policy.Tier
	Project string // the deck, as the call says; that of policy.DefaultDeck if it says none
	Run     string // as the call says; what has none counts for no run
	// Workspace is that of the agent. The rulebook fills it in from the entry.
	Workspace string
	// Handoff is the id of the one under which it happened. The rulebook fills in Handoffs, which are it and all above
	// it: their budgets are used.
	Handoff  string
	Handoffs []string
}

// splitCounter takes the scope from the name of a counter, as in actions.tool or actions.user.tool. The name of a rule
// may have dots of its own.
func splitCounter(counter string) (what, scope string) {
	if strings.HasPrefix(counter, policy.RuleCount("")) {
		return counter, ""
	}
	what, scope, _ = strings.Cut(counter, ".")
	return what, scope
}

// ownerOf is the key under which a counter of a scope is kept: the agent, the user whose agent it is, or one of their
// tools, sessions or tiers; or a run, a deck or a workspace. An agent that is nobody's counts for itself alone. It is
// "" for what the scope does not count: what belongs to no run.
//
// What a call only claims (the session, the tool, the run, the deck) is never a key by itself: it is within the agent
// or its workspace, so that nobody counts for others who are elsewhere.
func ownerOf(scope string, b *Belongs) string {
	switch scope {
	case "":
		return b.Agent
	case "run":
		if b.Run == "" {
			return ""
		}
		return "\x00run\x00" + b.Workspace + "\x00" + brief(b.Run)
	case "deck":
		return "\x00deck\x00" + b.Workspace + "\x00" + brief(cmp.Or(b.Project, policy.DefaultDeck))
	case "workspace":
		return "\x00workspace\x00" + b.Workspace
	}
	owner := b.Agent
	if of, narrower, _ := strings.Cut(scope, "."); of == "user" {
		if scope = narrower; b.User != "" {
			owner = "\x00user\x00" + b.User
		}
	}
	switch scope {
	case "tool":
		return owner + "\x00tool\x00" + brief(b.Tool)
	case "session":
		return owner + "\x00session\x00" + brief(b.Session)
	case "tier":
		return owner + "\x00tier\x00" + string(b.Tier)
	}
	return owner
}

// claimedScope reports whether an agent can make up as many owners of the scope as it likes.
func claimedScope(scope string) bool {
	switch scope {
	case "run", "deck", "tool", "session", "user.tool":
		return true
	}
	return false
}

// brief is a text that an agent chose, in no more memory than a name takes.
func brief(text string) string {
	if len(text) <= 128 {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "\x00" + string(sum[:])
}
