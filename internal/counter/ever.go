package counter

import (
	"context"

	"signalbox/internal/gate"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// EverSum is what was counted from the beginning for a protocol, or for a model of it.
type EverSum struct {
	Workspace, Protocol, Model string
	Counts                     Sum
}

// Ever is what was counted from the beginning, for metrics, which only rise. Models that are too many to be told apart
// over all time are one under Other.
type Ever struct {
	Models, Protocols []EverSum
	Waiting           map[string]int64 // gates, by workspace
}

// Ever adds up what was counted, of the workspaces that the caller may see.
func (c *Counters) Ever(ctx context.Context) (all Ever, err error) {
	var where store.Where
	where.And("axis = %s", axisEver)
	where.Equal("workspace", wire.Scope(ctx))
	for _, kind := range []struct {
		columns, group string
		into           *[]EverSum
	}{
		{"workspace, protocol, name", "1, 2, 3", &all.Models},
		{"workspace, protocol, ''", "1, 2", &all.Protocols},
	} {
		*kind.into, err = store.All(c.db.Reading(ctx), func(scan store.Scan) (one EverSum, err error) {
			var p part
			err = addingAll.scan(scan, &p.Counts, &one.Workspace, &one.Protocol, &one.Model)
			one.Counts = p.sum()
			return one, err
		}, "SELECT "+kind.columns+addingAll.columns()+" FROM counter_sum WHERE "+where.String()+" GROUP BY "+kind.group,
			where.Args()...)
		if err != nil {
			return all, err
		}
	}
	waiting, _, err := c.gates.Waiting(ctx, gate.Filter{Workspace: wire.Scope(ctx)})
	all.Waiting = map[string]int64{}
	for _, w := range waiting {
		all.Waiting[w.Workspace] += w.Gates
	}
	return all, err
}
