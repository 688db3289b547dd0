package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
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

// provenSession finds the operator whose session has the hash. The row finds it; that it was opened, and not ended since,
// is read from the entries.
func (w *Web) provenSession(p ledger.Prover, hash string) (operator string, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		rows, err := store.All(p.Query, func(scan store.Scan) (s signedIn, err error) {
			err = scan(&s.operator, &s.expires)
			return s, err
		}, "SELECT operator, expires_at FROM web_session WHERE hash = $1", hash)
		if err != nil {
			return false, err
		}
		// Expired rows are deleted when the next session is opened, so the time is checked here.
		if len(rows) == 0 || w.Now().UnixMicro() >= rows[0].expires {
			return false, sessionEnded()
		}
		operator = rows[0].operator
		return w.sessions.open(p, hash, rows[0], w.Now())
	})
	if err == nil && !agree {
		err = p.Contradicts("web_session", operator, "a session of %s was not opened, or has ended", operator)
	}
	return operator, err
}

// signedIn is a session as it was opened.
type signedIn struct {
	operator string
	expires  int64 // microseconds
	seq      int64 // the entry that opened it
}

// sessions remembers which entries have opened sessions, by the hashes of their tokens. That does not change, so only
// what has happened since is read again.
type sessions struct {
	mu    sync.Mutex
	known map[string]signedIn
}

// maxSessions bounds the memory; a full one is emptied.
const maxSessions = 10_000

// open reports whether the session of a row was opened as it says there, and has not ended.
func (s *sessions) open(p ledger.Prover, hash string, row signedIn, now time.Time) (bool, error) {
	found, err := s.find(p, hash, row, now)
	row.seq = found.seq
	if err != nil || found != row {
		return false, err
	}
	since, err := p.Entries(ledger.Query{
		After: found.seq, Subject: found.operator, Kinds: []string{kindClosed, kindPasswordSet, "operator.removed"},
	})
	for i := range since {
		b := closed{Session: hash} // what else ends sessions ends all of the operator's
		if since[i].Kind == kindClosed && err == nil {
			err = since[i].Decode(&b)
		}
		if b.Session == hash {
			return false, err
		}
	}
	return err == nil, err
}

// find finds the entry that opened a session among the newest of the operator, zero if there is none.
func (s *sessions) find(p ledger.Prover, hash string, row signedIn, now time.Time) (signedIn, error) {
	s.mu.Lock()
	found, known := s.known[hash]
	s.mu.Unlock()
	q := ledger.Query{Subject: row.operator, Kinds: []string{kindOpened}, Newest: true, Limit: 100}
	for !known {
		page, err := p.Entries(q)
		if err != nil {
			return found, err
		}
		for i := range page {
			var b opened
			if err := page[i].Decode(&b); err != nil {
				return found, err
			}
			if b.Session == hash {
				found, known = signedIn{page[i].Subject, b.Expires, page[i].Seq}, true
			}
		}
		if len(page) < q.Limit || page[0].At.Before(now.Add(-sessionLife)) {
			break
		}
		q.UpTo = page[0].Seq - 1
	}
	if known {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.known == nil || len(s.known) >= maxSessions {
			s.known = map[string]signedIn{}
		}
		s.known[hash] = found
	}
	return found, nil
}

// usedBefore reports whether a code has opened a session. The table has the codes that were used; one that is not
// there is looked for among the newest entries too, as far back as a code can be good.
func usedBefore(p ledger.Prover, operator, hash string, now time.Time) (bool, error) {
	rows, err := store.All(p.Query, store.Text, "SELECT hash FROM web_code WHERE hash = $1", hash)
	if err != nil || len(rows) > 0 {
		return true, err
	}
	last, err := p.Entries(ledger.Query{Subject: operator, Kinds: []string{kindOpened}, Newest: true, Limit: 100})
	for i := len(last) - 1; i >= 0 && err == nil && !last[i].At.Before(now.Add(-codeLife)); i-- {
		var b opened
		if err = last[i].Decode(&b); err == nil && b.Code == hash {
			return true, p.Contradicts("web_code", operator, "a code of %s that was used is not there", operator)
		}
	}
	return false, err
}
