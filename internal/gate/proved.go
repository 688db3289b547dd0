package gate

import (
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Proved is a gate as far as entries that were proved one by one say what it was.
type Proved struct {
	ID             string       `json:"id"`
	Title          string       `json:"title"`
	Summary        string       `json:"summary"`
	ProposedAction string       `json:"proposed_action"`
	Digest         string       `json:"digest"` // of what was shown when it was opened
	ActionDigest   string       `json:"action_digest"`
	OpenedAt       time.Time    `json:"opened_at"`
	Votes          []ProvedVote `json:"votes"`
	Status         Status       `json:"status"` // pending if its end is not among what was proved
	ResolvedAt     *time.Time   `json:"resolved_at"`
}

// ProvedVote is a vote with whether it names what was shown when it was cast.
type ProvedVote struct {
	Vote
	Same bool `json:"same"`
}

// Prove puts gates together from entries that are proved, in their order. A vote or an end without the entry that
// opened its gate says nothing, since what was shown is not known. Entries without a body are passed over.
func Prove(entries []ledger.Entry) (all []Proved, err error) {
	gates := map[string]int{}
	var read []*Gate
	for i := range entries {
		e := &entries[i]
		if e.Body == nil || !strings.HasPrefix(e.Kind, "gate.") {
			continue
		}
		at, known := gates[e.Subject]
		if !known {
			if e.Kind != "gate.opened" {
				continue
			}
			at = len(all)
			gates[e.Subject], read, all = at, append(read, &Gate{Status: Pending}), append(all, Proved{ID: e.Subject})
		}
		g, p := read[at], &all[at]
		shown, votes := "", len(g.Votes)
		if e.Kind == "gate.voted" {
			shown = g.ShownDigest()
		}
		if err := g.follow(e); err != nil {
			return nil, fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) cannot be read.", e.Seq, e.Kind)
		}
		if e.Kind == "gate.opened" {
			p.Title, p.Summary, p.ProposedAction = g.Title, g.Summary, g.ProposedAction
			p.Digest, p.ActionDigest, p.OpenedAt = g.ShownDigest(), g.ActionDigest, g.OpenedAt
		}
		for _, v := range g.Votes[votes:] {
			p.Votes = append(p.Votes, ProvedVote{v, len(v.Digest) >= minDigest && strings.HasPrefix(shown, v.Digest)})
		}
		p.Status, p.ResolvedAt = g.Status, g.ResolvedAt
	}
	return all, nil
}
