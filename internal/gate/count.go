package gate

import (
	"context"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
)

// Readers let rules count the gates of an agent that were rejected (recent.rejections). An
// expiry that rejects counts as well; a gate that was withdrawn does not.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{"gate.resolved": func(e *ledger.Entry) (rulebook.Reading, error) {
		var b Resolution
		if err := e.Decode(&b); err != nil || b.Status != Rejected || b.Cause == ByEnd {
			return rulebook.Reading{}, err
		}
		return rulebook.Reading{Facts: []rulebook.Fact{{
			Belongs: rulebook.Belongs{Agent: b.Agent}, What: "rejections", N: 1,
		}}}, nil
	}}
}

// Waiting is how many gates of an agent wait in a project.
type Waiting struct {
	Workspace, Project, Agent string // the agent's id
	Gates                     int64
}

// Waiting counts the gates that wait, by project and agent, and returns when the oldest of
// them was opened, nil if none waits. The status of the filter is ignored.
func (g *Gates) Waiting(ctx context.Context, f Filter) (all []Waiting, oldest *time.Time, err error) {
	var where store.Where
	where.Equal("workspace", f.Workspace)
	f.add(&where, func(name string) string { return name })
	var first int64
	all, err = store.All(g.db.Reading(ctx), func(scan store.Scan) (w Waiting, err error) {
		var seq int64
		err = scan(&w.Workspace, &w.Project, &w.Agent, &w.Gates, &seq)
		if first == 0 || seq < first {
			first = seq
		}
		return w, err
	}, "SELECT workspace, project, agent, count(*), min(opened_seq) FROM gate_waiting WHERE "+where.String()+
		" GROUP BY workspace, project, agent", where.Args()...)
	if err != nil || first == 0 {
		return all, nil, err
	}
	opened, err := g.ledger.Entry(ctx, first)
	return all, &opened.At, err
}

// WaitingRisk is how many gates of a risk wait in a workspace.
type WaitingRisk struct {
	Workspace, Risk string
	Gates           int64
	Oldest          time.Time // when the oldest was opened
}

// WaitingByRisk counts the gates that wait in a workspace, or in all for "".
func (g *Gates) WaitingByRisk(ctx context.Context, workspace string) ([]WaitingRisk, error) {
	var where store.Where
	where.And("opened_seq > %s", 0)
	where.Equal("workspace", workspace)
	var first []int64
	all, err := store.All(g.db.Reading(ctx), func(scan store.Scan) (w WaitingRisk, err error) {
		var risk, seq int64
		err = scan(&w.Workspace, &risk, &w.Gates, &seq)
		w.Risk, first = Risks[min(max(risk, 0), int64(len(Risks)-1))], append(first, seq)
		return w, err
	}, "SELECT workspace, risk, count(*), min(opened_seq) FROM gate_waiting WHERE "+where.String()+
		" GROUP BY workspace, risk", where.Args()...)
	for i := 0; i < len(all) && err == nil; i++ {
		var opened ledger.Entry
		opened, err = g.ledger.Entry(ctx, first[i])
		all[i].Oldest = opened.At
	}
	return all, err
}

// WaitingSince counts, of the gates that wait in a workspace, or in all for "", those that were opened at each of the
// moments or later.
func (g *Gates) WaitingSince(ctx context.Context, workspace string, moments ...time.Time) ([]int64, error) {
	var where store.Where
	var sums []string
	counts, into := make([]int64, len(moments)), make([]any, len(moments))
	for i, at := range moments {
		before, err := g.ledger.SeqBefore(ctx, at)
		if err != nil {
			return nil, err
		}
		sums = append(sums, "CAST(COALESCE(sum(CASE WHEN opened_seq > "+strconv.FormatInt(before, 10)+
			" THEN 1 ELSE 0 END), 0) AS BIGINT)")
		into[i] = &counts[i]
	}
	where.And("opened_seq > %s", 0)
	where.Equal("workspace", workspace)
	err := g.db.Read.QueryRowContext(ctx, "SELECT "+strings.Join(sums, ", ")+" FROM gate_waiting WHERE "+where.String(),
		where.Args()...).Scan(into...)
	return counts, err
}
