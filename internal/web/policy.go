package web

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

func policyPages() []Page {
	return []Page{
		{Path: "/ui/policy", Template: "policy", Title: "Policy", Live: []string{"policy"}, Load: (*Web).loadPolicy},
		{Path: "/ui/policy/{number}", Template: "version", Title: "Version", Section: "/ui/policy", Load: (*Web).loadVersion},
	}
}

// policyActions ask for a viewer, since each of the calls behind them has a role of its own.
func policyActions() []Action {
	return []Action{{Path: "/ui/policy", Role: roster.Viewer, Do: (*Web).tryPolicy}}
}

// policyView is the editor, and what was found out about the text in it.
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

const versionRows = "30"

func (w *Web) loadPolicy(r *Request) (any, error) { return w.policyView(r) }

func (w *Web) policyView(r *Request) (*policyView, error) {
	if err := wire.Unconfined(r.Context(), "The policy is that of"); err != nil {
		return nil, err
	}
	v := &policyView{InForce: w.Book.InForce(), Days: "7"}
	newest, source, err := w.Book.Version(r.Context(), 0)
	if err != nil {
		return nil, err
	}
	v.Version, v.Source = newest, string(source)
	var page rulebook.VersionPage
	if err := w.ask(r, w.Book.Routes(), call{method: "GET", route: "/ops/policy/versions", query: map[string]string{"limit": versionRows}}, &page); err != nil {
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

// tryPolicy checks, replays or applies what is in the editor. What is wrong with it is
// said beside the text, which stays.
func (w *Web) tryPolicy(r *Request) (Result, error) {
	v, err := w.policyView(r)
	if err != nil {
		return Result{}, err
	}
	newest := v.Version.Number
	// Browsers send every line with a carriage return.
	v.Source, v.Days = strings.ReplaceAll(r.PostFormValue("source"), "\r\n", "\n"), r.Field("days")
	page := Result{Template: "policy", Title: "Policy", Section: "/ui/policy", Data: v}
	source := []byte(v.Source)
	switch r.Field("do") {
	case "check":
		err = w.checkPolicy(r, v, source)
	case "replay":
		if err = w.checkPolicy(r, v, source); err == nil {
			v.Report, err = w.replay(r, source, v.Days)
		}
	case "trial":
		v.Trial, err = w.replay(r, inEarnest(source), v.Days)
	case "apply":
		number := r.Field("seen")
		if number == "" {
			number = strconv.FormatInt(newest, 10)
		}
		var done rulebook.Applied
		err = w.ask(r, w.Book.Routes(), call{method: "PUT", route: "/ops/policy", body: source, header: map[string]string{"If-Match": number}}, &done)
		if err == nil {
			return Result{To: "/ui/policy", Flash: applied(done)}, nil
		}
	default:
		err = fault.New(fault.InvalidRequest, "The form should say check, replay, trial or apply.").About("do")
	}
	if err != nil {
		v.Problem = messageOf(err)
	}
	return page, nil
}

func applied(a rulebook.Applied) string {
	if !a.Changed {
		return fmt.Sprintf("Version %d says the same already; nothing was changed.", a.Version.Number)
	}
	return fmt.Sprintf("Version %d is in force.", a.Version.Number)
}

func (w *Web) checkPolicy(r *Request, v *policyView, source []byte) error {
	var checked rulebook.Checked
	err := w.ask(r, w.Book.Routes(), call{method: "POST", route: "/ops/policy/check", body: source}, &checked)
	v.Checked, v.Warnings = err == nil, checked.Warnings
	if err == nil {
		v.Rules = checked.Rules
	}
	return err
}

// replay decides the last days again.
func (w *Web) replay(r *Request, source []byte, days string) (*rulebook.Report, error) {
	n, err := strconv.Atoi(days)
	if err != nil || n < 1 || n > 365 {
		return nil, fault.New(fault.InvalidPayload, "Choose 1 to 365 days.").About("days")
	}
	var lines []byte
	err = w.ask(r, w.Book.Routes(), call{method: "POST", route: "/ops/policy/replay", query: map[string]string{"since": days + "d"}, body: source}, &lines)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(lines) {
		var one rulebook.ReplayLine
		if err := wire.Unmarshal(line, &one); err != nil {
			return nil, err
		}
		if one.Error != nil {
			return nil, &fault.Error{Code: one.Error.Error, Message: one.Error.Message}
		}
		if one.Report != nil {
			return one.Report, nil
		}
	}
	return nil, fault.New(fault.Internal, "The dry run ended without a report.")
}

var shadowMode = regexp.MustCompile(`(\bmode:\s*["']?)shadow\b`)

// inEarnest is a policy with the rules on trial in force.
func inEarnest(source []byte) []byte { return shadowMode.ReplaceAll(source, []byte("${1}enforce")) }

// version is one version, and what it changed.
type version struct {
	rulebook.Version
	Source  string
	Before  int64 // the version it is compared with, 0 for none
	Diff    difference
	Current bool
}

// PageTitle is the number of the version.
func (v *version) PageTitle() string { return fmt.Sprintf("Policy, version %d", v.Number) }

func (w *Web) loadVersion(r *Request) (any, error) {
	if err := wire.Unconfined(r.Context(), "The policy is that of"); err != nil {
		return nil, err
	}
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
