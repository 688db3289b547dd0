package web

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
)

// policyActions is one form with four buttons, each with the role that it takes.
func policyActions() []Action {
	return []Action{{
		Path: string(address.Policy), Role: roster.Viewer, Do: (*Web).tryPolicy,
		Choices: map[string]roster.Role{
			"check": roster.Viewer, "replay": roster.Operator, "trial": roster.Operator, "apply": roster.Admin,
		},
	}}
}

// policyView is the editor, and what was found out about the text in it. Version is the newest one
// that was applied, InForce the number that this node decides by.
type policyView struct {
	Source   string
	Version  rulebook.Version // the newest
	InForce  int64
	Rules    []policy.RuleSummary
	OnTrial  int
	Versions []rulebook.Version
	Days     string

	Problem  string   // why the text is no policy
	Checked  bool     // it is one
	Warnings []string // what is odd about it
	Report   *rulebook.Report
	Trial    *rulebook.Report // of the rules on trial, as if they were in force
}

// DayChoices are how far back a dry run looks.
func (policyView) DayChoices() []string { return []string{"1", "7", "30"} }

// versionRows is how many versions are listed.
const versionRows = 30

// loadPolicy shows the newest version.
func (w *Web) loadPolicy(r *Request) (any, error) { return w.policyView(r) }

// policyView reads the newest version into the editor. It may be newer than the one in force on
// this node, which follows within milliseconds.
func (w *Web) policyView(r *Request) (*policyView, error) {
	v := &policyView{InForce: w.Book.InForce(), Days: "7"}
	// Version 0 stands for the newest.
	newest, source, err := w.Book.Version(r.Context(), 0)
	if err != nil {
		return nil, err
	}
	v.Version, v.Source = newest, string(source)
	page, err := w.Book.ListVersions(r.Context(), "", versionRows)
	if err != nil {
		return nil, err
	}
	v.Versions = page.Versions
	if p, err := policy.Parse(source); err == nil {
		v.Rules = p.Rules()
	}
	for _, rule := range v.Rules {
		if rule.Mode == "shadow" {
			v.OnTrial++
		}
	}
	return v, nil
}

// tryPolicy checks, replays or applies the text in the editor. Problems are shown beside the text,
// which stays in the editor whatever happens.
func (w *Web) tryPolicy(r *Request) (Result, error) {
	v, err := w.policyView(r)
	if err != nil {
		return Result{}, err
	}
	newest := v.Version.Number
	// Browsers send every line with a carriage return.
	// Without the carriage returns that browsers add, an unchanged text is recognised as unchanged.
	v.Source, v.Days = strings.ReplaceAll(r.PostFormValue("source"), "\r\n", "\n"), r.Field("days")
	page := Result{Template: "policy", Title: "Policy", Data: v}
	source := []byte(v.Source)
	choice, err := r.Choice()
	switch {
	case err != nil:
	case choice == "check":
		err = w.checkPolicy(r, v, source)
	// The check comes first: it explains a mistake better than a replay that cannot start.
	case choice == "replay":
		if err = w.checkPolicy(r, v, source); err == nil {
			v.Report, err = w.replay(r, source, v.Days)
		}
	case choice == "trial":
		v.Trial, err = w.replay(r, enforceShadowed(source), v.Days)
	case choice == "apply":
		var done rulebook.Applied
		if done, err = w.applyPolicy(r, source, newest); err == nil {
			return Result{To: address.Policy.At(), Flash: appliedText(done)}, nil
		}
	}
	if err != nil {
		v.Problem = w.explain("policy dry run failed", r.URL.Path, err).Message
	}
	return page, nil
}

// applyPolicy applies a text, on condition that the newest version is still the one that the
// editor began with. Otherwise it would undo somebody else's change.
func (w *Web) applyPolicy(r *Request, source []byte, newest int64) (rulebook.Applied, error) {
	// A form without the field is one that was written by hand; it means the newest.
	seen := newest
	if text := r.Field("seen"); text != "" {
		var err error
		if seen, err = strconv.ParseInt(text, 10, 64); err != nil || seen < 1 {
			return rulebook.Applied{},
				fault.New(fault.InvalidRequest, "The field seen should be a version number, such as 3, and is %.40q.",
					text).About("seen")
		}
	}
	return w.Book.Put(r.Context(), r.Who, source, seen)
}

// appliedText says what applying has done.
func appliedText(a rulebook.Applied) string {
	if !a.Changed {
		return fmt.Sprintf("Version %d says the same already; nothing was changed.", a.Version.Number)
	}
	return fmt.Sprintf("Version %d is in force.", a.Version.Number)
}

// checkPolicy checks the text, and shows its rules and warnings.
func (w *Web) checkPolicy(r *Request, v *policyView, source []byte) error {
	checked, err := w.Book.Check(r.Context(), source)
	if err != nil {
		return err
	}
	v.Checked, v.Warnings, v.Rules = true, checked.Warnings, checked.Rules
	return nil
}

// replay decides the decisions of the last days again, with another policy.
func (w *Web) replay(r *Request, source []byte, days string) (*rulebook.Report, error) {
	n, err := strconv.Atoi(days)
	if err != nil || n < 1 || n > 365 {
		return nil, fault.New(fault.InvalidPayload, "Choose 1 to 365 days.").About("days")
	}
	// It reads decisions back and decides them again; nothing is written.
	trial, err := w.Book.Try(r.Context(), source, w.Now().Add(-time.Duration(n)*24*time.Hour))
	if err != nil {
		return nil, err
	}
	report, err := trial.Run(r.Context(), func(int64, int64) {})
	if err != nil {
		return nil, err
	}
	return &report, nil
}

// shadowMode finds "mode: shadow" in a policy's text.
var shadowMode = regexp.MustCompile(`(\bmode:\s*["']?)shadow\b`)

// enforceShadowed is the policy with its shadow rules in force, to see what they would do.
func enforceShadowed(source []byte) []byte {
	return shadowMode.ReplaceAll(source, []byte("${1}enforce"))
}

// version is one version of the policy, and what it changed compared with the one before.
type version struct {
	rulebook.Version
	Source  string
	Before  int64 // the version it is compared with, 0 for none
	Diff    difference
	Current bool
}

// PageTitle is the number of the version.
func (v *version) PageTitle() string { return fmt.Sprintf("Policy, version %d", v.Number) }

// loadVersion reads a version and compares it with the one before.
func (w *Web) loadVersion(r *Request) (any, error) {
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err != nil || number < 1 {
		return nil, fault.New(fault.NotFound, "There is no version %.40q.", r.PathValue("number"))
	}
	found, source, err := w.Book.Version(r.Context(), number)
	if err != nil {
		return nil, err
	}
	v := &version{Version: found, Source: string(source), Current: number == w.Book.InForce()}
	if number > 1 {
		_, before, err := w.Book.Version(r.Context(), number-1)
		if err != nil {
			return nil, err
		}
		v.Before, v.Diff = number-1, compare(before, source)
	}
	return v, nil
}
