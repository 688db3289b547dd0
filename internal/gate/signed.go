package gate

import (
	"bytes"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
)

// Signatures checks the votes in the entries of a ledger, with nothing but those entries: each one that
// was signed, by a passkey that was enrolled at that moment, over the gate as its entry has it; and that
// each one that had to be signed is. It is for an export, whose entries VerifyExport proves.
type Signatures struct {
	Gate  string   // the gate whose votes are listed; all are checked
	Votes []Judged // of that gate

	Verified int64 // votes with a signature that holds
	Unsigned int64 // votes that nobody asked to be signed
	Erased   int64 // votes of which nothing can be said, since a body was erased

	register *passkey.Register
	waiting  map[string]*Gate // nil for one whose opening was erased
}

// Judged is a vote, and what became of its check.
type Judged struct {
	Operator string    `json:"operator,omitempty"`
	CastBy   string    `json:"cast_by,omitempty"`
	Approve  bool      `json:"approve"`
	At       time.Time `json:"at"`
	Result   string    `json:"result"` // verified, unsigned or erased
}

// The results of a check that did not fail.
const (
	SignedVerified = "verified"
	SignedNot      = "unsigned"
	SignedErased   = "erased"
)

// NewSignatures begins with an empty ledger. gateID is the gate whose votes are listed, "" for none.
func NewSignatures(gateID string) *Signatures {
	return &Signatures{Gate: gateID, register: passkey.NewRegister(), waiting: map[string]*Gate{}}
}

// Entry takes the next entry of the ledger. A vote whose signature does not hold, or is missing where one
// was needed, is an error, and so is a passkey that was changed without one.
func (s *Signatures) Entry(e *ledger.Entry) error {
	if err := s.register.Entry(e); err != nil {
		return fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) is not one that a server has taken.", e.Seq, e.Kind)
	}
	switch e.Kind {
	case "gate.opened":
		s.waiting[e.Subject] = nil
		if e.Body == nil {
			return nil
		}
		g, opened := &Gate{}, *e
		opened.Body = bytes.Clone(e.Body) // the gate keeps parts of it
		if err := g.fill(&opened); err != nil {
			return fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) cannot be read.", e.Seq, e.Kind)
		}
		s.waiting[e.Subject] = g
	case "gate.voted":
		return s.vote(e)
	case "gate.resolved":
		delete(s.waiting, e.Subject)
	}
	return nil
}

// vote checks a vote and keeps what the next one at the gate depends on.
func (s *Signatures) vote(e *ledger.Entry) error {
	var v voted
	if e.Body != nil {
		if err := e.Decode(&v); err != nil {
			return fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) cannot be read.", e.Seq, e.Kind)
		}
	}
	result, err := s.judge(e, &v)
	if err != nil {
		return fault.Wrap(err, fault.VerificationFailed, "Entry %d: the vote of %s at the gate %s does not hold.", e.Seq,
			v.Operator, e.Subject)
	}
	switch result {
	case SignedVerified:
		s.Verified++
	case SignedNot:
		s.Unsigned++
	case SignedErased:
		s.Erased++
	}
	if e.Subject == s.Gate {
		s.Votes = append(s.Votes, Judged{v.Operator, v.CastBy, v.Approve, e.At, result})
	}
	if g := s.waiting[e.Subject]; g != nil && e.Body == nil {
		s.waiting[e.Subject] = nil // what the next voter was shown cannot be computed any more
	} else if g != nil {
		g.Votes = append(g.Votes, Vote{Operator: v.Operator, Approve: v.Approve, Modified: bytes.Clone(v.Modified)})
	}
	return nil
}

// judge checks one vote.
func (s *Signatures) judge(e *ledger.Entry, v *voted) (result string, err error) {
	g, known := s.waiting[e.Subject]
	switch {
	case !known:
		return "", fault.New(fault.VerificationFailed, "No such gate waits.")
	case e.Body == nil || g == nil:
		return SignedErased, nil
	}
	own := s.register.Of(v.CastBy)
	if v.Assertion != nil {
		if v.Digest != g.ShownDigest() {
			return "", fault.New(fault.VerificationFailed, "It was signed for something else than the ledger shows.")
		}
		return SignedVerified, s.register.Signed(own, v.challenge(e.Subject), v.Assertion)
	}
	if g.opening.needsSignature(len(own) > 0 || len(s.register.Of(v.Operator)) > 0) {
		return "", fault.New(fault.VerificationFailed, "It had to be signed with a passkey, and is not.")
	}
	return SignedNot, nil
}

// FromEntries reads gates from entries alone, by their ids. The entries are proved elsewhere.
func FromEntries(entries []ledger.Entry) (map[string]*Gate, error) {
	gates := map[string]*Gate{}
	for i := range entries {
		e := &entries[i]
		if e.Kind == "gate.opened" && gates[e.Subject] == nil {
			gates[e.Subject] = &Gate{Status: Pending}
		}
		if g := gates[e.Subject]; g != nil {
			if err := g.follow(e); err != nil {
				return nil, fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) cannot be read.", e.Seq, e.Kind)
			}
		}
	}
	return gates, nil
}

// ByVotes is the status that the votes amount to, by the rules with which the gate was opened.
func (g *Gate) ByVotes() Status { return g.opening.Rules.Tally(g.Votes) }
