package conform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/wire"
)

// Requests and answers of the operators' API, as far as they are needed here. They are
// written again instead of imported: the kit knows a server only from outside.
type (
	decision struct {
		Note string `json:"note,omitempty"`
	}
	gatePage struct {
		Gates []struct {
			ID     string `json:"id"`
			Origin struct {
				Reference string `json:"reference"`
			} `json:"origin"`
		} `json:"gates"`
	}
	applied struct {
		Version struct {
			Number int64 `json:"number"`
		} `json:"version"`
		InForce bool `json:"in_force"`
	}
)

// ops makes a call as the operator, with pairs of headers. A status of 300 or more is
// an error; the reply is returned with it.
func (k *Kit) ops(ctx context.Context, method, path, media string, body []byte, header ...string) (reply, error) {
	h := http.Header{"Authorization": {"Bearer " + k.Token}}
	if body != nil {
		h.Set("Content-Type", media)
	}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	r, err := k.call(ctx, method, path, body, h)
	if err == nil && r.http >= 300 {
		err = fmt.Errorf("%s %s was answered with %d: %.300s", method, path, r.http, r.body)
	}
	return r, err
}

// decide approves or rejects a gate.
func (k *Kit) decide(ctx context.Context, gate, verb, note string) error {
	body, err := wire.Marshal(decision{note})
	if err == nil {
		_, err = k.ops(ctx, http.MethodPost, "/ops/gates/"+url.PathEscape(gate)+"/"+verb, "application/json", body)
	}
	return err
}

// findGate finds the open gate of a run.
func (k *Kit) findGate(ctx context.Context, run string) (string, error) {
	q := url.Values{"status": {"pending"}, "agent": {k.Agent}, "limit": {"1000"}}
	r, err := k.ops(ctx, http.MethodGet, "/ops/gates?"+q.Encode(), "", nil)
	if err != nil {
		return "", err
	}
	var page gatePage
	if err := wire.UnmarshalPart(r.body, &page); err != nil {
		return "", err
	}
	for _, g := range page.Gates {
		if g.Origin.Reference == run {
			return g.ID, nil
		}
	}
	return "", fmt.Errorf("the run %s has no gate that waits", run)
}

// trackGate keeps the list of open gates up to date.
func (k *Kit) trackGate(a answer) {
	k.open = slices.DeleteFunc(k.open, func(id string) bool { return id == a.gate })
	if a.status == "pending" {
		k.open = append(k.open, a.gate)
	}
}

// rejectOpen rejects the gates that are still open, so that nobody's inbox stays full,
// and returns those that it cannot reject. A gate that somebody decided meanwhile stays
// decided.
func (k *Kit) rejectOpen(ctx context.Context) []string {
	if k.can[Operator] != "" {
		return k.open
	}
	return slices.DeleteFunc(k.open, func(gate string) bool {
		err := k.decide(ctx, gate, "reject", "The conformance kit has ended.")
		return err == nil || strings.Contains(err.Error(), "already_resolved")
	})
}

// prepare finds out what the kit can have with its token, and puts the rules of the
// cases in force. restore undoes that.
func (k *Kit) prepare(ctx context.Context) (restore func(context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	k.can = map[Need]string{}
	if !k.Public {
		k.can[Public] = "the server is on loopback"
	}
	if k.Token == "" {
		for _, n := range []Need{Operator, Rules, DefaultPolicy} {
			k.can[n] = "it takes an operator's token (--token)"
		}
		return nothing, k.probe(ctx)
	}
	r, err := k.ops(ctx, http.MethodGet, "/ops/policy", "", nil)
	// A token that may not read the policy may still decide gates.
	if r.http >= 400 && r.http < 500 {
		k.can[Rules] = "it takes the token of an admin"
		k.can[DefaultPolicy] = k.can[Rules]
		return nothing, k.probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	// The rule that the first policy of a server ends with.
	if !strings.Contains(string(r.body), "name: confirm-declared-gates") {
		k.can[DefaultPolicy] = "the policy in force is not the one that a server begins with"
	}
	return k.addRules(ctx, r.body, strings.Trim(r.header.Get("ETag"), `"`))
}

// probe finds out what the policy does by itself, where the kit may not change it: one
// signal that declares a gate, and one that does not.
func (k *Kit) probe(ctx context.Context) error {
	k.does = map[Policy]bool{}
	for i, p := range []struct {
		what     Policy
		declared bool
		status   string
	}{{Holds, true, "pending"}, {Allows, false, "approved"}} {
		step := Step{Set: map[string]any{"gate_required": p.declared}}
		m, err := message(k.suite.Payload).change(step)
		if err != nil {
			return err
		}
		replace := strings.NewReplacer("$run", fmt.Sprintf("conform-%s-probe-%d", k.round, i), "$agent", k.Agent)
		r, err := k.send(ctx, http.MethodPost, "/amp/signal", m.encode(step, replace), step)
		if err != nil {
			return err
		}
		a, err := readAnswer(r.http, r.body)
		// Anything else, also an error, means that the cases which rely on it are skipped.
		k.does[p.what] = err == nil && a.status == p.status
		if err == nil && a.gate != "" {
			k.trackGate(a)
		}
	}
	return nil
}

// addRules puts the policy in force with the rules of the cases before all others.
// version is the one that it replaces, so that a policy which somebody applied
// meanwhile is not lost.
func (k *Kit) addRules(ctx context.Context, source []byte, version string) (restore func(context.Context) error,
	err error,
) {
	with, err := prepend(source, k.rules())
	if err != nil {
		return nil, err
	}
	number, err := k.apply(ctx, with, version)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if _, err := k.apply(ctx, source, number); err != nil {
			return fmt.Errorf("the policy could not be put back; remove the rules that begin with conform- from it: %w", err)
		}
		return nil
	}, nil
}

// apply puts a policy in place of the version, and waits until this node uses it.
func (k *Kit) apply(ctx context.Context, source []byte, version string) (number string, err error) {
	// Nodes follow the ledger, so a policy is in force a moment after it was applied.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		// If-Match refuses the write if somebody has applied another policy meanwhile.
		r, err := k.ops(ctx, http.MethodPut, "/ops/policy", "application/yaml", source, "If-Match", version)
		if err != nil {
			return "", err
		}
		var a applied
		if err := wire.UnmarshalPart(r.body, &a); err != nil {
			return "", err
		}
		version = fmt.Sprint(a.Version.Number)
		if a.InForce {
			return version, nil
		}
	}
	return "", errors.New("the policy does not come into force")
}

// rules are the rules of all cases, each for the run of its case alone.
func (k *Kit) rules() (rules []map[string]any) {
	// The name of a rule holds the number of its case, for people who find it in the
	// policy.
	for i := range k.suite.Cases {
		c := &k.suite.Cases[i]
		what := c.Rule
		switch c.Policy {
		case Holds:
			what = map[string]any{"then": "gate"}
		case Allows:
			what = map[string]any{"then": "allow"}
		}
		if what == nil {
			continue
		}
		r := map[string]any{
			"name": fmt.Sprintf("conform-%d", i), "on": []string{"signal"},
			"when": fmt.Sprintf("agent.name == %q && event.run == %q", k.Agent, k.runID(i)),
		}
		maps.Copy(r, what)
		rules = append(rules, r)
	}
	return rules
}

// prepend writes a policy with rules before those that it has. The result loses
// comments, which is why the source is kept to put back.
func prepend(source []byte, rules []map[string]any) ([]byte, error) {
	var policy map[string]any
	if err := yaml.Unmarshal(source, &policy); err != nil {
		return nil, fmt.Errorf("read the policy in force: %w", err)
	}
	all := make([]any, 0, len(rules))
	for _, r := range rules {
		all = append(all, r)
	}
	before, _ := policy["rules"].([]any)
	policy["rules"] = append(all, before...)
	return yaml.Marshal(policy)
}
