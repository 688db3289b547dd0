package roster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/oidc"
	"signalbox/internal/refusal"
	"signalbox/internal/scope"
	"signalbox/internal/store"
)

// kindUserLinked is the kind of the entry that gives a user a login at an issuer.
const kindUserLinked = "user.linked"

// Login is by what an issuer of OpenID Connect knows a user. The subject is theirs for ever; e-mail and name are what
// the first token said, and nobody is found by them again.
type Login struct {
	Issuer  string `json:"issuer" example:"https://accounts.example.com"`
	Subject string `json:"subject"`
	Email   string `json:"email,omitzero"`
	Name    string `json:"name,omitzero"`
}

// Where users come from, as User.Source says it.
const (
	SourceHand = "hand"
	SourceOIDC = "oidc"
)

// From says where a user comes from, and by what issuers know them.
func (u User) From() string {
	text := u.Source
	for _, l := range u.Logins {
		text += ", " + l.Subject + " at " + l.Issuer
	}
	return text
}

// ProveUser is an agent that presents a user's token, as it acts for that user: For then says so. A token that does not
// prove a user for whom the agent may act is refused, whatever else is known of the agent, and the error says why.
func (r *Roster) ProveUser(ctx context.Context, who Identity, token string) (Identity, error) {
	t, err := r.tokens.Verify(ctx, who.Workspace, token)
	if err == nil && who.OIDCClient != "" && t.Client != "" && t.Client != who.OIDCClient {
		err = fault.New(fault.Unauthenticated, "The token was issued to another client than that of the agent %s.", who.Name)
	}
	if err != nil {
		return who, who.refused(refusal.UserToken, err)
	}
	return r.proved(ctx, who, t)
}

// proved is an agent that acts for the user of a token.
func (r *Roster) proved(ctx context.Context, who Identity, t oidc.Token) (Identity, error) {
	u, err := r.tokenUser(ctx, who, t)
	if err == nil && !who.actsFor(u.ID) && !slices.Contains(who.ActsFor, ForOIDC) {
		err = fault.New(fault.Forbidden, "The token is of %s, for whom %s may not act. An operator allows it with "+
			"`signalbox agents set %s --acts-for %s`, or --acts-for %s for everybody who has a token.", u.Name, who.Name,
			who.Name, u.Name, ForOIDC)
	}
	if err != nil {
		if fault.From(err).Code.Status() < 500 {
			err = who.refused(refusal.UserToken, err)
		}
		return who, err
	}
	who.Proved = &Behalf{User: u, Proof: ProofOIDC, Hops: t.Hops}
	if t.Scopes != nil {
		who.Proved.Scopes = slices.DeleteFunc(slices.Clone(t.Scopes), func(s string) bool {
			return scope.Check([]string{s}) != nil // of another form, and so none of ours
		})
	}
	return who, nil
}

// AuthenticateToken returns the agent that a token names as the one who acts, acting for the user of the token. It is
// for calls that have a token in place of a key.
func (r *Roster) AuthenticateToken(ctx context.Context, token string) (Identity, error) {
	t, err := r.tokens.Verify(ctx, "", token)
	if err == nil && t.Client == "" {
		err = fault.New(fault.Unauthenticated, "The token does not say who acts: it has neither act.sub, nor azp, nor client_id.")
	}
	if err != nil {
		return Identity{}, refusal.Because(err, refusal.Cause{Reason: refusal.UserToken})
	}
	h, err := r.cache.Get("client:"+t.Issuer.Workspace+"/"+t.Client, func() (holding, error) {
		return r.clientAgent(ctx, t.Issuer.Workspace, t.Client)
	})
	if err != nil {
		return Identity{}, err
	}
	now := r.now().UnixMicro()
	r.presence.Note(h.who.ID, now)
	return r.proved(ctx, h.identityAt(now), t)
}

// clientAgent finds the agent that is a client of an issuer, as the ledger says it.
func (r *Roster) clientAgent(ctx context.Context, workspace, client string) (holding, error) {
	var agentID string
	err := r.db.QueryRow(ctx, "SELECT id FROM agent WHERE workspace = $1 AND oidc_client = $2", []any{workspace, client},
		&agentID)
	var a Agent
	if err == nil {
		a, err = r.Agent(ctx, workspace, agentID)
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && a.OIDCClient != client {
		return holding{}, refusal.Because(fault.New(fault.Unauthenticated,
			"The token names the client %.80q, which is no agent of workspace %q. An operator sets it with `signalbox agents "+
				"set NAME --oidc-client ID`.", client, workspace), refusal.Cause{Reason: refusal.UserToken})
	}
	if err != nil {
		return holding{}, err
	}
	return a.holding(), nil
}

// tokenUser is the user of a token: who has the subject, else who is linked or made by it.
func (r *Roster) tokenUser(ctx context.Context, who Identity, t oidc.Token) (*User, error) {
	known := "login:" + who.Workspace + "/" + t.Issuer.URL + " " + t.Subject
	h, found, round := r.cache.Find(known)
	if found && h.user != nil {
		return h.user, nil
	}
	u, _, err := r.userBySubject(r.ledger.Prover(ctx), who.Workspace, t)
	if err != nil {
		return nil, err
	}
	if u != nil {
		r.cache.Put(known, holding{user: u}, round)
		return u, nil
	}
	return r.adopt(ctx, who, t)
}

// userBySubject finds the user that has the subject of a token, nil for none. removed says that there was one.
func (r *Roster) userBySubject(p ledger.Prover, workspace string, t oidc.Token) (found *User, removed bool, err error) {
	owners, err := store.All(p.Query, func(scan store.Scan) (owner string, err error) { return owner, scan(&owner) },
		"SELECT owner FROM user_login WHERE workspace = $1 AND issuer = $2 AND subject = $3", workspace, t.Issuer.URL,
		t.Subject)
	if err != nil || len(owners) == 0 {
		return nil, false, err
	}
	u, err := r.user(p, workspace, owners[0])
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	case !u.hasLogin(t.Issuer.URL, t.Subject):
		return nil, false, contradicted(p, "user_login", u.ID, u.Name)
	}
	return &u, false, nil
}

// hasLogin reports whether the ledger gives a user this login; any of the issuer for the subject "".
func (u *User) hasLogin(issuer, subject string) bool {
	return slices.ContainsFunc(u.Logins, func(l Login) bool {
		return l.Issuer == issuer && (subject == "" || l.Subject == subject)
	})
}

// adopt gives the subject of a token to a user that was made by hand and has its verified e-mail, or makes a user of
// it, if the issuer is configured so. A user whom somebody has removed is not made again.
func (r *Roster) adopt(ctx context.Context, who Identity, t oidc.Token) (*User, error) {
	fresh, login := id.New("usr"), Login{t.Issuer.URL, t.Subject, t.Email, t.FullName}
	var u *User
	err := r.Write(ctx, func(tx *ledger.Tx) error {
		found, removed, err := r.userBySubject(tx.Prover(), who.Workspace, t)
		if u = found; err != nil || u != nil { // another call was quicker
			return err
		}
		all, err := r.users(tx.Prover(), who.Workspace)
		if err != nil {
			return err
		}
		say := func(kind, userID string, body any) error {
			tx.Append(ledger.Event{Workspace: who.Workspace, Kind: kind, Actor: who.Actor(), Subject: userID, Body: body})
			made, err := r.user(tx.Prover(), who.Workspace, userID)
			u = &made
			return err
		}
		sameMail := slices.IndexFunc(all, func(u User) bool {
			return t.Email != "" && strings.EqualFold(u.Email, t.Email)
		})
		if sameMail >= 0 && t.EmailVerified && all[sameMail].Source == SourceHand &&
			!all[sameMail].hasLogin(t.Issuer.URL, "") {
			return say(kindUserLinked, all[sameMail].ID, login)
		}
		if !t.Issuer.Create || removed {
			return unknownUser(who.Workspace, t, removed)
		}
		body := userAdded{
			Name: freeName(t, all), userSettings: userSettings{Scopes: []string{scope.All}}, Login: &login,
		}
		// An address of another user, or one that nobody has verified, is noted and not used.
		if t.EmailVerified && sameMail < 0 && emailForm.MatchString(t.Email) {
			body.Email = t.Email
		}
		return say(kindUserAdded, fresh, body)
	})
	return u, err
}

// unknownUser is the error for a good token of somebody who is no user here.
func unknownUser(workspace string, t oidc.Token, removed bool) error {
	if removed {
		return fault.New(fault.Forbidden, "The user of this token was removed from workspace %q.", workspace)
	}
	hint := "An operator adds them with `signalbox users add NAME --email ADDRESS`; the issuer has to have verified the address."
	return fault.New(fault.Forbidden, "The token is valid, and %.80q at %s is no user of workspace %q. %s",
		cmp.Or(t.Email, t.Subject), t.Issuer.URL, workspace, hint)
}

// freeName is a name for a new user, made from the one that the token has: alice for Alice@example.com, and alice-2
// if there is an alice.
func freeName(t oidc.Token, all []User) string {
	name := t.ShortName()
	if name == "" || slices.Contains([]string{ForOwner, ForAnybody, ForOIDC}, name) {
		name = strings.Trim("user-"+name, "-")
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(all, func(u User) bool { return u.Name == name })
	}
	free := name
	for n := 2; taken(free) && n < 100; n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	if taken(free) {
		sum := sha256.Sum256([]byte(t.Issuer.URL + " " + t.Subject))
		free = name + "-" + hex.EncodeToString(sum[:8])
	}
	return free
}
