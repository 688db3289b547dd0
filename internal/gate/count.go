package gate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
)

// Readers tell rules of gates that people rejected.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{"gate.resolved": func(e *ledger.Entry) (rulebook.Reading, error) {
		var b Resolution
		if err := e.Decode(&b); err != nil || b.Status != Rejected {
			return rulebook.Reading{}, err
		}
		return rulebook.Reading{Facts: []rulebook.Fact{{Agent: b.Agent, What: "rejections", N: 1}}}, nil
	}}
}

// Waiting is how many gates of an agent wait in a project.
type Waiting struct {
	Workspace, Project, Agent string // the agent's id
	Gates                     int64
}

// Waiting counts the gates that wait, whatever status the filter asks for, and says since
// when the oldest of them does.
func (g *Gates) Waiting(ctx context.Context, f Filter) (all []Waiting, oldest *time.Time, err error) {
	where, args := "($1 = '' OR workspace = $1) AND ($2 = '' OR project = $2)", []any{f.Workspace, f.Project}
	if f.Agents != nil {
		var marks []string
		for _, agent := range f.Agents {
			args = append(args, agent)
			marks = append(marks, fmt.Sprintf("$%d", len(args)))
		}
		where += " AND agent IN (" + strings.Join(marks, ", ") + ")"
	}
	var first int64
	all, err = store.All(g.db.Reading(ctx), func(scan store.Scan) (w Waiting, err error) {
		var seq int64
		err = scan(&w.Workspace, &w.Project, &w.Agent, &w.Gates, &seq)
		if first == 0 || seq < first {
			first = seq
		}
		return w, err
	}, "SELECT workspace, project, agent, count(*), min(opened_seq) FROM gate_waiting WHERE "+where+" GROUP BY workspace, project, agent", args...)
	if err != nil || first == 0 {
		return all, nil, err
	}
	opened, err := g.ledger.Entry(ctx, first)
	return all, &opened.At, err
}
