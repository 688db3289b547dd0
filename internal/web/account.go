package web

import (
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/roster"
)

// account is what people see of themselves: whether they have a password, and whom they let vote
// for them.
type account struct {
	HasPassword bool
	Delegations []gate.Delegation
	Operators   []roster.Person // to whom votes can be delegated
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
	page.Operators, err = w.operators(r)
	return page, err
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
	w.setCookie(r.w, sessionCookie, token, int(sessionLife.Seconds()))
	return Result{Flash: "Your password is set, and your other sessions have ended."}, nil
}
