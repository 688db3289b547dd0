package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// seen is what somebody reads of a gate before they decide it: all that an agent, a rule or a
// colleague has put there, and nothing that changes by itself, such as the time that is left or
// how many have voted. Its members are those of the gate in JSON, so whoever has the gate can
// compute the digest.
//
// ActionDigest is a part of it. The two differ in what they are for: the action digest names what
// the agent may do after an approval, and is the same for every gate about the same bytes; the
// digest of what was seen names one gate, with who asks, why it waits and how it is decided. An
// approval holds for the first; a vote counts for the second.
type seen struct {
	ID             string     `json:"id"`
	Workspace      string     `json:"workspace"`
	Project        string     `json:"project,omitempty"`
	Agent          string     `json:"agent"`
	Origin         Origin     `json:"origin"`
	Title          string     `json:"title"`
	Summary        string     `json:"summary,omitempty"`
	ProposedAction string     `json:"proposed_action,omitempty"`
	Facts          []Fact     `json:"facts,omitempty"`
	Artifacts      []wire.Raw `json:"artifacts,omitempty"`
	Context        []Fact     `json:"context,omitempty"`
	Unshown        []Unshown  `json:"unshown,omitempty"`
	Rule           string     `json:"rule,omitempty"`
	Reason         string     `json:"reason,omitempty"`
	Risk           string     `json:"risk"`
	ActionDigest   string     `json:"action_digest"`
	Quorum         int        `json:"quorum"`
	Approvers      []string   `json:"approvers"`
	Expires        int64      `json:"expires_at,omitzero"` // microseconds since 1970
	OnExpiry       Status     `json:"on_expiry"`
	// What a decision would carry, because somebody has voted with changes already.
	ApprovedAs wire.Raw `json:"approved_as,omitzero"`
	RejectedAs wire.Raw `json:"rejected_as,omitzero"`
}

// seen is the gate as it is shown after some of its votes.
func (g *Gate) seen(votes []Vote) wire.Raw {
	s := seen{
		ID: g.ID, Workspace: g.Workspace, Project: g.Project, Agent: g.Agent, Origin: g.Origin, Title: g.Title,
		Summary: g.Summary, ProposedAction: g.ProposedAction, Facts: g.Facts, Artifacts: g.Artifacts,
		Context: g.Context, Unshown: g.Unshown, Rule: g.Rule, Reason: g.Reason, Risk: g.Risk, ActionDigest: g.ActionDigest,
		Quorum: g.Quorum, Approvers: g.Approvers,
		OnExpiry: g.OnExpiry, ApprovedAs: carried(votes, true), RejectedAs: carried(votes, false),
	}
	if g.ExpiresAt != nil {
		s.Expires = g.ExpiresAt.UnixMicro()
	}
	text, err := wire.Marshal(s)
	if err != nil {
		return nil // cannot be: every part was read from JSON
	}
	return wire.Canonical(text)
}

// carried is the change that votes for one side carry. All of that side carry the same; see
// Ballot.join.
func carried(votes []Vote, approve bool) wire.Raw {
	i := slices.IndexFunc(votes, func(v Vote) bool { return v.Approve == approve && len(v.Modified) > 0 })
	if i < 0 {
		return nil
	}
	return votes[i].Modified
}

// ShownDigest is the SHA-256, in hex, of what the gate shows, as canonical JSON: the digest that a
// vote names.
func (g *Gate) ShownDigest() string { return digestOf(g.seen(g.Votes)) }

// digestOf is "" for nothing, which no vote can name.
func digestOf(text wire.Raw) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// minDigest is how many digits of a digest a vote names at least. Buttons in chats have room for
// no more.
const minDigest = 16

// names reports whether a vote's digest is this one, or the beginning of it.
func names(digest, whole string) bool {
	return len(digest) >= minDigest && strings.HasPrefix(whole, digest)
}

// CheckSeen refuses a vote by somebody who was shown something else than the gate is now. "" is a
// vote that does not say what was shown, which programs may cast.
func (g *Gate) CheckSeen(digest string) error {
	if digest == "" {
		return nil
	}
	now := g.seen(g.Votes)
	if names(digest, digestOf(now)) {
		return nil
	}
	// All that can change while a gate waits is what votes carry, so a digest of this gate is that
	// after some of them.
	for n := len(g.Votes) - 1; n >= 0; n-- {
		if was := g.seen(g.Votes[:n]); names(digest, digestOf(was)) {
			return notShown(now, differences(was, now),
				"Since you were shown this gate, %s has voted with changes. Look at them, and decide again.", g.Votes[n].Operator)
		}
	}
	if names(digest, g.ActionDigest) {
		return notShown(now, []Difference{{Member: "digest", Was: text(digest), Now: text(digestOf(now))}},
			"This is the action_digest. A vote names the gate's digest, which stands beside it in GET /ops/gates/{id}.")
	}
	return notShown(now, []Difference{{Member: "id", Now: text(g.ID)}, {Member: "title", Now: text(g.Title)}},
		"You were shown something else: this gate is %.80q of %s. Look at it, and decide again.", g.Title, g.Agent)
}

func text(s string) wire.Raw { return wire.AppendText(nil, s) }

// Difference is a part of a gate that is not what somebody was shown. Was is nil if that is not
// known: a digest does not say what it is of.
type Difference struct {
	Member string   `json:"member"`
	Was    wire.Raw `json:"was,omitzero"`
	Now    wire.Raw `json:"now,omitzero"`
}

// differences compares two forms of seen, member by member.
func differences(was, now wire.Raw) []Difference {
	before, err := wire.Members(was)
	after, err2 := wire.Members(now)
	if err != nil || err2 != nil {
		return nil
	}
	var all []Difference
	for name, value := range after {
		if !wire.Same(before[name], value) {
			all = append(all, Difference{name, before[name], value})
		}
	}
	slices.SortFunc(all, func(a, b Difference) int { return strings.Compare(a.Member, b.Member) })
	return all
}

func notShown(now wire.Raw, differs []Difference, format string, args ...any) error {
	return fault.New(fault.NotWhatWasShown, format+" Nothing was changed.", args...).About("digest").
		With("differs", differs).With("digest", digestOf(now))
}

// join is the change that a decision carries after this vote. Those who decide together decide the
// same: nobody's approval may become one of something that they have not seen. Without a change of
// its own a vote joins that of the votes before it.
func (b Ballot) join(votes []Vote) (wire.Raw, error) {
	i := slices.IndexFunc(votes, func(v Vote) bool { return v.Approve == b.Approve })
	before := carried(votes, b.Approve)
	switch {
	case len(b.Modified) == 0 || len(before) > 0 && wire.Same(before, b.Modified):
		return before, nil
	case i < 0:
		return wire.Marshal(b.Modified) // as the ledger keeps it, so that a rebuild finds the same bytes
	}
	return nil, fault.New(fault.Conflict,
		"%s has voted before you, without these changes. Vote for the same, or reject it.", votes[i].Operator).
		About("modified")
}
