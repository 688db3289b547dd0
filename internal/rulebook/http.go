package rulebook

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/policy/document"
	"signalbox/internal/roster"
	"signalbox/internal/store"
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

// Routes are the policy's part of the operators' API. The policy is the whole
// server's, so none of it is for operators who are confined to a workspace.
func (b *Book) Routes() []wire.Route {
	const yaml = "application/yaml"
	return []wire.Route{
		{Method: "GET", Path: "/ops/policy", Summary: "The policy in force, as YAML; its number is in the header " + VersionHeader, Auth: wire.Viewer, Media: yaml, Handle: whole(b.getPolicy)},
		{Method: "PUT", Path: "/ops/policy", Summary: "Apply a policy (YAML) as a whole; one that is wrong changes nothing. With If-Match: NUMBER only if that version is in force", Auth: wire.Admin, RequestMedia: yaml, Answer: Applied{}, Handle: whole(b.putPolicy)},
		{Method: "POST", Path: "/ops/policy/check", Summary: "Check a policy (YAML) and change nothing", Auth: wire.Viewer, RequestMedia: yaml, Answer: Checked{}, Handle: whole(b.postCheck)},
		{Method: "POST", Path: "/ops/policy/replay", Summary: "Decide again what was decided, with another policy (YAML); lines of JSON with progress, and the report last", Auth: wire.Operator, Query: []wire.Param{{Name: "since", Meaning: "how far back, such as 168h or 7d, or a time such as 2026-05-01T12:00:00Z; 168h when absent"}}, RequestMedia: yaml, Media: "application/x-ndjson", Handle: whole(b.postReplay)},
		{Method: "GET", Path: "/ops/policy/versions", Summary: "List the versions of the policy, the newest first", Auth: wire.Viewer, Query: wire.PageParams, Answer: VersionPage{}, Handle: whole(b.getVersions)},
		{Method: "GET", Path: "/ops/policy/versions/{number}", Summary: "Show a version with its rules", Auth: wire.Viewer, Answer: FullVersion{}, Handle: whole(b.getVersion)},
	}
}

// whole refuses callers who may not see the whole server.
func whole(h wire.Handler) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := wire.Unconfined(r.Context(), "The policy is that of"); err != nil {
			return err
		}
		return h(w, r)
	}
}

func (b *Book) getPolicy(w http.ResponseWriter, r *http.Request) error {
	v, source, err := b.Version(r.Context(), 0)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, v.Number))
	w.Header().Set(VersionHeader, strconv.FormatInt(v.Number, 10))
	_, _ = w.Write(source)
	return nil
}

func (b *Book) putPolicy(w http.ResponseWriter, r *http.Request) error {
	source, p, err := b.readPolicy(w, r)
	if err != nil {
		return err
	}
	var expect int64
	if match := r.Header.Get("If-Match"); match != "" {
		if expect, err = strconv.ParseInt(strings.Trim(match, `"`), 10, 64); err != nil || expect < 1 {
			return fault.New(fault.InvalidRequest, "If-Match should be the number of the version you have seen, such as \"3\", and is %.40q.", match)
		}
	}
	warnings, err := b.Warnings(r.Context(), p)
	if err != nil {
		return err
	}
	v, changed, err := b.Apply(r.Context(), roster.From(r.Context()), source, expect)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, Applied{v, changed, b.InForce() >= v.Number, warnings})
}

func (b *Book) readPolicy(w http.ResponseWriter, r *http.Request) ([]byte, *policy.Policy, error) {
	source, err := wire.Read(w, r, maxSource)
	if err != nil {
		return nil, nil, err
	}
	p, err := b.parse(source)
	return source, p, err
}

func (b *Book) postCheck(w http.ResponseWriter, r *http.Request) error {
	_, p, err := b.readPolicy(w, r)
	if err != nil {
		return err
	}
	warnings, err := b.Warnings(r.Context(), p)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, Checked{p.Rules(), warnings})
}

func (b *Book) getVersions(w http.ResponseWriter, r *http.Request) error {
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	cursor, err := wire.ReadCursor(r, 1)
	if err != nil {
		return err
	}
	var before int64
	if cursor[0] != "" {
		if before, err = strconv.ParseInt(cursor[0], 10, 64); err != nil {
			return wire.BadCursor()
		}
	}
	list, err := b.Versions(r.Context(), before, limit)
	if err != nil {
		return err
	}
	page := VersionPage{Versions: list}
	if len(list) == limit {
		page.Next = wire.Cursor(strconv.FormatInt(list[limit-1].Number, 10))
	}
	return wire.Reply(w, http.StatusOK, page)
}

func (b *Book) getVersion(w http.ResponseWriter, r *http.Request) error {
	number, err := wire.PathNumber(r, "number")
	if err != nil {
		return err
	}
	v, source, err := b.Version(r.Context(), number)
	if err != nil {
		return err
	}
	full := FullVersion{Version: v, Source: string(source)}
	if p, err := b.parse(source); err == nil { // else another Signalbox's language
		full.Rules, full.Defaults = p.Rules(), p.Defaults()
	}
	return wire.Reply(w, http.StatusOK, full)
}

// postReplay answers with lines while it goes on. What goes wrong after the first
// line is a line too.
func (b *Book) postReplay(w http.ResponseWriter, r *http.Request) error {
	since, err := b.since(r.URL.Query().Get("since"))
	if err != nil {
		return err
	}
	_, p, err := b.readPolicy(w, r)
	if err != nil {
		return err
	}
	select {
	case b.replays <- struct{}{}:
		defer func() { <-b.replays }()
	default:
		return fault.New(fault.Overloaded, "Another replay is under way, and one takes every processor. Try again when it has ended.")
	}
	out := wire.Lines(w)
	send := func(line ReplayLine) {
		data, _ := wire.Marshal(line)
		_ = out.Send("", "", data) // a client that has gone ends the request's context
	}
	ctx, end := wire.UntilStop(r.Context())
	defer end()
	last := time.Now()
	report, err := b.Replay(ctx, p, since, func(done, of int64) {
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
		e := fault.From(cmp.Or(context.Cause(ctx), store.Explain(err)))
		if e.Code != fault.Stopping {
			b.log.Error("a replay failed", "error", e.Error())
		}
		send(ReplayLine{Error: &wire.ErrorBody{Error: e.Code, Message: e.Message}})
	}
	return nil
}

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
	return time.Time{}, fault.New(fault.InvalidRequest, "since should be a length of time such as 168h or 7d, or a time such as 2026-05-01T12:00:00Z, and is %.40q.", text).About("since")
}
