package rulebook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/policy/layer"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// What operators do with the policy. The server's layer is the whole server's, so operators who are confined
// to a workspace may do this with the layers of that workspace alone (reach). HTTP and the dashboard call these
// methods.

// ListVersions is a page of the versions of a layer, the newest first.
func (b *Book) ListVersions(ctx context.Context, l Layer, cursor string, limit int) (page VersionPage, err error) {
	if err := reach(ctx, l); err != nil {
		return page, err
	}
	before, err := wire.ParseSeqCursor(cursor)
	if err != nil {
		return page, err
	}
	page.Versions, err = b.Versions(ctx, l, before, limit)
	if err == nil && len(page.Versions) == limit {
		page.Next = wire.SeqCursor(page.Versions[limit-1].Number)
	}
	return page, err
}

// FullVersion finds a version and lists its rules. A version that this Signalbox cannot parse
// comes with its source and without rules.
func (b *Book) FullVersion(ctx context.Context, l Layer, number int64) (FullVersion, error) {
	v, source, err := b.Version(ctx, l, number)
	full := FullVersion{Version: v, Source: string(source)}
	if err != nil {
		return full, err
	}
	if p, err := b.parse(source); err == nil {
		full.Rules, full.Defaults = p.Rules(), p.Defaults()
	}
	return full, nil
}

// Put applies a policy as ApplyLayer does, and reports warnings and whether it is in force yet.
func (b *Book) Put(ctx context.Context, by roster.Identity, l Layer, source []byte, expect int64) (Applied, error) {
	checked, err := b.Check(ctx, l, source)
	if err != nil {
		return Applied{}, err
	}
	v, changed, err := b.ApplyLayer(ctx, by, l, source, expect)
	return Applied{l, v, changed, b.InForceOf(l) >= v.Number, checked.Warnings}, err
}

// Check parses a policy for a layer and reports its rules and warnings. It changes nothing.
func (b *Book) Check(ctx context.Context, l Layer, source []byte) (Checked, error) {
	if err := reach(ctx, l); err != nil {
		return Checked{}, err
	}
	p, err := b.parse(source)
	if err == nil {
		err = cmp.Or(p.Check(), b.checkLayer(l, p))
	}
	if err != nil {
		return Checked{}, err
	}
	warnings, err := b.Warnings(ctx, p)
	return Checked{p.Rules(), warnings}, err
}

// Explained is a decision in the ledger, with the rules that were tried and the facts they saw.
type Explained struct {
	Seq    int64        `json:"seq"`
	Policy int64        `json:"policy"` // the version of the server's layer that was in force
	Point  policy.Point `json:"point"`
	Agent  string       `json:"agent"`
	Tool   string       `json:"tool,omitzero"`
	Was    Outcome      `json:"was"` // what was decided then
	// The versions of the narrower layers that were in force, absent for none.
	WorkspacePolicy int64 `json:"workspace_policy,omitzero"`
	UserPolicy      int64 `json:"user_policy,omitzero"`
	policy.Explanation
}

// Explain decides again what an entry says was decided, with the versions that were in force, and says
// why it comes out so. A caller who is confined to a workspace does not see the rules of the server that were tried.
func (b *Book) Explain(ctx context.Context, seq int64) (x Explained, err error) {
	e, err := b.ledger.Visible(ctx, seq)
	if err != nil {
		return x, err
	}
	if b.readers[e.Kind] == nil {
		return x, fault.New(fault.NotFound, "Entry %d (%s) is not a decision of the policy.", seq, e.Kind)
	}
	if e.Body == nil {
		return x, fault.New(fault.NotFound, "The body of entry %d was erased, and with it what was decided about.", seq)
	}
	reading, err := b.read(&e)
	if err != nil {
		return x, err
	}
	d := reading.Decision
	if d == nil {
		return x, fault.New(fault.NotFound, "Entry %d (%s) is not a decision of the policy.", seq, e.Kind)
	}
	rules := layer.Stack{}
	for _, l := range d.layers() {
		p, err := b.version(ctx, l.Layer, l.number)
		if err != nil {
			return x, err
		}
		if l.Layer == (Layer{}) {
			rules.Server = p
		} else {
			rules.Narrower = append(rules.Narrower, narrower(l.Layer, p))
		}
	}
	in := d.input()
	x = Explained{
		Seq: seq, Policy: d.Policy, WorkspacePolicy: d.WorkspacePolicy, UserPolicy: d.UserPolicy, Point: d.Event.Point,
		Agent: d.Agent.Name, Tool: d.Event.Tool, Was: Outcome{d.Then, d.Rule, d.Layer}, Explanation: rules.Explain(ctx, in),
	}
	if wire.Scope(ctx) != "" {
		x.Rules = slices.DeleteFunc(x.Rules, func(r policy.TriedRule) bool { return r.Layer == "" })
	}
	return x, nil
}

// version is a version that was applied, ready to decide.
func (b *Book) version(ctx context.Context, l Layer, number int64) (*policy.Policy, error) {
	v, err := b.numbered(ctx, l, number)
	if err != nil {
		return nil, err
	}
	source, err := b.source(ctx, l, v)
	if err != nil {
		return nil, err
	}
	return b.parse(source)
}

// Trial is a replay that is about to run. There is one at a time, since it uses every
// processor; Try makes it, and Run ends it.
type Trial struct {
	book   *Book
	layer  Layer
	policy *policy.Policy
	since  time.Time
}

// Try prepares the replay of a policy, as a version of a layer, over the decisions since a moment. The caller has to
// call Run, which lets the next trial begin. A second trial is refused with overloaded.
func (b *Book) Try(ctx context.Context, l Layer, source []byte, since time.Time) (*Trial, error) {
	if err := reach(ctx, l); err != nil {
		return nil, err
	}
	p, err := b.parse(source)
	if err != nil {
		return nil, err
	}
	select {
	case b.replays <- struct{}{}:
		return &Trial{b, l, p, since}, nil
	default:
		return nil, fault.New(fault.Overloaded,
			"Another replay is under way, and one takes every processor. Try again when it has ended.")
	}
}

// Run replays, and lets the next trial begin, whatever the outcome. It ends when the server
// stops.
func (t *Trial) Run(ctx context.Context, progress func(done, of int64)) (Report, error) {
	defer func() { <-t.book.replays }()
	ctx, end := wire.UntilStop(ctx)
	defer end()
	report, err := t.book.ReplayLayer(ctx, t.layer, t.policy, t.since, progress)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), store.Explain(err))
	}
	return report, err
}
