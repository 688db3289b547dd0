package rulebook

import (
	"context"
	"strings"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The names in place of a rule's for calls that are refused for what they say of themselves, before any rule is asked.
const (
	UserTokenRule = "user_token" // a user's token that proves nothing, or not what the call says
	WorkspaceRule = "workspace"  // the call names a workspace that is not the agent's
)

var claimed wire.Carried[behalf.Named]

// WithClaims is a context whose decisions are about a call that says this of itself, where the event is made by somebody
// who does not know the call, as a tool of MCP calls a service. What the event says itself comes first.
func WithClaims(ctx context.Context, n behalf.Named) context.Context {
	return claimed.With(ctx, n.Or(claimed.Of(ctx)))
}

// Admit finds out what is true of what a call says of itself, for a protocol that refuses a call before it asks about
// it. The error of a call that is refused is recorded where it is answered. What is returned acts for the user whose
// token the call has.
func Admit(ctx context.Context, r *roster.Roster, who roster.Identity, c behalf.Named) (_ roster.Identity, err error) {
	if OtherWorkspace(who, c.Workspace) {
		return who, RefuseWorkspace(who)
	}
	if c.UserToken != "" {
		who, err = r.ProveUser(ctx, who, c.UserToken)
	}
	if err == nil && who.Proved != nil {
		_, err = r.For(ctx, who, c.User) // a token of somebody else than the call names
	}
	return who, err
}

// admit finds out what is true of what a call says of itself. rule is not empty if the call is refused for it, and
// reason says why. An error means that nobody can tell.
func (b *Book) admit(ctx context.Context, who *roster.Identity, e *policy.Event) (rule, reason string, err error) {
	c := claimed.Of(ctx)
	if c == (behalf.Named{}) && e.UserToken == "" && e.Workspace == "" && who.Proved == nil {
		return "", "", nil // as most calls, which pay nothing for it
	}
	n := behalf.Named{User: e.User, UserToken: e.UserToken, Workspace: e.Workspace, Claim: e.Claim}.Or(c)
	n.Into(e)
	*who, err = Admit(ctx, b.roster, *who, n)
	e.Claim.Hops = e.Claim.Hops || who.ClaimsHops()
	if err == nil || fault.From(err).Code.Status() >= 500 {
		return "", "", err
	}
	rule = UserTokenRule
	if OtherWorkspace(*who, e.Workspace) {
		rule = WorkspaceRule
	}
	return rule, fault.From(err).Message, nil
}

// OtherWorkspace reports whether a call names a workspace that is not the caller's. A path is none: that is what some
// agents call the folder they work in.
func OtherWorkspace(who roster.Identity, named string) bool {
	return named != "" && named != who.Workspace && who.Workspace != "" && !strings.ContainsAny(named, `/\`)
}

// RefuseWorkspace is the error for it. It does not say whether the workspace exists.
func RefuseWorkspace(who roster.Identity) error {
	return who.RefusedWorkspace(fault.New(fault.Forbidden,
		"The call names another workspace than that of %s, which is %q. Leave it out.", who.Name,
		who.Workspace).About("workspace"))
}
