package rulebook

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Version is a policy that was applied. Versions are numbered from 1 without gaps, are never
// changed or deleted, and the one with the highest number is in force.
type Version struct {
	Number    int64     `json:"number"`
	SHA256    string    `json:"sha256"`
	AppliedAt time.Time `json:"applied_at"`
	AppliedBy string    `json:"applied_by"`
	Seq       int64     `json:"seq"` // its entry in the ledger
}

const versionColumns = "number, sha256, applied_at, applied_by, seq"

// scanVersion reads a row of versionColumns.
func scanVersion(scan func(...any) error) (v Version, err error) {
	var at int64
	err = scan(&v.Number, &v.SHA256, &at, &v.AppliedBy, &v.Seq)
	v.AppliedAt = time.UnixMicro(at).UTC()
	return v, err
}

// selectVersions begins a query for versions of a layer, whose first parameter is the layer's key.
func (l Layer) selectVersions() string {
	if l == (Layer{}) {
		return "SELECT " + versionColumns + " FROM policy_version WHERE $1 = ''"
	}
	return "SELECT " + versionColumns + " FROM policy_layer WHERE layer = $1"
}

// table is where the versions of the layer are, and row what one of them is called there.
func (l Layer) table() string {
	if l == (Layer{}) {
		return "policy_version"
	}
	return "policy_layer"
}

func (l Layer) row(number int64) string {
	return strings.TrimPrefix(l.key()+" "+fmt.Sprint(number), " ")
}

// entries asks for the entries that apply versions of the layer.
func (l Layer) entries() ledger.Query {
	if l == (Layer{}) {
		return ledger.Query{Kinds: []string{applied}}
	}
	return ledger.Query{Kinds: []string{layered}, Workspace: l.Workspace, Trace: tracePrefix + l.key()}
}

// newest is the version of a layer in force, zero when there is none: that of the last entry that applies one. A table
// that names another is reported, and not followed.
func newest(p ledger.Prover, l Layer) (v Version, err error) {
	var row Version
	agree, err := ledger.Agree(func() (bool, error) {
		rows, err := store.All(p.Query, scanVersion, l.selectVersions()+" ORDER BY number DESC LIMIT 1", l.key())
		if err != nil {
			return false, err
		}
		q := l.entries()
		q.Newest, q.Limit = true, 1
		last, err := p.Entries(q)
		if v, row = (Version{}), (Version{}); len(last) > 0 && err == nil {
			v, err = versionOf(&last[0])
		}
		if len(rows) > 0 {
			row = rows[0]
		}
		return v == row, err
	})
	if err == nil && !agree {
		_ = p.Contradicts(l.table(), l.row(row.Number), "version %d of %s is in force by the table, and version %d by the "+
			"ledger", row.Number, l.phrase(), v.Number)
	}
	return v, err
}

// versionOf is the version that an entry applies.
func versionOf(e *ledger.Entry) (Version, error) {
	number, err := strconv.ParseInt(strings.TrimPrefix(e.Subject, subjectPrefix), 10, 64)
	if err != nil {
		err = fmt.Errorf("entry %d applies a policy without a number: %w", e.Seq, err)
	}
	return Version{Number: number, SHA256: policy.Hash(e.Body), AppliedAt: e.At, AppliedBy: e.Actor, Seq: e.Seq}, err
}

// Version finds a version of a layer by its number, the newest for 0.
func (b *Book) Version(ctx context.Context, l Layer, number int64) (v Version, source []byte, err error) {
	if err := reach(ctx, l); err != nil {
		return v, nil, err
	}
	if number == 0 {
		v, err = newest(b.ledger.Prover(ctx), l)
	} else {
		v, err = b.numbered(ctx, l, number)
	}
	switch {
	case err == nil && v.Number == 0 && l == (Layer{}):
		return v, nil, fault.New(fault.NotFound,
			"There is no policy, so everything is blocked. An admin can apply one with `signalbox policy apply`.")
	case err == nil && v.Number == 0:
		return v, nil, fault.New(fault.NotFound, "Nothing was applied as %s yet, so the other layers decide.", l.phrase())
	case errors.Is(err, sql.ErrNoRows):
		return v, nil, fault.New(fault.NotFound,
			"There is no version %d of %s. `signalbox policy show --versions` lists those there are.", number, l.phrase())
	case err != nil:
		return v, nil, err
	}
	source, err = b.source(ctx, l, v)
	return v, source, err
}

// numbered is a version by its number, or sql.ErrNoRows.
func (b *Book) numbered(ctx context.Context, l Layer, number int64) (Version, error) {
	return scanVersion(b.db.Read.QueryRowContext(ctx, l.selectVersions()+" AND number = $2", l.key(), number).Scan)
}

// source is the YAML of a version, from the body of its entry; the table has only its hash.
func (b *Book) source(ctx context.Context, l Layer, v Version) ([]byte, error) {
	p := b.ledger.Prover(ctx)
	e, err := p.At(v.Seq)
	if err != nil {
		return nil, err
	}
	is, err := versionOf(&e)
	if err != nil || !slices.Contains(l.entries().Kinds, e.Kind) || layerOf(&e) != l || is != v {
		return nil, p.Contradicts(l.table(), l.row(v.Number), "entry %d does not apply version %d of %s", v.Seq, v.Number,
			l.phrase())
	}
	return e.Body, nil
}

// Versions lists versions of a layer before the given one, the newest first; 0 begins.
func (b *Book) Versions(ctx context.Context, l Layer, before int64, limit int) ([]Version, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return store.All(b.db.Reading(ctx), scanVersion, l.selectVersions()+" AND number < $2 ORDER BY number DESC LIMIT $3",
		l.key(), before, limit)
}

// ifNone as expect makes Apply change nothing if there is any version.
const ifNone = -1

// applyTimeout is how long Apply waits for the version to be in force on this node. After it
// the version is applied all the same; the counters that it needs are still being read.
const applyTimeout = 30 * time.Second

// Apply puts a policy in force on every node, as the next version of the server's layer. One that is in
// force already is left as it is. expect, if not 0, is the version that the caller
// has seen; if another is in force by now, nothing is changed. ifNone changes nothing
// if there is any.
func (b *Book) Apply(ctx context.Context, by roster.Identity, source []byte, expect int64) (v Version, changed bool,
	err error,
) {
	return b.ApplyLayer(ctx, by, Layer{}, source, expect)
}

// ApplyLayer is Apply for any layer.
func (b *Book) ApplyLayer(ctx context.Context, by roster.Identity, l Layer, source []byte, expect int64) (v Version,
	changed bool, err error,
) {
	if err := reach(ctx, l); err != nil {
		return v, false, err
	}
	p, err := b.parse(source)
	if err == nil {
		err = cmp.Or(p.Check(), b.checkLayer(l, p))
	}
	if err != nil {
		return v, false, err
	}
	err = b.ledger.Write(ctx, func(tx *ledger.Tx) error {
		if l != (Layer{}) {
			if err := roster.RequireWorkspace(tx, l.Workspace); err != nil {
				return err
			}
		}
		last, err := newest(tx.Prover(), l)
		if err != nil {
			return err
		}
		v, changed = last, false
		sum := policy.Hash(source)
		switch {
		case last.Number > 0 && (expect == ifNone || last.SHA256 == sum):
			return nil
		case expect > 0 && expect != last.Number:
			return fault.New(fault.Conflict,
				"Version %d of %s is in force, by %s, and not %d. Look at it, and apply yours again with its number.",
				last.Number, l.phrase(), last.AppliedBy, expect)
		}
		changed = true
		v = Version{Number: last.Number + 1, SHA256: sum, AppliedAt: tx.Now(), AppliedBy: by.Actor()}
		e := ledger.Event{Kind: applied, Actor: by.Actor(), Subject: subjectPrefix + fmt.Sprint(v.Number), Body: source}
		if l != (Layer{}) {
			e.Kind, e.Workspace, e.Trace = layered, l.Workspace, tracePrefix+l.key()
		}
		v.Seq = tx.Append(e)
		return nil
	})
	if err != nil {
		return Version{}, false, err
	}
	waiting, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if b.await(waiting, l, v.Number) != nil {
		b.log.Warn("policy applied but not in force on this node yet", "layer", l.key(), "version", v.Number)
	}
	return v, changed, nil
}

// Bootstrap applies the default policy if there is none yet, and waits until the
// policy is in force.
func (b *Book) Bootstrap(ctx context.Context) error {
	v, err := newest(b.ledger.Prover(ctx), Layer{})
	if err != nil {
		return err
	}
	if v.Number > 0 {
		return b.await(ctx, Layer{}, v.Number)
	}
	_, _, err = b.Apply(ctx, roster.Identity{}, policy.Default(), ifNone)
	return err
}

// Warnings are about what is valid and probably a mistake: a gate that asks for an operator
// who does not exist, or whom the caller may not see.
func (b *Book) Warnings(ctx context.Context, p *policy.Policy) ([]string, error) {
	people, err := b.roster.Operators(ctx, wire.Scope(ctx))
	if err != nil {
		return nil, err
	}
	names := []string{string(roster.Operator), string(roster.Admin)}
	for _, person := range people {
		if !slices.Contains(names, person.Name) {
			names = append(names, person.Name)
		}
	}
	warnings := []string{}
	for _, r := range p.Rules() {
		for _, who := range r.Approvers {
			if !slices.Contains(names, who) {
				warnings = append(warnings,
					fmt.Sprintf("line %d: the rule %q asks for %q, and there is no such operator. %s", r.Line, r.Name, who,
						fault.DidYouMean(who, names)))
			}
		}
	}
	return warnings, nil
}
