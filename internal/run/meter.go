package run

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/price"
	"signalbox/internal/roster"
	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// checkBudget refuses a budget that nobody could keep: that of a CLI which does not say what it has used before its
// end, and whose calls of models are not led through the proxy either (RUN-48). For a metered run it finds the agent
// whose calls are the run's.
func (s *Runs) checkBudget(ctx context.Context, workspace string, n Request, b opened) (opened, error) {
	e, err := engine.Find(b.Engine)
	if err != nil {
		return b, err
	}
	limited := b.Budget != (Budget{})
	key := ""
	if b.Launched {
		if key, b.Metered = s.launchMetered(e, limited && e.Late() != ""); b.Metered != "" {
			own := os.Getenv(e.Meter().Key)
			n.Keyed = own != "" && !engine.IsAgentKey(own)
		}
		if key != "" && !engine.IsAgentKey(key) {
			key, n.MeterKey = "", roster.KeySum(key)
		}
	}
	if n.MeterKey != "" && b.Metered != "" && s.KeyOwner != nil {
		who, err := s.KeyOwner(ctx, n.MeterKey)
		if err != nil {
			return b, err
		}
		if n.MeterAgent = who.ID; who.ID == "" && (!limited || e.Late() == "") {
			b.Metered = "" // the proxy will not carry its calls
		}
	}
	if limited && e.Late() != "" && b.Metered == "" {
		return b, noBudget(e)
	}
	if b.Metered == "" {
		return b, nil
	}
	if e.Meter() == nil {
		return b, fault.New(fault.InvalidPayload, "The model proxy does not speak the API of %s, so it cannot meter it.",
			e.Name).About("metered")
	}
	if !n.Keyed && (s.Vault == nil || !s.Vault(ctx, workspace, e.Meter().Provider)) {
		return b, fault.New(fault.InvalidRequest, "This run of %s calls its models through the proxy, which takes an API key. "+
			"There is none: set %s, or have an admin put one into the vault with `signalbox proxy key set %s`. "+
			"A login without an API key cannot be held to a budget: run it without one.", e.Name, e.Meter().Key,
			e.Meter().Provider).About("budget")
	}
	agent, err := s.meterAgent(ctx, workspace, n, key)
	if err != nil {
		return b, err
	}
	b.MeterAgent = agent.ID
	return b, nil
}

// noBudget is the error about a budget that cannot be kept.
func noBudget(e *engine.Engine) error {
	if e.Meter() == nil {
		return fault.New(fault.InvalidRequest, "%s cannot be held to a budget: it %s, and the model proxy does not speak its API. "+
			"Run it without one; runs.daily_usd and runs.daily_tokens still count it, and refuse the next run. With another "+
			"engine a budget holds.", e.Name, e.Late()).About("budget")
	}
	return fault.New(fault.InvalidRequest, "%s cannot be held to a budget here: it %s, and its calls of models are not led through "+
		"the model proxy. `signalbox run %s --budget-usd 2 PROMPT` does that, with an API key in %s or in the proxy's vault.",
		e.Name, e.Late(), e.Name, e.Meter().Key).About("budget")
}

// launchMetered finds out by whom a run is metered that the server starts: by the proxy if its environment leads there
// already, with the key, or if it must be.
func (s *Runs) launchMetered(e *engine.Engine, must bool) (key, by string) {
	if key, led := e.Meter().Led(os.Getenv, s.Addresses...); led && key != "" {
		return key, Proxy
	}
	if must && e.Meter() != nil {
		return "", Proxy
	}
	return "", ""
}

// meterAgent is the agent whose calls through the proxy are a run's: that of a key, or the one that the request names.
func (s *Runs) meterAgent(ctx context.Context, workspace string, n Request, key string) (who roster.Identity, err error) {
	switch {
	case key != "":
		who, err = s.core.Roster.Authenticate(ctx, key)
	case n.MeterAgent != "":
		who, err = s.core.Roster.ByID(ctx, workspace, n.MeterAgent)
	case s.HooksOf == nil || n.Recorded && n.Agent == "":
		return who, fault.New(fault.InvalidRequest, "A run with a budget calls its models through the proxy as an agent, and it is not "+
			"known which. Put a key of one into SIGNALBOX_KEY; `signalbox agents add` makes one.").About("meter_agent")
	default:
		who, err = s.HooksOf(ctx, workspace, n.Agent)
	}
	if err == nil && (who.Workspace != workspace || who.Kind != roster.HolderAgent) {
		err = fault.New(fault.Forbidden, "The agent whose calls are to be counted for the run is not one of the workspace %s.",
			workspace).About("meter_agent")
	}
	return who, err
}

// called is the kind of the proxy's entries that say what was carried. This package reads the agent, the runs, the
// tokens and the cost in them.
const called = "proxy.called"

func isCalled(kind string) bool { return kind == called }

// proxied is what is read of proxy.called.
type proxied struct {
	Agent string `json:"agent"`
	Calls []struct {
		Run   string `json:"run"`
		Model string `json:"model"`
		price.Usage
		price.Cost
	} `json:"calls"`
}

// meterCalls counts what the proxy has carried for runs. It may be called again with the same entries.
func (s *Runs) meterCalls(ctx context.Context, entries []ledger.Entry) error {
	for i := range entries {
		var b proxied
		if !bytes.Contains(entries[i].Body, []byte(`"run":`)) {
			continue // most calls are of no run
		}
		if entries[i].Body == nil || wire.UnmarshalPart(entries[i].Body, &b) != nil {
			continue // erased, or of a version that we do not know
		}
		runs := map[string]*spent{}
		for _, one := range b.Calls {
			if one.Run == "" {
				continue
			}
			if runs[one.Run] == nil {
				runs[one.Run] = &spent{}
			}
			one.Usage, one.Cost.Nanos = one.Usage.Bounded(), min(max(one.Cost.Nanos, 0), nanos(maxUSD))
			runs[one.Run].Calls++
			runs[one.Run].add(spentOn{modelName(one.Model), one.Usage, one.Cost})
		}
		for run, what := range runs {
			if err := s.meterRun(ctx, &entries[i], b.Agent, run, *what); err != nil {
				return err
			}
		}
	}
	return nil
}

// meterRun counts calls of an agent for a run, once, and orders the run to stop at its budget. A run is only charged
// for calls of the agent that it was opened with: others may name it in a header as they like. It is charged after
// its end too.
func (s *Runs) meterRun(ctx context.Context, e *ledger.Entry, agent, run string, what spent) error {
	found, err := s.Get(ctx, run)
	if fault.Is(err, fault.NotFound) || err == nil && found.Metered == "" {
		return nil // the header names something else
	}
	if err != nil {
		return err
	}
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		r, err := findRow(tx, run)
		if err != nil || r.meter != agent || r.workspace != e.Workspace || r.called >= e.Seq {
			return err
		}
		today, err := s.today(tx, r.workspace, tx.Now())
		if err != nil {
			return err
		}
		what := what
		what.cap(&r)
		r.tokens, r.nanos = r.tokens+what.Tokens, r.nanos+what.Nanos
		tx.Append(ledger.Event{
			Workspace: r.workspace, Kind: kindMetered, Actor: "system", Subject: run, Trace: run,
			Body: metered{found.Of, e.Seq, what},
		})
		today.Tokens, today.Nanos = today.Tokens+what.Tokens, today.Nanos+what.Nanos
		s.stopAtBudget(tx, run, &r, today, found.Of)
		return nil
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// Access is what a supervisor needs to make the calls of models of a metered run.
type Access struct {
	Key       string    `json:"key"` // of the agent; it is shown this once
	ExpiresAt time.Time `json:"expires_at"`
}

// accessTime is how long the key of a run is good. Supervisors ask for another before.
const accessTime = time.Hour

// Access gives the supervisor of a metered run a key of the agent whose calls are the run's. It ends by itself.
func (s *Runs) Access(ctx context.Context, who roster.Identity, run string) (a Access, err error) {
	found, err := s.Get(ctx, run)
	if err != nil {
		return a, err
	}
	if found.Status != Running || found.MeterAgent == "" {
		return a, fault.New(fault.Conflict, "The run is over, or its calls of models do not go through the proxy.")
	}
	agent, err := s.core.Roster.ByID(ctx, found.Workspace, found.MeterAgent)
	if err != nil {
		return a, err
	}
	key := roster.NewKey(roster.SignalKey)
	err = s.core.Roster.Write(ctx, func(tx *ledger.Tx) error {
		a = Access{key.Secret, tx.Now().Add(accessTime)}
		key.Key.ExpiresAt = &a.ExpiresAt
		s.core.Roster.Reissue(tx, who, roster.Agent{ID: agent.ID, Name: agent.Name, Workspace: agent.Workspace}, &key)
		return nil
	})
	return a, err
}

func (s *Runs) access(r *http.Request) (Access, error) {
	return s.Access(r.Context(), roster.From(r.Context()), r.PathValue("id"))
}
