package amp

import (
	"cmp"
	"fmt"
	"slices"

	"signalbox/internal/wire"
)

// Proof is what became of a claim: three states, because "nobody could look" is neither yes nor no.
type Proof string

// The three states of a claim.
const (
	Verified   Proof = "verified"   // somebody has looked, and it is so
	Unverified Proof = "unverified" // nobody could look
	Failed     Proof = "failed"     // somebody has looked, and it is not so, or was kept from looking
)

// Look is the server's recorded word about what a message says of commits, and what it has looked at. It stands in
// the entry of the message ("git": {"look": …}), in the entry of its refusal if it failed, and in the task, so that a
// page, a record, a bundle and a tool show the same: Subtask.Claim is about the last result, Subtask.Bound about the
// last verdict. Outcome is that of the worst check; Reason says it in a sentence.
type Look struct {
	Outcome Proof       `json:"outcome"`
	Reason  string      `json:"reason"`
	Repo    string      `json:"repo,omitzero"`
	Branch  string      `json:"branch,omitzero"`
	Root    string      `json:"root,omitzero"`   // the commit at which the task began
	Base    string      `json:"base,omitzero"`   // the commit at which this dispatch began
	Commit  string      `json:"commit,omitzero"` // the one that it is about: of a verdict, the one that was judged
	Head    string      `json:"head,omitzero"`   // where the branch was
	Author  string      `json:"author,omitzero"` // of the commit, as git has it
	Commits int         `json:"commits,omitzero"`
	Files   int         `json:"files,omitzero"` // changed since Base, with the lines
	Added   int64       `json:"lines_added,omitzero"`
	Removed int64       `json:"lines_removed,omitzero"`
	Checks  []LookCheck `json:"checks,omitempty"`
}

// LookCheck is one thing that was checked. The names are object, branch, base, author, diff, fixes, forbidden, files
// and head.
type LookCheck struct {
	Check   string `json:"check"`
	Outcome Proof  `json:"outcome"`
	Detail  string `json:"detail,omitzero"`
}

// String is the look in a line, for people.
func (l *Look) String() string {
	if l == nil {
		return ""
	}
	text := string(l.Outcome)
	if l.Commit != "" {
		text = fmt.Sprintf("%.12s %s", l.Commit, text)
	}
	return text + ": " + l.Reason
}

// GitFacts are what a look at the repository has shown. Problems refuse the message; nil facts
// mean that nobody looked.
type GitFacts struct {
	Problems []Problem `json:"problems,omitempty"`
	Warnings []Problem `json:"warnings,omitempty"`
	Commit   string    `json:"commit,omitzero"` // of a result the whole hash of its commit; of a dispatch where it begins
	Head     string    `json:"head,omitzero"`   // where the branch is
	Look     *Look     `json:"look,omitzero"`
	// Of a dispatch: the folder in which the repository was found, and where its protected branches are.
	Place     string            `json:"place,omitzero"`
	Protected map[string]string `json:"protected,omitempty"`
	// Finding is what a person has to know of, whether the message is taken or not.
	Finding *Finding `json:"finding,omitzero"`
}

// Finding is something wrong in a repository that no message reported.
type Finding struct {
	Type        string `json:"escalation_type"`
	Severity    string `json:"severity"`
	Why         string `json:"why"`
	Description string `json:"description"`
	Scope       string `json:"scope"`
	// Head and Protected are where the branches are: the same is not escalated again.
	Head      string            `json:"head,omitzero"`
	Protected map[string]string `json:"protected,omitempty"`
}

// found has a person hear of a finding, and notes what they were told of.
func (s *step) found(f *Finding, affected ...string) {
	if f == nil {
		return
	}
	if f.Protected != nil {
		s.t.Protected = f.Protected
	}
	s.t.Told = cmp.Or(f.Head, s.t.Told)
	hold := Hold{Kind: HoldSuspended, Scope: f.Scope}
	if f.Severity == "info" || s.t.over() {
		hold = Hold{}
	}
	s.raise(f.Type, f.Severity, f.Why, f.Description, hold, affected...)
}

// Overtaken is the finding that the branch is not where the review left it: what would complete is not what
// was reviewed.
func (t *Task) Overtaken(head string) *Finding {
	return &Finding{
		Type: "branch_violation", Severity: "warning", Why: "overtaken", Scope: ScopeTask, Head: head,
		Description: fmt.Sprintf("The branch %s was moved under review: %.12s is what is reviewed, and it is at %.12s now. "+
			"Put it back and resume, or resume and have the work dispatched and reviewed again: only what was reviewed "+
			"completes.",
			t.Branch, t.Pin, cmp.Or(head, "no commit")),
	}
}

// Settled reports whether nobody may move the task's branch but a reviewer who fixes something: every subtask that
// has begun was reported, and none goes back to the executor. Pin is where the branch has to be then.
func (t *Task) Settled() bool {
	return !slices.ContainsFunc(t.Subtasks, func(s Subtask) bool {
		return s.State == Dispatched || s.State == Executing || s.State == Rework ||
			s.State == VerdictReported && s.Decision == rejected
	})
}

// Unlooked reports whether an approval that would complete the task waits for a look at the branch.
func (t *Task) Unlooked() bool {
	return t.Place != "" && !t.over() && t.Held == nil && slices.ContainsFunc(t.Subtasks, func(s Subtask) bool {
		return s.State == VerdictReported && s.Heard && s.Decision != rejected
	})
}

// mayComplete reports whether the approval of a subtask may complete the task: the branch is at the commit that was
// reviewed. Without a look in this step the approval waits for one (Looked).
func (s *step) mayComplete() bool {
	git := s.w.Git
	switch {
	case s.t.Place == "":
		return true
	case git == nil || git.Look == nil:
		return false
	case git.Finding != nil:
		s.found(git.Finding, s.t.Last)
		return false
	case git.Look.Outcome == Unverified: // nobody can look any more, which the entry says
		return true
	case git.Head != s.t.Pin:
		if git.Head != s.t.Told || s.writer != "" {
			s.found(s.t.Overtaken(git.Head), s.t.Last)
		}
		return false
	}
	return true
}

// Looked takes a look at the branch of a task that waits for one, and completes the task if the branch is where it
// should be. Nothing changes if nothing follows from it.
func (p Policy) Looked(t *Task, w World) (*Task, Outcome) {
	s := p.begin(t, t.ID, w, "")
	if !t.Unlooked() {
		return t, s.out
	}
	for i := range s.t.Subtasks {
		s.applyVerdict(&s.t.Subtasks[i])
	}
	if s.t.Phase == t.Phase && len(s.out.Raised) == 0 {
		return t, Outcome{}
	}
	return s.end()
}

// noteRefused notes in the task that a message was refused for what git has shown, and has a person hear of it if
// they must. It reports whether there was anything to note.
func (s *step) noteRefused(lost *Lost) (noted bool) {
	git := s.w.Git
	if git == nil {
		return false
	}
	sub := s.t.findSubtask(func(x *Subtask) bool { return x.ID == lost.Subtask })
	if noted = sub != nil && git.Look != nil && git.Look.Outcome == Failed; noted {
		sub.Claim = git.Look
	}
	s.found(git.Finding, s.t.Last)
	return noted || git.Finding != nil
}

// Files are the patterns of x_files: what the dispatch lets be changed, nil for everything. ok is false for what is
// no list of patterns.
func (d *Dispatch) Files() (patterns []string, ok bool) {
	if len(d.FileScope) == 0 {
		return nil, true
	}
	err := wire.Unmarshal(d.FileScope, &patterns)
	return patterns, err == nil && len(patterns) > 0 && !slices.Contains(patterns, "")
}
