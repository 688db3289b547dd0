package rulebook

import (
	"context"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/policy/layer"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Layer names a part of the policy: that of the server (the zero value), of a workspace, or of a user of a workspace.
// Each has versions of its own, which are applied, checked and replayed alike; package policy/layer has the order in
// which they decide. A layer begins with its first version, and never ends: an empty policy takes it out of the way.
type Layer struct {
	Workspace string `json:"workspace,omitzero"`
	User      string `json:"user,omitzero"` // the id
}

// name is the name of the layer as verdicts have it, "" for the server's.
func (l Layer) name() string {
	switch {
	case l.User != "":
		return layer.User
	case l.Workspace != "":
		return layer.Workspace
	}
	return ""
}

// key is the layer in one word: WORKSPACE, or WORKSPACE:USER; "" for the server's. Names have no colons.
func (l Layer) key() string {
	if l.User == "" {
		return l.Workspace
	}
	return l.Workspace + ":" + l.User
}

// tracePrefix begins the trace that all versions of a layer have; its key follows.
const tracePrefix = "layer:"

// layerOf is the layer of an entry that applies a version.
func layerOf(e *ledger.Entry) Layer {
	if e.Kind == applied {
		return Layer{}
	}
	workspace, user, _ := strings.Cut(strings.TrimPrefix(e.Trace, tracePrefix), ":")
	return Layer{workspace, user}
}

// phrase is what the layer is called in a sentence.
func (l Layer) phrase() string {
	switch l.name() {
	case layer.User:
		return "the user's layer of the policy"
	case layer.Workspace:
		return "the layer of the policy of workspace " + l.Workspace
	}
	return "the policy"
}

// countsOf is the word by which the counters of a layer's rules are told apart from others of the same agent.
func countsOf(name, userID string) string {
	if name == layer.User {
		return userID
	}
	return name
}

// Layer is the one that a call names: by a workspace, and by the name or the id of a user. A call that is confined to
// a workspace means that one if it names none. Layers of other workspaces do not exist for it.
func (b *Book) Layer(ctx context.Context, workspace, user string) (l Layer, err error) {
	if workspace == "" && user == "" && wire.Scope(ctx) == "" {
		return l, nil
	}
	if l.Workspace, err = roster.WorkspaceOf(ctx, workspace); err != nil {
		return l, err
	}
	known, err := b.roster.Workspaces(ctx, l.Workspace)
	if err != nil {
		return l, err
	}
	if len(known) == 0 {
		return l, fault.New(fault.NotFound, "There is no workspace %.80q. `signalbox workspaces ls` lists those there are.",
			l.Workspace).About("workspace")
	}
	if user != "" {
		found, err := b.roster.User(ctx, l.Workspace, user)
		if err != nil {
			return l, err
		}
		l.User = found.ID
	}
	return l, nil
}

// reach refuses a call that may not see a layer: the server's is for those who are confined to no workspace.
func reach(ctx context.Context, l Layer) error {
	if l == (Layer{}) {
		return wire.Unconfined(ctx, "This layer of the policy is that of")
	}
	_, err := roster.WorkspaceOf(ctx, l.Workspace)
	return err
}

// layerInForce is a narrower layer that decides. Its policy is nil if it cannot be read: everything is blocked then
// for whom it is about.
type layerInForce struct {
	version Version
	policy  *policy.Policy
}

// inForceFor is what decides about one call.
type inForceFor struct {
	layer.Stack
	broken Layer // one that cannot be read
}

// layersFor adds the layers of a workspace and of a user to what decides, in the order in which they are tried, and
// notes their versions.
func (in *inForce) layersFor(r *Record) inForceFor {
	rules := inForceFor{Stack: layer.Stack{Server: in.policy}}
	if len(in.layers) == 0 {
		return rules
	}
	add := func(l Layer) (number int64) {
		found, ok := in.layers[l]
		switch {
		case !ok:
			return 0
		case found.policy == nil:
			rules.broken = l
		default:
			rules.Narrower = append(rules.Narrower, narrower(l, found.policy))
		}
		return found.version.Number
	}
	if r.User.ID != "" {
		r.UserPolicy = add(Layer{r.Agent.Workspace, r.User.ID})
	}
	r.WorkspacePolicy = add(Layer{Workspace: r.Agent.Workspace})
	return rules
}

func narrower(l Layer, p *policy.Policy) layer.Narrower {
	return layer.Narrower{Name: l.name(), Of: countsOf(l.name(), l.User), Policy: p}
}

// loadLayers puts the versions of layers that were applied since the last time in force, up to an entry. They are read
// from the entries: a row that is gone must not take a layer away.
func (b *Book) loadLayers(p ledger.Prover, in *inForce, upTo int64) error {
	const atOnce = 100
	for in.layersUpTo < upTo {
		entries, err := p.Entries(ledger.Query{Kinds: []string{layered}, After: in.layersUpTo, UpTo: upTo, Limit: atOnce})
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			in.layers = maps.Clone(in.layers) // decisions read the one before
			if in.layers == nil {
				in.layers = map[Layer]layerInForce{}
			}
		}
		for i := range entries {
			v, err := versionOf(&entries[i])
			if err != nil {
				return err
			}
			l := layerOf(&entries[i])
			p, err := b.parse(entries[i].Body)
			if err != nil {
				b.log.Error("a layer of the policy cannot be read; everything is blocked where it applies", "workspace",
					l.Workspace, "user", l.User, "version", v.Number, "error", err.Error())
				p = nil
			}
			in.layers[l] = layerInForce{v, p}
			in.layersUpTo = entries[i].Seq
		}
		if len(entries) < atOnce {
			in.layersUpTo = upTo
		}
	}
	return nil
}

// counters are what the rules of every layer read.
func (in *inForce) counters() []counter {
	seen := map[counter]bool{}
	all := appendCounters(nil, seen, Layer{}, in.policy)
	for l, one := range in.layers {
		all = appendCounters(all, seen, l, one.policy)
	}
	return all
}

// appendCounters appends those of a layer that are not there yet.
func appendCounters(all []counter, seen map[counter]bool, l Layer, p *policy.Policy) []counter {
	if p == nil {
		return all
	}
	one := narrower(l, p)
	for _, c := range one.Counts() {
		if c := (counter{c, l.Workspace}); !seen[c] {
			seen[c] = true
			all = append(all, c)
		}
	}
	return all
}

// checkLayer refuses a policy that cannot be that of a narrower layer.
func (b *Book) checkLayer(l Layer, p *policy.Policy) error {
	if l == (Layer{}) {
		return nil
	}
	for _, r := range p.Rewrites() {
		return fault.New(fault.InvalidPolicy, "line %d: the rule %q would change what an agent does, and the rules of the "+
			"server would not see the result. In the layer of a workspace or a user use redact without set and replace, or "+
			"gate, defer or block.", r.Line, r.Name)
	}
	for _, r := range p.Rules() {
		if r.OnUnreachable != "" {
			return fault.New(fault.InvalidPolicy, "line %d: the rule %q has on_unreachable. What agents may do while the server "+
				"cannot be reached is said in the server's layer alone; leave on_unreachable out here.", r.Line, r.Name)
		}
	}
	return b.checkCounters(l, p)
}

// maxCounters is how many counters the layers of a workspace may read together, beside those of the server's.
const maxCounters = 100

// checkCounters refuses a version with which the layers of a workspace would read too many counters: each is kept for
// every agent of the workspace.
func (b *Book) checkCounters(l Layer, p *policy.Policy) error {
	b.mu.RLock()
	layers := b.inForce.layers
	b.mu.RUnlock()
	seen := map[counter]bool{}
	all := appendCounters(nil, seen, l, p)
	for other, one := range layers {
		if other.Workspace == l.Workspace && other != l {
			all = appendCounters(all, seen, other, one.policy)
		}
	}
	if len(all) > maxCounters {
		return fault.New(fault.InvalidPolicy, "The layers of workspace %q would read %d counters of recent together, and "+
			"may read %d. Use the same windows in several rules.", l.Workspace, len(all), maxCounters)
	}
	return nil
}

// AppliedLayer is a layer that there is, with its newest version.
type AppliedLayer struct {
	Layer
	Name    string  `json:"name,omitzero"` // of the user
	Version Version `json:"version"`
	Broken  bool    `json:"broken,omitzero"` // it cannot be read, and everything is blocked where it applies
	Rules   int     `json:"rules"`
}

// Layers lists the layers that are in force on this node and that the caller may see: the server's first, then by
// workspace, that of the workspace before those of its users. Those of users who were removed are left out.
func (b *Book) Layers(ctx context.Context) ([]AppliedLayer, error) {
	b.mu.RLock()
	in := b.inForce
	b.mu.RUnlock()
	list := []AppliedLayer{}
	add := func(l Layer, name string, v Version, p *policy.Policy) {
		one := AppliedLayer{Layer: l, Name: name, Version: v, Broken: p == nil}
		if p != nil {
			one.Rules = len(p.Rules())
		}
		list = append(list, one)
	}
	if wire.Scope(ctx) == "" && in.number > 0 {
		v, _, err := b.Version(ctx, Layer{}, in.number)
		if err != nil {
			return nil, err
		}
		add(Layer{}, "", v, in.policy)
	}
	users, err := b.roster.Users(ctx, "")
	if err != nil {
		return nil, err
	}
	sorted := slices.SortedFunc(maps.Keys(in.layers), func(a, b Layer) int { return strings.Compare(a.key(), b.key()) })
	for _, l := range sorted {
		i := slices.IndexFunc(users, func(u roster.User) bool { return u.ID == l.User })
		switch {
		case !wire.InScope(ctx, l.Workspace):
		case l.User == "":
			add(l, "", in.layers[l].version, in.layers[l].policy)
		case i >= 0:
			add(l, users[i].Name, in.layers[l].version, in.layers[l].policy)
		}
	}
	return list, nil
}

// Stack is what is in force for what an agent does on behalf of a user. It is not readable, and empty, if
// one of the layers cannot be read. It is for protocols that look at the rules before they ask (Policy.Reads); others
// may be in force a moment later.
func (b *Book) Stack(who roster.Identity, of roster.Behalf) (s layer.Stack, readable bool) {
	b.mu.RLock()
	in := b.inForce
	b.mu.RUnlock()
	rules := in.layersFor(&Record{Agent: policy.Agent{Workspace: who.Workspace}, User: userOf(of)})
	if rules.Server == nil || rules.broken != (Layer{}) {
		return s, false
	}
	return rules.Stack, true
}
