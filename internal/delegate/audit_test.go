package delegate_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// audit goes through entries as VerifyExport does.
func audit(entries []ledger.Entry) (a *handoff.Audit, err error) {
	a = handoff.NewAudit()
	for i := range entries {
		if err := a.Entry(&entries[i]); err != nil {
			return a, err
		}
	}
	return a, nil
}

// forge is a copy of an entry with another body, as somebody who has the server's key and writes what they like would
// append it.
func forge(t *testing.T, e ledger.Entry, change func(body map[string]any)) ledger.Entry {
	t.Helper()
	body := map[string]any{}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		t.Fatal(err)
	}
	change(body)
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	e.Body = text
	return e
}

// put changes members of a body, each named by the path to it.
func put(t *testing.T, e ledger.Entry, members ...any) ledger.Entry {
	t.Helper()
	return forge(t, e, func(body map[string]any) {
		for i := 0; i < len(members); i += 2 {
			at, path := body, strings.Split(members[i].(string), ".")
			for _, name := range path[:len(path)-1] {
				at = at[name].(map[string]any)
			}
			if name := path[len(path)-1]; members[i+1] == nil {
				delete(at, name)
			} else {
				at[name] = members[i+1]
			}
		}
	})
}

// chainOfTwo is a chain with decisions under it, and the entries that say so.
func chainOfTwo(n *node) (first, second handoff.Handoff) {
	first, token := n.give("lead", "", handoff.Opening{
		To: "helper", Scopes: []string{"mail.*"}, Tools: []string{"read", "send"}, Budget: policy.Budget{Calls: 9}, Seconds: 3600,
	})
	second, below := n.give("helper", token, handoff.Opening{
		To: "deep", Scopes: []string{"mail.read"}, Budget: policy.Budget{Calls: 5}, Bound: true,
	})
	n.want("default", "helper", call{tool: "send", claim: policy.Claim{Token: token}})
	n.want("handoff", "other", call{tool: "read", claim: policy.Claim{Token: below}})
	n.want("unverified", "other", call{tool: "read", claim: policy.Claim{Hops: true}})
	n.want("default", "deep", call{tool: "read", session: "one", claim: policy.Claim{Token: below}})
	return first, second
}

func TestAnExportShowsThatNothingWasWidened(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		n := start(t, address, ledgertest.Dir(dir))
		first, _ := chainOfTwo(n)
		verify := func() (*handoff.Audit, error) {
			var file bytes.Buffer
			n.Must(n.Ledger.Export(t.Context(), &file))
			key := testbed.Read(t, filepath.Join(dir, ledger.PublicKeyFile))
			a := handoff.NewAudit()
			_, err := ledger.VerifyExport(&file, string(key), nil, ledger.Watch{Entry: a.Entry})
			return a, err
		}
		if a, err := verify(); err != nil || a.Handoffs != 2 || a.Decisions != 2 || a.Erased != 0 {
			t.Fatalf("%+v: %v", a, err)
		}
		made := n.Newest("action.decided")
		_, err := n.handoffs.End(t.Context(), admin, first.ID, "enough")
		n.Must(err)
		if _, err := verify(); err != nil {
			t.Fatal(err)
		}
		// Signed and hashed as it should be, and still not true: the handoff above had ended.
		n.Append(ledger.Event{Workspace: made.Workspace, Kind: made.Kind, Actor: made.Actor, Body: json.RawMessage(made.Body)})
		if _, err := verify(); err == nil || !strings.Contains(err.Error(), strconv.FormatInt(n.Head(), 10)) {
			t.Errorf("a handoff was used after its end: %v", err)
		}
	})
}

func TestAForgedEntryDoesNotFitToTheHandoffsBeforeIt(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	first, second := chainOfTwo(n)
	entries := n.Entries()
	next := func(e ledger.Entry) ledger.Entry { e.Seq = entries[len(entries)-1].Seq + 1; return e }
	made, taken := next(n.Newest("action.decided")), next(n.Newest(handoff.Taken))
	child := next(n.Newest(handoff.Opened)) // of the second, under the first
	child.Subject = "handoff_01"
	ended := ledger.Entry{Kind: handoff.Ended, Subject: first.ID, At: made.At, Body: []byte(`{"reason":"enough"}`)}
	late := func(e ledger.Entry) ledger.Entry { e.At = first.EndsAt.Add(2 * time.Minute); return e }
	elsewhere := func(e ledger.Entry) ledger.Entry { e.Workspace = "other"; return e }
	id := func(name string) string { return n.who[name].ID }
	for what, forged := range map[string][]ledger.Entry{
		"a scope":                    {put(t, child, "scopes", []string{"mail.read", "money.pay"})},
		"every scope":                {put(t, child, "scopes", nil)},
		"a tool":                     {put(t, child, "tools", []string{"deploy"})},
		"every tool":                 {put(t, child, "tools", nil)},
		"more calls":                 {put(t, child, "budget.calls", 10)},
		"a later end":                {put(t, child, "ends_at", first.EndsAt.Add(time.Second).UnixMicro())},
		"another user":               {put(t, child, "user", "usr_bob")},
		"nobody":                     {put(t, child, "user", nil)},
		"a depth":                    {put(t, child, "depth", 1)},
		"no depth at the first":      {put(t, child, "parent", nil)},
		"another sender":             {put(t, child, "from", id("other"))},
		"a parent that is not there": {put(t, child, "parent", "handoff_02")},
		"another workspace":          {elsewhere(child)},
		"a parent that has ended":    {ended, child},
		"a parent that is over":      {late(child)},
		"opened twice":               {put(t, next(n.Newest(handoff.Opened)))},
		"taken twice":                {put(t, taken, "session", "two")},
		"ended, and never opened":    {{Kind: handoff.Ended, Subject: "handoff_02", Body: ended.Body}},
		"use after the end":          {ended, made},
		"use when time is over":      {late(made)},
		"decided when time is over":  {put(t, made, "decision.now", first.EndsAt.UnixMicro())},
		"use by another agent":       {put(t, made, "decision.agent_id", id("other"))},
		"use in another workspace":   {elsewhere(made)},
		"use for another user":       {put(t, made, "decision.user.id", "usr_bob")},
		"a handoff that is not":      {put(t, made, "decision.delegation.id", "handoff_02")},
		"other hops":                 {put(t, made, "decision.delegation.hops", []any{})},
		"less deep":                  {put(t, made, "decision.delegation.depth", 1)},
		"another root":               {put(t, made, "decision.delegation.root", "helper")},
		"scopes it did not have":     {put(t, made, "decision.delegation.scopes", []string{"mail.*"})},
		"all scopes":                 {put(t, made, "decision.delegation.scopes", nil)},
		"all tools":                  {put(t, made, "decision.delegation.tools", nil)},
		"a refused token":            {put(t, made, "decision.delegation.refused", true)},
	} {
		if _, err := audit(append(slices.Clone(entries), forged...)); err == nil {
			t.Errorf("%s was not found", what)
		}
	}
	// What is as it should be is none of these, and a handoff whose body was erased says nothing of those below it.
	if _, err := audit(append(slices.Clone(entries), child, made)); err != nil {
		t.Error(err)
	}
	for i := range entries {
		if entries[i].Subject == first.ID {
			entries[i].Body = nil
		}
	}
	if a, err := audit(entries); err != nil || a.Erased != 2 || a.Handoffs != 2 {
		t.Errorf("%+v, %s: %v", a, second.ID, err)
	}
}
