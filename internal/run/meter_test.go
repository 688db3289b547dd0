package run_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

const stranger = "agent_stranger"

// metered lets runs be metered: there is a key in the vault, and every agent is who it says it is.
func metered(o *run.Options) {
	o.Vault = func(context.Context, string, string) bool { return true }
	o.HooksOf = func(_ context.Context, workspace, named string) (roster.Identity, error) {
		return roster.Identity{ID: named, Kind: roster.HolderAgent, Workspace: workspace}, nil
	}
}

// addAgent adds the agent whose calls are those of metered runs.
func (n *node) addAgent() {
	n.T.Helper()
	if err := n.core.Roster.AddWorkspace(n.T.Context(), roster.Identity{}, roster.DefaultWorkspace); err != nil {
		n.T.Fatal(err)
	}
	a, _, err := n.core.Roster.AddAgent(n.T.Context(), roster.Identity{}, roster.NewAgent{Name: "coder"})
	if err != nil {
		n.T.Fatal(err)
	}
	n.agent = a.ID
}

// openMetered opens a run of codex whose calls go through the proxy, without handing work on.
func (n *node) openMetered(b run.Budget) run.Run {
	n.T.Helper()
	r, err := n.runs.Open(n.T.Context(), operator, run.Request{
		Engine: "codex", Prompt: "go", Recorded: true, Metered: run.Proxy, MeterAgent: n.agent, Budget: b,
	})
	if err != nil {
		n.T.Fatal(err)
	}
	return r
}

// carried writes what the proxy writes of calls, each with 100 tokens of input, 10 of output, and a cent.
func (n *node) carried(workspace, agent string, runs ...string) {
	n.T.Helper()
	var calls []string
	for _, one := range runs {
		calls = append(calls, fmt.Sprintf(`{"at":1,"took":1,"provider":"openai","call":"POST /v1/responses","status":200,`+
			`"model":"gpt-5.4","input_tokens":100,"output_tokens":10,"cost_nano":10000000,"run":%q}`, one))
	}
	err := n.Ledger.Write(n.T.Context(), func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: workspace, Kind: "proxy.called", Actor: "agent:" + agent, Subject: agent,
			Body: wire.Raw(fmt.Sprintf(`{"agent":%q,"calls":[%s]}`, agent, strings.Join(calls, ","))),
		})
		return nil
	})
	if err != nil {
		n.T.Fatal(err)
	}
}

// counted waits until so many calls of a run are counted, and returns the run.
func (n *node) counted(id string, calls int64) (r run.Run) {
	n.T.Helper()
	testbed.Until(n.T, fmt.Sprintf("%d calls", calls), func() bool {
		var err error
		if r, err = n.runs.Get(n.T.Context(), id); err != nil {
			n.T.Fatal(err)
		}
		return r.Calls >= calls
	})
	return r
}

// settled waits until the calls of a last run are counted: then all before it are.
func (n *node) settled() {
	n.T.Helper()
	last := n.openMetered(run.Budget{})
	n.carried("default", n.agent, last.ID)
	n.counted(last.ID, 1)
}

func TestTheProxyCountsTheCallsOfARunOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, metered)
		n.addAgent()
		n.price("gpt-5.4", 100)
		r := n.openMetered(run.Budget{Tokens: 1000})
		if r.Metered != run.Proxy || r.MeterAgent != n.agent {
			t.Fatalf("%+v", r)
		}
		n.carried("default", n.agent, r.ID, "something else", r.ID, "", "run_x")
		if r = n.counted(r.ID, 2); r.Tokens != 220 || r.CostUSD != 0.02 || r.Calls != 2 {
			t.Errorf("two calls: %+v", r)
		}
		// What the CLI says is shown beside it.
		said := engine.Usage{Source: "codex", Model: "gpt-5.4", Session: &engine.Total{Tokens: engine.Tokens{Input: 200, Output: 20}}}
		n.reportUsage(r.ID, 1, strings.ReplaceAll(started, "amp", "codex"), said)
		if r = n.counted(r.ID, 2); r.Tokens != 220 || r.CostUSD != 0.02 || r.Said == nil || r.Said.Tokens != 220 {
			t.Errorf("after its report: %+v, %+v", r, r.Said)
		}
		// Nobody else charges it: not another agent, not one of another workspace, not one that names itself so.
		n.carried("default", stranger, r.ID)
		n.carried("other", n.agent, r.ID)
		n.settled()
		if r = n.counted(r.ID, 2); r.Calls != 2 || r.Stop != "" {
			t.Errorf("charged by others: %+v", r)
		}
		// A repeated page changes nothing, on this node or another.
		if err := run.MeterAgain(n.runs, t.Context(), n.Entries("proxy.called")); err != nil {
			t.Fatal(err)
		}
		if r = n.counted(r.ID, 2); r.Calls != 2 {
			t.Errorf("counted again: %+v", r)
		}
		// It stops at its budget, and what comes in after its end is its cost too.
		n.carried("default", n.agent, r.ID, r.ID, r.ID, r.ID, r.ID, r.ID, r.ID, r.ID)
		if r = n.counted(r.ID, 10); r.Stop != "the run has used 1100 tokens, and its budget is 1000" {
			t.Errorf("%+v", r)
		}
		n.reportUsage(r.ID, 2, strings.ReplaceAll(completed, "amp", "codex"), said)
		n.carried("default", n.agent, r.ID)
		if r = n.counted(r.ID, 11); r.Tokens != 1210 || r.Status != run.Done {
			t.Errorf("after its end: %+v", r)
		}
		// A later run of the session that is not metered counts by difference to what this one reported.
		n.play("codex", "T-1", [][]byte{
			[]byte(`{"type":"thread.started","thread_id":"T-1"}`), []byte(`{"type":"turn.started"}`),
			[]byte(`{"type":"turn.completed","usage":{"input_tokens":250,"output_tokens":25}}`),
		})
		page, err := n.runs.List(t.Context(), run.Filter{}, "", 1)
		if err != nil || page.Runs[0].Tokens != 55 {
			t.Errorf("%v %+v", err, page.Runs)
		}
		n.WantClean()
	})
}

// TestACLIThatCallsPastTheProxyIsStopped by what it says itself.
func TestACLIThatCallsPastTheProxyIsStopped(t *testing.T) {
	n := start(t, storetest.SQLite(t), metered)
	n.addAgent()
	r := n.openMetered(run.Budget{Tokens: 100})
	o := n.must(n.runs.Report(t.Context(), operator, r.ID, run.Report{From: 1, Events: []run.Entry{{
		Event: wire.Raw(strings.ReplaceAll(started, "amp", "codex")),
		Usage: engine.Usage{Source: "codex", Tokens: engine.Tokens{Input: 100}},
	}}}))
	if r, _ = n.runs.Get(t.Context(), r.ID); r.Tokens != 0 || !strings.Contains(o.Stop, "has used 100 tokens") {
		t.Errorf("%+v %+v", o, r)
	}
}

func TestADayIsUsedUpByMeteredRunsToo(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, metered, func(o *run.Options) { o.Daily = run.Budget{USD: 0.03} })
		n.addAgent()
		a, b := n.openMetered(run.Budget{}), n.openMetered(run.Budget{})
		n.carried("default", n.agent, a.ID, b.ID)
		n.carried("default", n.agent, b.ID)
		if b = n.counted(b.ID, 2); !strings.Contains(b.Stop, "today's runs have cost $0.0300") {
			t.Errorf("%+v", b)
		}
		if _, err := n.runs.Open(t.Context(), operator,
			run.Request{Engine: "amp", Prompt: "x", Recorded: true}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a run on a day that is used up: %v", err)
		}
		n.WantClean()
	})
}

// TestBudgetsThatNobodyCanKeepAreRefused before anything is recorded.
func TestBudgetsThatNobodyCanKeepAreRefused(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("OPENAI_API_KEY", "")
	_ = os.Unsetenv("OPENAI_API_KEY")
	vault := false
	n := start(t, storetest.SQLite(t), metered, func(o *run.Options) {
		o.Vault = func(context.Context, string, string) bool { return vault }
		o.Folders, o.Supervise = []string{dir}, func(string) error { return nil }
	})
	n.addAgent()
	tokens := run.Budget{Tokens: 1000}
	for _, c := range []struct {
		what string
		in   run.Request
		says string // "" if it is opened
	}{
		{"gemini", run.Request{Engine: "gemini", Budget: tokens, Recorded: true}, "gemini cannot be held to a budget"},
		{"gemini without one", run.Request{Engine: "gemini", Recorded: true}, ""},
		{"gemini, metered", run.Request{Engine: "gemini", Budget: tokens, Recorded: true, Metered: run.Proxy}, "does not speak the API"},
		{"gemini by the server", run.Request{Engine: "gemini", Budget: tokens, Dir: dir}, "gemini cannot be held to a budget"},
		{"gemini by the server without one", run.Request{Engine: "gemini", Dir: dir}, "starts it only with a time limit"},
		{"gemini by the server for a time", run.Request{Engine: "gemini", Dir: dir, Limits: run.Limits{Total: 60}}, ""},
		{"gemini for ever", run.Request{Engine: "gemini", Dir: dir, Limits: run.Limits{Total: -1}}, "limits"},
		{"claude by the server", run.Request{Engine: "claude", Dir: dir}, "signalbox config set runs.budget_usd 2"},
		{"claude by the server for a time", run.Request{Engine: "claude", Dir: dir, Limits: run.Limits{Total: 60}}, "Say how much the run may use"},
		{"codex", run.Request{Engine: "codex", Budget: tokens, Recorded: true}, "not led through the model proxy"},
		{"codex without one", run.Request{Engine: "codex", Recorded: true}, ""},
		{
			"codex without a key",
			run.Request{Engine: "codex", Budget: tokens, Recorded: true, Metered: run.Proxy, MeterAgent: n.agent},
			"There is none: set OPENAI_API_KEY",
		},
		{"codex as nobody", run.Request{Engine: "codex", Budget: tokens, Recorded: true, Metered: run.Proxy, Keyed: true}, "SIGNALBOX_KEY"},
		{"codex as nobody that is known", run.Request{
			Engine: "codex", Budget: tokens, Recorded: true, Metered: run.Proxy, Keyed: true, MeterAgent: "who",
		}, "who"},
		{"codex by somebody else", run.Request{
			Engine: "codex", Budget: tokens, Recorded: true, Metered: "me", Keyed: true, MeterAgent: n.agent,
		}, "metered should be proxy"},
		{"codex with a key", run.Request{
			Engine: "codex", Budget: tokens, Recorded: true, Metered: run.Proxy, Keyed: true, MeterAgent: n.agent,
		}, ""},
		{"codex by the server", run.Request{Engine: "codex", Budget: tokens, Dir: dir}, "There is none: set OPENAI_API_KEY"},
		{"claude", run.Request{Engine: "claude", Budget: tokens, Recorded: true}, ""},
		{"amp", run.Request{Engine: "amp", Budget: tokens, Recorded: true}, ""},
	} {
		before, _ := n.Ledger.Head(t.Context())
		c.in.Prompt = "go"
		_, err := n.runs.Open(t.Context(), operator, c.in)
		if after, _ := n.Ledger.Head(t.Context()); (err == nil) != (c.says == "") || err != nil &&
			(!strings.Contains(err.Error(), c.says) || after != before) {
			t.Errorf("%s: %v, %d entries", c.what, err, after-before)
		}
	}
	// A budget of the configuration is one too.
	limited := start(t, storetest.SQLite(t), func(o *run.Options) { o.Budget = run.Budget{USD: 1} })
	if _, err := limited.runs.Open(t.Context(), operator, run.Request{Engine: "gemini", Prompt: "x", Recorded: true}); err == nil {
		t.Error("gemini under a budget of the configuration was opened")
	}
}

// TestTheKeyOfAMeteredRunIsItsAgents, ends by itself, and is for the supervisors of runs that are metered.
func TestTheKeyOfAMeteredRunIsItsAgents(t *testing.T) {
	n := start(t, storetest.SQLite(t), metered)
	n.addAgent()
	r := n.openMetered(run.Budget{Tokens: 1000})
	a, err := n.runs.Access(t.Context(), operator, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	who, err := n.core.Roster.Authenticate(t.Context(), a.Key)
	if err != nil || who.ID != n.agent {
		t.Errorf("%v %+v", err, who)
	}
	n.Set(time.Hour)
	if _, err := n.core.Roster.Authenticate(t.Context(), a.Key); err == nil {
		t.Error("the key does not end")
	}
	other := n.open(run.Request{})
	if _, err := n.runs.Access(t.Context(), operator, other.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("a run that is not metered: %v", err)
	}
	if _, err := n.runs.Access(wire.WithScope(t.Context(), "other"), operator, r.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("from another workspace: %v", err)
	}
	n.must(n.report(r.ID, 1, 0, completed))
	if _, err := n.runs.Access(t.Context(), operator, r.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("after its end: %v", err)
	}
}
