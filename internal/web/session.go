package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

const (
	// codeLife is how long a login code can be used: long enough to copy it to another machine.
	codeLife = 5 * time.Minute
	// sessionLife is how long somebody stays signed in. It is not extended by use.
	sessionLife = 7 * 24 * time.Hour

	sessionCookie = "signalbox_session"
)

// hashOf is how secrets are stored in tables and the ledger. They are random and long, so a fast
// hash is enough.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Offer makes a code with which the operator signs in once, within five minutes, and returns the
// address that carries it. by is who asked for it.
func (w *Web) Offer(ctx context.Context, by, operator roster.Identity) (Login, error) {
	// The entry records that a code was made, and for whom; the code itself appears nowhere.
	made := w.newLogin(operator)
	err := w.ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: operator.Workspace, Kind: kindOffered, Actor: by.Actor(), Subject: operator.ID,
			Body: offered{made.ExpiresAt.UnixMicro()},
		})
		return nil
	})
	return made, err
}

// OfferLocal makes a code for the first admin, for whoever starts the server on a terminal: with
// the database in hand they may do everything anyway. It writes no entry, because a start should
// not write.
func (w *Web) OfferLocal(ctx context.Context) (Login, error) {
	all, err := w.Roster.Operators(ctx, "")
	if err != nil {
		return Login{}, err
	}
	// An admin who is confined to a workspace is not meant: the terminal is the server's.
	for _, p := range all {
		if p.Role == roster.Admin && p.Workspace == "" {
			return w.newLogin(p.Identity()), nil
		}
	}
	return Login{}, fault.New(fault.Conflict, "The database has no admin; its operators were changed by hand.")
}

// signIn opens a session for the operator and returns its token, which only the cookie holds.
func (w *Web) signIn(ctx context.Context, operator roster.Identity, how string) (token string, err error) {
	token = rand.Text() + rand.Text()
	err = w.ledger.Write(ctx, func(tx *ledger.Tx) error {
		appendOpened(tx, operator, how, token, code{})
		return nil
	})
	return token, err
}

// appendOpened appends the entry that opens a session; used is the code that is used up by it, if
// any.
func appendOpened(tx *ledger.Tx, operator roster.Identity, how, token string, used code) {
	body := opened{How: how, Session: hashOf(token), Expires: tx.Now().Add(sessionLife).UnixMicro()}
	if used.text != "" {
		body.Code, body.CodeExpires = hashOf(used.text), used.expires.UnixMicro()
	}
	tx.Append(ledger.Event{
		Workspace: operator.Workspace, Kind: kindOpened, Actor: operator.Actor(), Subject: operator.ID,
		Body: body,
	})
}

// redeem signs in with a code. The code is used up in the transaction that opens the session, so
// of two tries at the same moment one fails.
func (w *Web) redeem(ctx context.Context, text string) (token string, err error) {
	// One text for every reason: a code that was guessed must not learn how close it was.
	bad := fault.New(fault.Unauthenticated,
		"This code was used already, or is older than five minutes. `signalbox login` prints a new address.")
	used, who, err := w.readCode(ctx, text)
	if err != nil {
		return "", err
	}
	if who.ID == "" {
		return "", bad
	}
	token = rand.Text() + rand.Text()
	err = w.ledger.Write(ctx, func(tx *ledger.Tx) error {
		before, err := usedBefore(tx.Prover(), who.ID, hashOf(used.text), tx.Now())
		if err != nil {
			return err
		}
		// The operator may have been removed, or replaced by another of the same name, since the code
		// was made.
		now, err := roster.FindOperator(tx, who.Name)
		if fault.Is(err, fault.NotFound) || err == nil && now.ID != who.ID || before || !tx.Now().Before(used.expires) {
			return bad
		}
		if err != nil {
			return err
		}
		appendOpened(tx, who, "code", token, used)
		return nil
	})
	return token, err
}

// Identify finds out who is signed in, by the request's cookie.
func (w *Web) Identify(r *http.Request) (roster.Identity, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil || cookie.Value == "" {
		return roster.Identity{},
			fault.New(fault.Unauthenticated, "Nobody is signed in. Open the address that `signalbox login` prints.")
	}
	return w.sessionOwner(r.Context(), cookie.Value)
}

// sessionOwner finds the operator of a session by its token. The operator is read anew each time,
// so a role that was taken away is gone with the next request.
func (w *Web) sessionOwner(ctx context.Context, token string) (roster.Identity, error) {
	operator, err := w.provenSession(w.ledger.Prover(ctx), hashOf(token))
	if err != nil {
		return roster.Identity{}, err
	}
	who, err := w.Roster.OperatorByID(ctx, operator)
	if fault.Is(err, fault.NotFound) {
		return roster.Identity{}, sessionEnded()
	}
	return who, err
}

func sessionEnded() error {
	return fault.New(fault.Unauthenticated, "This session has ended. Sign in again.")
}

// HasSession reports whether the request carries a session cookie, which may have ended.
func (w *Web) HasSession(r *http.Request) bool {
	_, err := r.Cookie(sessionCookie)
	return err == nil
}

// Caller is who calls the operators' API with a session instead of a token. Requests that a page
// of another site made the browser send are refused, because the browser adds the cookie to them.
func (w *Web) Caller(r *http.Request) (roster.Identity, error) {
	if err := w.sameSite.Check(r); err != nil {
		return roster.Identity{}, fault.New(fault.Forbidden, "This was sent from another site, and nothing was done.")
	}
	return w.Identify(r)
}

// Login is an address that signs somebody in, once.
type Login struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Routes are the dashboard's part of the operators' API.
func (w *Web) Routes() []wire.Route {
	return append(w.terminalRoutes(), []wire.Route{
		{
			Method: "POST", Path: "/ops/login",
			Summary: "Make an address that signs you in to the dashboard, once, within five minutes", Auth: wire.Viewer,
			Answer: Login{}, Status: http.StatusCreated, Handle: w.postLogin,
		},
	}...)
}

// postLogin makes a login address for the caller.
func (w *Web) postLogin(out http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	made, err := w.Offer(r.Context(), who, who)
	if err != nil {
		return err
	}
	return wire.Reply(out, http.StatusCreated, made)
}

// signOut ends the session of the request.
func (w *Web) signOut(r *Request) (Result, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return Result{To: address.Login.At()}, nil //nolint:nilerr // there is none to end
	}
	err = w.endSession(r.Context(), r.Who, cookie.Value)
	w.setCookie(r.w, r.Request, sessionCookie, "", -1)
	return Result{To: address.Login.At(), Flash: "You are signed out."}, err
}

// endSession records that a session has ended. Its token stops working at once.
func (w *Web) endSession(ctx context.Context, who roster.Identity, token string) error {
	return w.ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindClosed, Actor: who.Actor(), Subject: who.ID,
			Body: closed{hashOf(token)},
		})
		return nil
	})
}

// setCookie sets a cookie that scripts cannot read. SameSite=Lax lets a link from a chat arrive
// signed in. Changes are protected against other sites by CrossOriginProtection.
func (w *Web) setCookie(out http.ResponseWriter, r *http.Request, name, value string, maxAge int) {
	http.SetCookie(out, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(w.BaseURL, "https://") || wire.ReachOf(r.Context()).Secure,
	})
}
