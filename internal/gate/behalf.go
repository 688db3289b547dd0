package gate

import (
	"cmp"
	"fmt"
	"strings"

	"signalbox/internal/behalf"
	"signalbox/internal/oidc"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// HandedOn is the name of the fact that says through whose hands the work has gone.
const HandedOn = "handed on"

// OnBehalf tells whoever decides for whom an agent acts, and who has handed the work on to it. named is the user that
// the call names, which is only a claim if the user is not verified. There is nothing to tell of an agent that acts for
// nobody, claims nothing and was handed nothing.
func OnBehalf(r *rulebook.Record, named string) (facts []Fact) {
	who := r.User.Name
	if r.User.Email != "" {
		who += " <" + r.User.Email + ">"
	}
	if named != "" && !r.User.Verified {
		who = cmp.Or(who, "nobody who is known") + "; the agent claims, without proof, to act for " + named
	}
	if who != "" {
		facts = append(facts, Fact{Name: "on behalf of", Value: Excerpt(who)})
	}
	if chain := Chain(&r.Delegation); chain != "" {
		facts = append(facts, Fact{Name: HandedOn, Value: Excerpt(chain)})
	}
	return facts
}

// Chain is a chain in a line: everybody through whose hands the work has gone, or why nothing is known of it. It is ""
// for work that nobody has handed on.
func Chain(d *policy.Delegation) string {
	switch {
	case d.Verified && len(d.Hops) > 0:
		hands := []string{d.Hops[0].From}
		for i := range d.Hops {
			hands = append(hands, d.Hops[i].To)
		}
		return fmt.Sprintf("by %s (depth %d, %s)", strings.Join(hands, " → "), d.Depth, d.ID)
	case d.Unverified:
		return "unverified: " + d.Reason
	}
	return ""
}

// ForUser is a part of the digest of what is asked, so that an approval for one user, or under one handoff, is none for
// another. It is empty if the call names nobody, as calls did before there were users. A token of a user is as good as
// the one before it of the same user.
func ForUser(n behalf.Named) (part []byte) {
	switch {
	case n.UserToken != "":
		part = []byte("\x00" + n.User + "\x00" + oidc.Subject(n.UserToken))
	case n.User != "":
		part = []byte("\x00" + n.User)
	}
	if under := n.Claim.Token + "\x00" + n.Claim.Subagent; under != "\x00" {
		part = append(part, "\x00under\x00"+under...)
	}
	return part
}
