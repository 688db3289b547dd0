package rulebook

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/policy/document"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// maxSource is the largest policy that is taken.
const maxSource = 4 << 20

// VersionHeader carries the number of the version that is answered with.
const VersionHeader = "Signalbox-Policy-Version"

// The answers of the operators' API.
type (
	// Applied says what became of a policy that was put.
	Applied struct {
		Layer
		Version  Version  `json:"version"`
		Changed  bool     `json:"changed"`  // false: it was the newest already
		InForce  bool     `json:"in_force"` // false: what its rules count is still being read, and the one before decides
		Warnings []string `json:"warnings"`
	}
	// VersionPage is a page of versions, the newest first.
	VersionPage struct {
		Versions []Version `json:"versions"`
		Next     string    `json:"next"`
	}
	// FullVersion is a version with what it says.
	FullVersion struct {
		Version  Version                        `json:"version"`
		Source   string                         `json:"source"`
		Rules    []policy.RuleSummary           `json:"rules"`
		Defaults map[policy.Point]policy.Action `json:"defaults"`
	}
	// Checked says what a policy that is right amounts to.
	Checked struct {
		Rules    []policy.RuleSummary `json:"rules"`
		Warnings []string             `json:"warnings"`
	}
	// LayerList lists the layers that there are.
	LayerList struct {
		Layers []AppliedLayer `json:"layers"`
	}
	// ReplayLine is a line of the answer to a replay: one of its members.
	ReplayLine struct {
		Progress *ReplayProgress `json:"progress,omitempty"`
		Report   *Report         `json:"report,omitempty"`
		Error    *wire.ErrorBody `json:"error,omitempty"`
	}
	// ReplayProgress is how many entries of how many have been read.
	ReplayProgress struct {
		Done int64 `json:"done"`
		Of   int64 `json:"of"`
	}
)

// Routes are the policy's part of the operators' API.
func (b *Book) Routes() []wire.Route {
	const yaml = "application/yaml"
	ofLayer := []wire.Param{
		{Name: "workspace", Meaning: "the layer of this workspace; the server's when absent, or that of the only workspace " +
			"that the token is for"},
		{Name: "user", Meaning: "the layer of this user of the workspace, by name or id"},
	}
	return []wire.Route{
		{
			Method: "GET", Path: "/ops/policy",
			Summary: "The policy in force, as YAML; its number is in the header " + VersionHeader, Auth: wire.Viewer,
			Query: ofLayer, Media: yaml, Handle: b.getPolicy,
		},
		{
			Method: "PUT", Path: "/ops/policy",
			Summary: "Apply a policy (YAML) as a whole; one that is wrong changes nothing. With " +
				"If-Match: NUMBER only if that version is in force", Auth: wire.Admin, Query: ofLayer, RequestMedia: yaml,
			Answer: Applied{}, Handle: b.putPolicy,
		},
		{
			Method: "POST", Path: "/ops/policy/check", Summary: "Check a policy (YAML) and change nothing", Auth: wire.Viewer,
			Query: ofLayer, RequestMedia: yaml, Answer: Checked{}, Reads: true, Handle: b.postCheck,
		},
		{
			Method: "POST", Path: "/ops/policy/replay", Summary: "Decide again what was decided, with another policy (YAML); " +
				"lines of JSON with progress, and the report last", Auth: wire.Operator,
			Query: append([]wire.Param{{
				Name:    "since",
				Meaning: "how far back, such as 168h or 7d, or a time such as 2026-05-01T12:00:00Z; 168h when absent",
			}}, ofLayer...),
			RequestMedia: yaml, Media: "application/x-ndjson", Reads: true, Handle: b.postReplay,
		},
		{
			Method: "GET", Path: "/ops/policy/explain/{seq}",
			Summary: "Why a decision in the ledger came out as it did: the rules that were tried, and the facts they saw",
			Auth:    wire.Viewer, Answer: Explained{}, Handle: wire.Answer(http.StatusOK, b.getExplanation),
		},
		{
			Method: "GET", Path: "/ops/policy/versions", Summary: "List the versions of the policy, the newest first",
			Auth: wire.Viewer, Query: slices.Concat(wire.PageParams, ofLayer), Answer: VersionPage{},
			Handle: wire.List(b.getVersions),
		},
		{
			Method: "GET", Path: "/ops/policy/versions/{number}", Summary: "Show a version with its rules", Auth: wire.Viewer,
			Query: ofLayer, Answer: FullVersion{}, Handle: wire.Answer(http.StatusOK, b.getVersion),
		},
		{
			Method: "GET", Path: "/ops/policy/layers",
			Summary: "List the layers that are in force: the server's, those of workspaces and of users", Auth: wire.Viewer,
			Answer: LayerList{}, Handle: wire.Answer(http.StatusOK, b.getLayers),
		},
	}
}

// asked is the layer that a call is about.
func (b *Book) asked(r *http.Request) (Layer, error) {
	q := r.URL.Query()
	return b.Layer(r.Context(), q.Get("workspace"), q.Get("user"))
}

// sent is the policy that a call brings, and the layer that it is for.
func (b *Book) sent(w http.ResponseWriter, r *http.Request) (of Layer, source []byte, err error) {
	if of, err = b.asked(r); err != nil {
		return of, nil, err
	}
	source, err = wire.Read(w, r, maxSource)
	return of, source, err
}

func (b *Book) getLayers(r *http.Request) (LayerList, error) {
	all, err := b.Layers(r.Context())
	return LayerList{all}, err
}

// getPolicy answers with the YAML as it was applied, comments included, and its number as the
// ETag for a later If-Match.
func (b *Book) getPolicy(w http.ResponseWriter, r *http.Request) error {
	of, err := b.asked(r)
	if err != nil {
		return err
	}
	v, source, err := b.Version(r.Context(), of, 0)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, v.Number))
	w.Header().Set(VersionHeader, strconv.FormatInt(v.Number, 10))
	_, _ = w.Write(source)
	return nil
}

// putPolicy applies what was sent. If-Match makes it a change of the version that the caller has
// seen, so that two people do not overwrite each other.
func (b *Book) putPolicy(w http.ResponseWriter, r *http.Request) error {
	of, source, err := b.sent(w, r)
	if err != nil {
		return err
	}
	var expect int64
	if match := r.Header.Get("If-Match"); match != "" {
		if expect, err = strconv.ParseInt(strings.Trim(match, `"`), 10, 64); err != nil || expect < 1 {
			return fault.New(fault.InvalidRequest,
				"If-Match should be the number of the version you have seen, such as \"3\", and is %.40q.", match)
		}
	}
	done, err := b.Put(r.Context(), roster.From(r.Context()), of, source, expect)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, done)
}

// postCheck answers as apply would, without changing anything; also a viewer may check.
func (b *Book) postCheck(w http.ResponseWriter, r *http.Request) error {
	of, source, err := b.sent(w, r)
	if err != nil {
		return err
	}
	checked, err := b.Check(r.Context(), of, source)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, checked)
}

func (b *Book) getExplanation(r *http.Request) (Explained, error) {
	seq, err := wire.PathNumber(r, "seq")
	if err != nil {
		return Explained{}, err
	}
	return b.Explain(r.Context(), seq)
}

func (b *Book) getVersions(r *http.Request, p wire.Paging) (VersionPage, error) {
	of, err := b.asked(r)
	if err != nil {
		return VersionPage{}, err
	}
	return b.ListVersions(r.Context(), of, p.Cursor, p.Limit)
}

func (b *Book) getVersion(r *http.Request) (FullVersion, error) {
	number, err := wire.PathNumber(r, "number")
	if err != nil {
		return FullVersion{}, err
	}
	of, err := b.asked(r)
	if err != nil {
		return FullVersion{}, err
	}
	return b.FullVersion(r.Context(), of, number)
}

// postReplay answers with a line of JSON for each progress report and for the result. An
// error after the first line is a line as well, since the status has been sent.
func (b *Book) postReplay(w http.ResponseWriter, r *http.Request) error {
	since, err := b.since(r.URL.Query().Get("since"))
	if err != nil {
		return err
	}
	of, err := b.asked(r)
	if err != nil {
		return err
	}
	source, err := wire.Read(w, r, maxSource)
	if err != nil {
		return err
	}
	trial, err := b.Try(r.Context(), of, source, since)
	if err != nil {
		return err
	}
	out := wire.Lines(w)
	send := func(line ReplayLine) {
		data, _ := wire.Marshal(line)
		_ = out.Send("", "", data) // a client that has gone ends the request's context
	}
	last := time.Now()
	report, err := trial.Run(r.Context(), func(done, of int64) {
		if time.Since(last) > progressEvery {
			last = time.Now()
			send(ReplayLine{Progress: &ReplayProgress{done, of}})
		}
	})
	switch {
	case err == nil:
		send(ReplayLine{Report: &report})
	case r.Context().Err() != nil: // the client has gone
	default:
		e := fault.From(err)
		if e.Code != fault.Stopping {
			b.log.Error("replay failed", "error", e.Error())
		}
		send(ReplayLine{Error: &wire.ErrorBody{Error: e.Code, Message: e.Message}})
	}
	return nil //nolint:nilerr // the error is the last line of the answer
}

// progressEvery is the least time between two progress lines.
const progressEvery = 100 * time.Millisecond

// since reads a length of time or a moment.
func (b *Book) since(text string) (time.Time, error) {
	if text == "" {
		text = "168h"
	}
	if d, ok := document.ParseDuration(text); ok {
		return b.now().Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fault.New(fault.InvalidRequest,
		"since should be a length of time such as 168h or 7d, or a time such as 2026-05-01T12:00:00Z, and is %.40q.",
		text).About("since")
}
