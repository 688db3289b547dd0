package task

import (
	"cmp"
	"context"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/scope"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// extension stands before the names of our own members of documents.
const extension = "x_"

// named is for whom a document says it is: x_user and x_delegation.
func named(raw []byte) behalf.Named {
	members, _ := wire.Members(raw) // what cannot be read is refused elsewhere
	return behalf.From(members, extension)
}

// checkNamed refuses x_user and x_scopes that have another form than they should: an agent that writes them wrongly must
// not act for its owner instead, or with all scopes.
func checkNamed(raw []byte) *amp.Refusal {
	members, _ := wire.Members(raw)
	if user, has := members["x_user"]; has {
		if text, ok := wire.Text(user); !ok || text == "" {
			return amp.Refuse(amp.LayerSchema, amp.WrongType, "/x_user", "x_user is not a text.",
				"the name, id or e-mail of a user", "alice")
		}
	}
	if raw, has := members["x_scopes"]; has {
		var scopes []string
		if err := wire.Unmarshal(raw, &scopes); err != nil || scope.Check(scopes) != nil {
			return amp.Refuse(amp.LayerSchema, amp.WrongFormat, "/x_scopes", "x_scopes is not a list of scopes.",
				"a list of scopes", []string{"repo.write"})
		}
	}
	return nil
}

// findUser finds out for whom a document is, before its transaction: who is named, and whether the sender may act for
// them. An operator may act for every user of the workspace, and is refused one who does not exist.
func (s *Tasks) findUser(ctx context.Context, w *work) (*amp.Refusal, error) {
	if name := w.named.User; name != "" {
		user, err := s.core.Roster.Called(ctx, w.party.Workspace, name)
		if err != nil {
			return nil, err
		}
		switch operator := w.party.Identity.Kind == roster.HolderOperator; {
		case user != nil:
			w.called = user.ID
			if operator {
				w.behalf.User = user
			}
		case operator:
			return amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "/x_user", "There is no user "+behalf.Clip(name)+".",
				"a user of the workspace; `signalbox users ls` lists them", nil), nil
		}
	}
	if w.party.Identity.Kind != roster.HolderAgent {
		w.setUser()
		return nil, nil
	}
	if err := s.presume(ctx, w); err != nil {
		return nil, err
	}
	found, under, err := s.core.Book.Behalf(ctx, w.party.Identity, w.named.Claim, w.named.User)
	if err != nil {
		return nil, err
	}
	w.behalf = found
	if under.Verified {
		w.under = under.ID
	}
	w.within = under.Within
	w.run = s.core.AskedBy(ctx, behalf.Of{Handoff: w.under, Within: w.within}, w.party.Identity, "")
	w.setUser()
	w.token = w.checkToken(under)
	return nil, nil
}

// setUser puts into the world for whom a new task is.
func (w *work) setUser() {
	of := behalf.Found(w.behalf)
	w.world.User, w.world.Claimed = of.User, of.Claimed
}

// checkUser refuses a document that is for somebody else than its task: a task has one user, from its first document on.
func (w *work) checkUser() *amp.Refusal {
	t := w.before
	if t == nil || w.named.User == "" || w.called != "" && w.called == t.User || behalf.Clip(w.named.User) == t.Claimed {
		return nil
	}
	return amp.Refuse(amp.LayerAuth, amp.AuthPolicy, "/x_user",
		"The task is on behalf of "+cmp.Or(t.Claimed, t.User, "nobody")+", and this document says "+
			behalf.Clip(w.named.User)+".", "the user of the task, or no x_user", nil)
}

// taskUser is for whom a task is: what its documents are for that name nobody.
func taskUser(t *amp.Task) string {
	if t == nil {
		return ""
	}
	return cmp.Or(t.Claimed, t.User)
}

// of is for whom the entries of a step are: its task is, and a new one is for whom its first document is; and under which
// handoff, and in which, its sender acts.
func (w *work) of() behalf.Of {
	of := behalf.Of{User: w.world.User, Claimed: w.world.Claimed, Handoff: w.under, Within: w.within}
	if w.before != nil {
		of.User, of.Claimed = w.before.User, w.before.Claimed
	}
	return of
}

// onBehalf is what people are told of it at a gate.
func (w *work) onBehalf() []gate.Fact {
	r := rulebook.Record{Delegation: w.decision.Record.Delegation}
	if u := w.behalf.User; u != nil && u.ID == w.of().User {
		r.User = policy.User{Name: u.Name, Email: u.Email, Verified: w.behalf.Claimed == ""}
		return gate.OnBehalf(&r, w.behalf.Claimed)
	}
	return gate.OnBehalf(&r, "")
}

// knownTask is the task as it stands before the transaction, nil if there is none.
func (s *Tasks) knownTask(ctx context.Context, workspace, taskID string) (*amp.Task, error) {
	t, err := s.Task(ctx, workspace, taskID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return t, err
}
