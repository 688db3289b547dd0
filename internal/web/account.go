package web

import (
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/passkey"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// account is what people see of themselves: whether they have a password, and whom they let vote
// for them.
type account struct {
	HasPassword bool
	Delegations []gate.Delegation
	Operators   []roster.Person // to whom votes can be delegated
	Passkeys    []passkey.Key   // for an admin also those of others
	NoPasskeys  string          // why browsers have none at this address
}

// loadAccount reads what people see of themselves.
func (w *Web) loadAccount(r *Request) (any, error) {
	var page account
	_, kept, err := w.passwordOf(r.Context(), r.Who.Name)
	if err != nil {
		return nil, err
	}
	page.HasPassword = kept != noPassword
	if page.Delegations, err = w.Gates.Delegations(r.Context(), r.Who.Name, w.Now()); err != nil {
		return nil, err
	}
	if page.Passkeys, err = w.Passkeys.List(r.Context(), r.Who); err != nil {
		return nil, err
	}
	page.NoPasskeys = w.Passkeys.Problem()
	page.Operators, err = w.operators(r)
	return page, err
}

// signing is what the script has a passkey do before it sends a form; none of it if nothing.
type signing struct {
	Create *passkey.Creation `json:"create,omitempty"`
	Sign   *passkey.Request  `json:"sign,omitempty"`
	Done   bool              `json:"done,omitempty"` // nothing was to be signed, and it was done
}

// signedForm is the signature that a form carries, nil for none.
func signedForm(r *Request) (*passkey.Assertion, error) {
	text := r.Field("assertion")
	if text == "" {
		return nil, nil //nolint:nilnil // most forms have none
	}
	var a passkey.Assertion
	return &a, wire.Unmarshal([]byte(text), &a)
}

// changePasskeys enrols a passkey, or removes one. The script sends the form again and again, each time with
// what the answer before asked for: a new passkey, then a signature unless it is the first one.
func (w *Web) changePasskeys(r *Request) (Result, error) {
	signed, err := signedForm(r)
	if err != nil {
		return Result{}, err
	}
	var ask *passkey.Request
	flash := "The passkey is removed."
	switch made := r.Field("made"); {
	case r.Field("do") == "remove":
		ask, err = w.Passkeys.Remove(r.Context(), r.Who, r.Field("credential"), signed)
	case made == "":
		create, err := w.Passkeys.Create(r.Context(), r.Who)
		return Result{JSON: signing{Create: create}}, err
	default:
		var created passkey.Created
		if err := wire.Unmarshal([]byte(made), &created); err != nil {
			return Result{}, err
		}
		ask, err = w.Passkeys.Add(r.Context(), r.Who, r.Field("label"), created, signed)
		flash = "The passkey is enrolled. From now on your votes on gates of high risk are signed with it."
	}
	if err == nil && ask != nil {
		return Result{JSON: signing{Sign: ask}}, nil
	}
	if r.Field("ask") != "" && err == nil {
		return Result{Flash: flash, JSON: signing{Done: true}}, nil
	}
	return Result{Flash: flash}, err
}

// changePassword sets the caller's password. That ends all of their sessions, so a new one is
// opened for this browser.
func (w *Web) changePassword(r *Request) (Result, error) {
	fresh := r.PostFormValue("password")
	// Not Field: spaces around a password are part of it.
	if fresh == "" || fresh != r.PostFormValue("again") {
		return Result{}, fault.New(fault.InvalidPayload, "The two passwords differ. Write the same one twice.").About("again")
	}
	if err := w.SetPassword(r.Context(), r.Who, r.Who.Name, fresh); err != nil {
		return Result{}, err
	}
	token, err := w.signIn(r.Context(), r.Who, "password")
	if err != nil {
		return Result{}, err
	}
	w.setCookie(r.w, r.Request, sessionCookie, token, int(sessionLife.Seconds()))
	return Result{Flash: "Your password is set, and your other sessions have ended."}, nil
}
