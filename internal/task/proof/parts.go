package proof

import (
	"fmt"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Part is one thing that a bundle shows, and how far it is proved.
type Part struct {
	Entry int64     `json:"entry"`
	What  string    `json:"what"`  // dispatch, plan, commit, review, verdict or instruction
	About string    `json:"about"` // the msg_id, or the commit
	State amp.Proof `json:"state"`
	Why   string    `json:"why"` // in a sentence

	result *amp.Result // of a commit, with what CheckClone compares
	base   string
	branch string
}

// step is what is read of the body of an entry about a task.
type step struct {
	Input    amp.Kind        `json:"input"`
	PlanOK   bool            `json:"plan_ok"`
	Release  string          `json:"release"`
	Git      *amp.GitFacts   `json:"git"`
	Gates    []task.GateLink `json:"gates"`
	Decision *aboutRule      `json:"decision"`
	Task     *amp.Task       `json:"task"`
	Record   wire.Raw        `json:"record"`
}

type aboutRule struct {
	Rule string `json:"rule"`
}

// parts goes through the entries of a bundle that are proved and replayed.
type parts struct {
	entries []ledger.Entry
	gates   map[string]*gate.Gate
	signed  map[string][]gate.Judged // by gate
	list    []Part
}

// showParts is what the entries of a task show, and an error if what was decided at its gates does not follow from them.
func showParts(t *amp.Task, entries, signers []ledger.Entry) ([]Part, error) {
	p := &parts{entries: entries, signed: map[string][]gate.Judged{}}
	var err error
	if p.gates, err = gate.FromEntries(entries); err != nil {
		return nil, err
	}
	if err := p.checkVotes(signers); err != nil {
		return nil, err
	}
	for i := range entries {
		if !task.IsStep(entries[i].Kind) {
			continue
		}
		b := new(step)
		if err := wire.UnmarshalPart(entries[i].Body, b); err != nil {
			return nil, err
		}
		if err := p.checkGates(t, &entries[i], b); err != nil {
			return nil, err
		}
		if err := p.add(&entries[i], b); err != nil {
			return nil, err
		}
	}
	return p.list, nil
}

// checkVotes checks every gate that was decided by votes, and every signature.
func (p *parts) checkVotes(signers []ledger.Entry) error {
	for id, g := range p.gates {
		if g.Cause == gate.ByVote && g.ByVotes() != g.Status {
			return fault.New(fault.VerificationFailed,
				"The gate %s was %s by votes, and the votes that are here do not amount to that: some are missing.", id, g.Status)
		}
		// Both lists are in order; a signature is judged by the passkeys of that moment.
		s := gate.NewSignatures(id)
		rest := signers
		for i := range p.entries {
			for ; len(rest) > 0 && rest[0].Seq < p.entries[i].Seq; rest = rest[1:] {
				if err := s.Entry(&rest[0]); err != nil {
					return err
				}
			}
			if err := s.Entry(&p.entries[i]); err != nil {
				return err
			}
		}
		p.signed[id] = s.Votes
	}
	return nil
}

// checkGates checks that the gates that an entry opened are here, and are resolved if the task does not wait for them.
func (p *parts) checkGates(t *amp.Task, e *ledger.Entry, b *step) error {
	for _, link := range b.Gates {
		g := p.gates[link.Gate]
		waits := t.Escalation(link.About) != nil || t.FindPlan(link.About) != nil || link.About == task.AboutPlan && t.PlanAsked
		switch {
		case g == nil:
			return fault.New(fault.VerificationFailed, "Entry %d has opened the gate %s, whose entry is missing.", e.Seq, link.Gate)
		case g.Status == gate.Pending && !waits:
			return fault.New(fault.VerificationFailed,
				"The gate %s waits, and the task does not wait for it: the entry of its decision is missing.", link.Gate)
		}
	}
	return nil
}

// add adds what an entry shows.
func (p *parts) add(e *ledger.Entry, b *step) error {
	show := func(what, about string, state amp.Proof, format string, args ...any) *Part {
		p.list = append(p.list, Part{Entry: e.Seq, What: what, About: about, State: state, Why: fmt.Sprintf(format, args...)})
		return &p.list[len(p.list)-1]
	}
	if e.Kind == "task.instructed" {
		i, refusal := amp.ReadInstruction(b.Record)
		if refusal != nil {
			return fault.New(fault.VerificationFailed, "Entry %d cannot be read: %s.", e.Seq, refusal)
		}
		show("instruction", i.ID, amp.Verified, "%s, by %s", i.Action, e.Actor)
		return nil
	}
	if b.Input != amp.InMessage {
		return nil
	}
	m, _, refusal := amp.ReadMessage(b.Record, amp.Defaults())
	if refusal != nil {
		return fault.New(fault.VerificationFailed, "Entry %d cannot be read: %s.", e.Seq, refusal)
	}
	switch {
	case m.Dispatch != nil:
		show("dispatch", m.MsgID, amp.Verified, "as %s sent it: %.200q on the branch %s of %s", e.Actor, m.Dispatch.Description,
			m.Dispatch.Branch, m.Dispatch.Repo)
		state, why, err := p.approval(e, b, m)
		if err != nil {
			return err
		}
		show("plan", m.MsgID, state, "%s", why)
	case m.Result != nil:
		sub := b.Task.Find(func(x *amp.Subtask) bool { return x.ID == m.Result.SubtaskID })
		one := show("commit", sub.Commit, amp.Unverified, "%s names it as the result of %s; nobody has looked at the repository",
			e.Actor, sub.ID)
		one.result, one.base, one.branch = m.Result, b.Task.Base, b.Task.Branch
		switch {
		case sub.Commit == "":
			one.Why = e.Actor + " names no commit as the result of " + sub.ID
		case b.Git != nil && b.Git.Look != nil:
			one.State, one.Why = b.Git.Look.Outcome, "the server, when "+e.Actor+" reported "+sub.ID+": "+b.Git.Look.Reason
		case b.Git != nil && b.Git.Commit == sub.Commit: // an entry of before looks were recorded
			one.State, one.Why = amp.Verified, "the server found it on the branch when "+e.Actor+" reported "+sub.ID
		}
	case m.Request != nil:
		show("review", m.MsgID, amp.Verified, "of %s, requested by %s", m.Request.ResultRef, e.Actor)
	case m.Verdict != nil:
		sub := b.Task.Find(func(x *amp.Subtask) bool { return x.Verdict == m.MsgID })
		one := show("verdict", m.MsgID, amp.Verified, "%s by %s, of %s at the commit %q", m.Verdict.Decision, e.Actor, sub.ID,
			sub.Commit)
		if b.Git != nil && b.Git.Look != nil {
			one.Why += "; the server found that commit " + string(b.Git.Look.Outcome) + ": " + b.Git.Look.Reason
		}
	}
	return nil
}

// approval is who has approved a dispatch. An error says why the approval that it went out with is none.
func (p *parts) approval(e *ledger.Entry, b *step, m *amp.Message) (state amp.Proof, why string, err error) {
	g := p.gates[b.Release]
	switch {
	case m.From == amp.Admin:
		return amp.Verified, "from the admin, " + e.Actor, nil
	case b.Release == "" && b.PlanOK && b.Decision != nil:
		return amp.Verified, "the rule " + b.Decision.Rule + " of the policy approved it", nil
	case b.Release == "" && b.Task.PlanApproved:
		return amp.Verified, "rework of the plan that was approved before", nil
	case b.Release == "":
		return amp.Unverified, "nobody was asked to approve it", nil
	case g == nil || g.Status != gate.Approved || g.ResolvedAt == nil || g.ResolvedAt.After(e.At):
		err = fault.New(fault.VerificationFailed,
			"Entry %d went out with the approval of the gate %s, and that has not approved it.", e.Seq, b.Release)
	case g.Origin.Reference != m.MsgID || g.ActionDigest != amp.ContentHash(b.Record):
		err = fault.New(fault.VerificationFailed, "Entry %d went out with the approval of the gate %s, which is of another plan.",
			e.Seq, b.Release)
	}
	if err != nil {
		return "", "", err
	}
	why = "approved at the gate " + g.ID
	for _, v := range p.signed[g.ID] {
		vote := map[bool]string{true: "for", false: "against"}[v.Approve]
		seal := map[string]string{
			gate.SignedVerified: "signed with a passkey", gate.SignedNot: "not signed", gate.SignedErased: "erased",
		}[v.Result]
		why += fmt.Sprintf("; %s voted %s it (%s)", v.Operator, vote, seal)
	}
	if g.Cause != gate.ByVote {
		why += ", by " + strings.ReplaceAll(string(g.Cause), "_", " ")
	}
	return amp.Verified, why, nil
}
