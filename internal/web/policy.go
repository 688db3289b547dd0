package web

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// policyView is the editor, and what was found out about the text in it. Version is the newest one
// that was applied, InForce the number that this node decides by.
type policyView struct {
	Layer    rulebook.Layer
	User     string // the name of the user whose layer it is
	Layers   []rulebook.AppliedLayer
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

// At is the address of a page about the policy, for the layer that is shown.
func (v *policyView) At() string { return layerAt(address.Policy.At(), v.Layer.Workspace, v.User) }

// VersionAt is the address of a version of the layer.
func (v *policyView) VersionAt(number int64) string {
	return layerAt(address.Version.At(strconv.FormatInt(number, 10)), v.Layer.Workspace, v.User)
}

// LayerAt is the address of the page of a layer.
func (*policyView) LayerAt(l rulebook.AppliedLayer) string {
	return layerAt(address.Policy.At(), l.Workspace, l.Name)
}

// Scope says in words what the layer is about.
func (v *policyView) Scope() string { return scopeText(v.Layer.Workspace, v.User) }

// ScopeOf is Scope for a layer in the list.
func (*policyView) ScopeOf(l rulebook.AppliedLayer) string { return scopeText(l.Workspace, l.Name) }

func scopeText(workspace, user string) string {
	switch {
	case user != "":
		return "User " + user + " of workspace " + workspace
	case workspace != "":
		return "Workspace " + workspace
	}
	return "The server"
}

// layerAt is an address with the layer that it is about.
func layerAt(path, workspace, user string) string {
	q := url.Values{}
	if workspace != "" {
		q.Set("workspace", workspace)
	}
	if user != "" {
		q.Set("user", user)
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
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
	v := &policyView{Days: "7", User: r.URL.Query().Get("user")}
	var err error
	if v.Layer, err = w.layer(r); err != nil {
		return nil, err
	}
	v.InForce = w.Book.InForceOf(v.Layer)
	if v.Layers, err = w.Book.Layers(r.Context()); err != nil {
		return nil, err
	}
	// Version 0 stands for the newest. A layer that has none begins with an empty policy.
	newest, source, err := w.Book.Version(r.Context(), v.Layer, 0)
	if v.Layer != (rulebook.Layer{}) && fault.Is(err, fault.NotFound) {
		source, err = []byte(emptyLayer), nil
	}
	if err != nil {
		return nil, err
	}
	v.Version, v.Source = newest, string(source)
	page, err := w.Book.ListVersions(r.Context(), v.Layer, "", versionRows)
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

// emptyLayer is what the editor of a layer begins with.
const emptyLayer = "version: 1\nrules: []\n"

// layer is the one that the address names.
func (w *Web) layer(r *Request) (rulebook.Layer, error) {
	q := r.URL.Query()
	return w.Book.Layer(r.Context(), q.Get("workspace"), q.Get("user"))
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
			v.Report, err = w.replay(r, v.Layer, source, v.Days)
		}
	case choice == "trial":
		v.Trial, err = w.replay(r, v.Layer, enforceShadowed(source), v.Days)
	case choice == "apply":
		var done rulebook.Applied
		if done, err = w.applyPolicy(r, v.Layer, source, newest); err == nil {
			return Result{To: v.At(), Flash: appliedText(done)}, nil
		}
	}
	if err != nil {
		v.Problem = w.explain("policy dry run failed", r.URL.Path, err).Message
	}
	return page, nil
}

// applyPolicy applies a text, on condition that the newest version is still the one that the
// editor began with. Otherwise it would undo somebody else's change.
func (w *Web) applyPolicy(r *Request, of rulebook.Layer, source []byte, newest int64) (rulebook.Applied, error) {
	// A form without the field is one that was written by hand; it means the newest.
	seen := newest
	if text := r.Field("seen"); text != "" {
		var err error
		if seen, err = strconv.ParseInt(text, 10, 64); err != nil || seen < 0 {
			return rulebook.Applied{},
				fault.New(fault.InvalidRequest, "The field seen should be a version number, such as 3, and is %.40q.",
					text).About("seen")
		}
	}
	if seen == 0 && newest > 0 { // to Put it means any version
		return rulebook.Applied{}, fault.New(fault.Conflict,
			"Version %d was applied meanwhile. Look at it, and put yours in force after that.", newest)
	}
	return w.Book.Put(r.Context(), r.Who, of, source, seen)
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
	checked, err := w.Book.Check(r.Context(), v.Layer, source)
	if err != nil {
		return err
	}
	v.Checked, v.Warnings, v.Rules = true, checked.Warnings, checked.Rules
	return nil
}

// replay decides the decisions of the last days again, with another policy.
func (w *Web) replay(r *Request, of rulebook.Layer, source []byte, days string) (*rulebook.Report, error) {
	n, err := strconv.Atoi(days)
	if err != nil || n < 1 || n > 365 {
		return nil, fault.New(fault.InvalidPayload, "Choose 1 to 365 days.").About("days")
	}
	// It reads decisions back and decides them again; nothing is written.
	trial, err := w.Book.Try(r.Context(), of, source, w.Now().Add(-time.Duration(n)*24*time.Hour))
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
	Scope    string // what the layer is about, in words
	PolicyAt string // the page of the layer
	Flags    string // of the command that shows the version
	Source   string
	Before   int64 // the version it is compared with, 0 for none
	Diff     difference
	Current  bool
}

// PageTitle is the number of the version.
func (v *version) PageTitle() string { return fmt.Sprintf("Policy, version %d", v.Number) }

// loadVersion reads a version and compares it with the one before.
func (w *Web) loadVersion(r *Request) (any, error) {
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err != nil || number < 1 {
		return nil, fault.New(fault.NotFound, "There is no version %.40q.", r.PathValue("number"))
	}
	of, err := w.layer(r)
	if err != nil {
		return nil, err
	}
	found, source, err := w.Book.Version(r.Context(), of, number)
	if err != nil {
		return nil, err
	}
	user := r.URL.Query().Get("user")
	v := &version{
		Version: found, Scope: scopeText(of.Workspace, user), Source: string(source), Current: number == w.Book.InForceOf(of),
		PolicyAt: layerAt(address.Policy.At(), of.Workspace, user),
	}
	if of.Workspace != "" {
		v.Flags = " --workspace " + of.Workspace
	}
	if user != "" {
		v.Flags += " --user " + user
	}
	if number > 1 {
		_, before, err := w.Book.Version(r.Context(), of, number-1)
		if err != nil {
			return nil, err
		}
		v.Before, v.Diff = number-1, compare(before, source)
	}
	return v, nil
}
