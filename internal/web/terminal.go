package web

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// A terminal signs in through the browser (`signalbox login --cli`), so that a command has an operator's power
// without a file of the server. The command asks, and gets a link, a short code and a secret. The
// person opens the link where they are signed in, compares the code, and confirms. The command, which
// asks again and again with its secret, then gets a token of that person for a day.
//
// A question carries its own proof, as a login code does, so nothing is stored before somebody answers. Anybody may
// ask, agents too: the page says who asked as far as that is known, and nothing is ever confirmed without a
// person's click.

const (
	// askLife is how long a question can be answered.
	askLife = 5 * time.Minute
	// terminalLife is how long the token of a terminal works.
	terminalLife = 24 * time.Hour
	// How often one address may ask, and look for the answer, in a minute.
	asksPerMinute  = 20
	looksPerMinute = 120
	// maxAsk is the longest body of a question, and of what it is answered by.
	maxAsk = 8 << 10
)

// TerminalAsk is what a command says about itself. The server cannot check it.
type TerminalAsk struct {
	Machine string `json:"machine" example:"laptop"`
	User    string `json:"user" example:"ann"`
	Process string `json:"process" doc:"the program that runs the command, and its number" example:"zsh (4711)"`
}

// TerminalAsked is the question as the command gets it. Secret is for the command alone.
type TerminalAsked struct {
	URL       string    `json:"url"`
	Code      string    `json:"code" doc:"what the page shows too, for the person to compare"`
	Question  string    `json:"question"`
	Secret    string    `json:"secret"`
	ExpiresAt time.Time `json:"expires_at"`
}

// TerminalLook asks for the answer to a question.
type TerminalLook struct {
	Question string `json:"question"`
	Secret   string `json:"secret"`
}

// TerminalAnswer is the answer. Without a token, nobody has answered yet.
type TerminalAnswer struct {
	Token     string    `json:"token,omitzero"`
	Operator  string    `json:"operator,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// question is what a link carries.
type question struct {
	TerminalAsk `json:",inline"`

	From   string    `json:"from"` // the address that the question came from, which the server saw itself
	At     time.Time `json:"at"`
	Code   string    `json:"code"`
	Secret string    `json:"secret_sha256"`
	text   string    // with its proof
}

// Expires is when the question can no longer be answered.
func (q question) Expires() time.Time { return q.At.Add(askLife) }

// terminalRoutes are the calls of a command that signs in. They take no credential: getting one is what they are
// for.
func (w *Web) terminalRoutes() []wire.Route {
	return []wire.Route{
		{
			Method: "POST", Path: "/login/cli", Summary: "Ask a person to give this terminal their power for a day",
			Request: TerminalAsk{}, Answer: TerminalAsked{}, Status: http.StatusCreated, Handle: w.postAsk,
		},
		{
			Method: "POST", Path: "/login/cli/token", Summary: "The token, once the person has confirmed; shown once",
			Request: TerminalLook{}, Answer: TerminalAnswer{}, Handle: w.postLook,
		},
		{
			Method: "DELETE", Path: "/ops/login/cli", Summary: "End the token of this call, which is a terminal's",
			Auth: wire.Viewer, Status: http.StatusNoContent, Handle: w.deleteTerminal,
		},
	}
}

// deleteTerminal ends the token of the call. Other tokens are ended by admins.
func (w *Web) deleteTerminal(out http.ResponseWriter, r *http.Request) error {
	if err := w.Roster.EndOwn(r.Context(), roster.From(r.Context())); err != nil {
		return err
	}
	out.WriteHeader(http.StatusNoContent)
	return nil
}

// take counts a call against the limit of its address. limits.per_agent does not lift it.
func (w *Web) take(r *http.Request, what string, limit int64) error {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	_, err := w.Roster.Take(roster.Identity{ID: "from:" + host, Name: host, RateLimit: &limit}, what, 0)
	return err
}

// postAsk answers POST /login/cli. It writes nothing.
func (w *Web) postAsk(out http.ResponseWriter, r *http.Request) error {
	if err := w.take(r, "terminal logins", asksPerMinute); err != nil {
		return err
	}
	q := question{At: w.Now().UTC().Truncate(time.Second), Code: newCode()}
	if err := wire.ReadJSON(out, r, maxAsk, &q.TerminalAsk); err != nil {
		return err
	}
	for _, text := range []*string{&q.Machine, &q.User, &q.Process} {
		*text = strings.ToValidUTF8((*text)[:min(len(*text), 120)], "")
	}
	q.From, _, _ = net.SplitHostPort(r.RemoteAddr)
	if wire.ReachOf(r.Context()).Forwarded {
		q.From = "somewhere behind a proxy"
	}
	secret := rand.Text() + rand.Text()
	q.Secret = hashOf(secret)
	body, err := wire.Marshal(q)
	if err != nil {
		return err
	}
	text := base64.RawURLEncoding.EncodeToString(append(w.proveQuestion(body), body...))
	return wire.Reply(out, http.StatusCreated, TerminalAsked{
		URL: w.BaseURL + address.Terminal.At() + "?ask=" + url.QueryEscape(text), Code: q.Code, Question: text,
		Secret: secret, ExpiresAt: q.Expires(),
	})
}

// newCode draws the code that a person compares: eight letters and digits that are hard to mix up, in two groups.
func newCode() string {
	text := rand.Text() // of A-Z and 2-7
	return text[:4] + "-" + text[4:8]
}

// proveQuestion is the proof that a question was asked here.
func (w *Web) proveQuestion(body []byte) []byte {
	mac := hmac.New(sha256.New, append([]byte("signalbox terminal\x00"), w.Key...))
	mac.Write(body)
	return mac.Sum(nil)
}

// readQuestion reads a question that this server was asked within the last five minutes.
func (w *Web) readQuestion(text string) (q question, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], w.proveQuestion(raw[sha256.Size:])) {
		return q, fault.New(fault.Unauthenticated, "This server was not asked that. Run `signalbox login --cli` again.")
	}
	if err := wire.Unmarshal(raw[sha256.Size:], &q); err != nil {
		return q, err
	}
	if q.text = text; !w.Now().Before(q.Expires()) {
		return q, fault.New(fault.Unauthenticated,
			"This question is older than five minutes. Run `signalbox login --cli` again.")
	}
	return q, nil
}

// The states of a question that was answered, before the hash of its secret in web_code.
const (
	answeredYes = "yes:"   // and the command has not come for its token yet
	answeredNo  = "no:"    // or the token was taken: nothing more comes of it
	neverAgain  = "taken:" //nolint:gosec // a state and no secret
)

// answerOf reads how a question was answered, and by which operator; "" for not yet. A yes has to be in the ledger.
func answerOf(tx *ledger.Tx, secret string) (state, operator string, err error) {
	var hash string
	err = tx.QueryRow("SELECT hash, operator FROM web_code WHERE hash IN ($1, $2, $3)",
		[]any{answeredYes + secret, answeredNo + secret, neverAgain + secret}, &hash, &operator)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", nil
	}
	if state = strings.TrimSuffix(hash, secret); err == nil && state == answeredYes {
		err = proveYes(tx.Prover(), operator, secret)
	}
	return state, operator, err
}

// proveYes checks that the last entry of an operator about a question confirms it, and that nobody has taken the token.
func proveYes(p ledger.Prover, operator, secret string) error {
	entries, err := p.Entries(ledger.Query{
		Subject: operator, Kinds: []string{kindConfirmed, kindDenied, kindTaken, "operator.removed"}, Newest: true, Limit: 100,
	})
	state := ""
	for i := 0; i < len(entries) && err == nil; i++ {
		var about struct {
			Secret string `json:"secret_sha256"`
		}
		err = wire.UnmarshalPart(entries[i].Body, &about)
		if about.Secret == secret || entries[i].Kind == "operator.removed" {
			state = entries[i].Kind
		}
	}
	if err == nil && state != kindConfirmed {
		err = p.Contradicts("web_code", operator, "%s has given no terminal their power like that", operator)
	}
	return err
}

// terminalPage is what the page shows.
type terminalPage struct {
	question

	Asked    bool   // the address carries a question
	Question string // as the form sends it back
}

// loadTerminal shows a question. It changes nothing: a link that somebody follows confirms nothing.
func (w *Web) loadTerminal(r *Request) (any, error) {
	text := r.Query("ask")
	if text == "" {
		return terminalPage{}, nil
	}
	q, err := w.readQuestion(text)
	return terminalPage{q, true, text}, err
}

// answerTerminal answers a question, once.
func (w *Web) answerTerminal(r *Request) (Result, error) {
	choice, err := r.Choice()
	if err != nil {
		return Result{}, err
	}
	back := Result{To: address.Account.At()}
	q, err := w.readQuestion(r.Field("ask"))
	if err != nil {
		return back, err
	}
	kind, said := kindConfirmed, "The terminal has your power for a day. `signalbox login --cli --forget` there ends it."
	if choice == "refuse" {
		kind, said = kindDenied, "Refused: the terminal gets nothing."
	}
	err = w.ledger.Write(r.Context(), func(tx *ledger.Tx) error {
		state, _, err := answerOf(tx, q.Secret)
		if err != nil {
			return err
		}
		if state != "" {
			return fault.New(fault.Conflict, "This question was answered already. Run `signalbox login --cli` again.")
		}
		tx.Append(ledger.Event{
			Workspace: r.Who.Workspace, Kind: kind, Actor: r.Who.Actor(), Subject: r.Who.ID,
			Body: answered{q.Secret, q.Expires().UnixMicro(), q.Machine, q.User, q.Process, q.From},
		})
		return nil
	})
	back.Flash = said
	return back, err
}

// postLook answers POST /login/cli/token. The token is made when the command comes for it, in the transaction that
// uses the answer up.
func (w *Web) postLook(out http.ResponseWriter, r *http.Request) error {
	if err := w.take(r, "terminal answers", looksPerMinute); err != nil {
		return err
	}
	var look TerminalLook
	if err := wire.ReadJSON(out, r, maxAsk, &look); err != nil {
		return err
	}
	answer, err := w.collect(r.Context(), look)
	if err != nil {
		return err
	}
	out.Header().Set("Cache-Control", "no-store")
	return wire.Reply(out, http.StatusOK, answer)
}

// collect is the token for a question that was confirmed; empty if nobody has answered.
func (w *Web) collect(ctx context.Context, look TerminalLook) (out TerminalAnswer, err error) {
	q, err := w.readQuestion(look.Question)
	if err != nil {
		return out, err
	}
	if !hmac.Equal([]byte(hashOf(look.Secret)), []byte(q.Secret)) {
		return out, fault.New(fault.Unauthenticated, "This is not the secret of the question.")
	}
	// Looking writes nothing, and commands look often.
	var answers int
	if err := w.db.QueryRow(ctx, "SELECT count(*) FROM web_code WHERE hash IN ($1, $2, $3)",
		[]any{answeredYes + q.Secret, answeredNo + q.Secret, neverAgain + q.Secret}, &answers); err != nil || answers == 0 {
		return out, err
	}
	key := roster.NewKey(roster.OperatorKey)
	err = w.Roster.Write(ctx, func(tx *ledger.Tx) error {
		state, operator, err := answerOf(tx, q.Secret)
		if err != nil {
			return err
		}
		if state != answeredYes {
			return fault.New(fault.Forbidden, "%s",
				cmp.Or(map[string]string{answeredNo: "The person refused."}[state], "The token was taken already."))
		}
		who, err := w.Roster.IssueFor(tx, operator, &key, tx.Now().Add(terminalLife))
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindTaken, Actor: who.Identity().Actor(), Subject: who.ID,
			Body: taken{q.Secret, key.Key.ID},
		})
		out = TerminalAnswer{key.Secret, who.Name, tx.Now().Add(terminalLife).UTC()}
		return nil
	})
	return out, err
}
