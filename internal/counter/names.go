package counter

import (
	"context"
	"strings"
	"time"

	"signalbox/internal/store"
)

// Agents name decks and models as they like. One that invents a name for each call must not make the tables grow with
// every call, nor hide what others did: so each agent has a number of names for a day, and so has the workspace. What
// has no name left is counted under Other, to the last token.

// Other is the name under which is counted what has no name left.
const Other = "(other)"

const (
	// namesOfAgent is how many decks, and how many models, of an agent are told apart on a day.
	namesOfAgent = 50
	// namesOfAll is how many of a workspace are.
	namesOfAll = 500
	// maxName is how many bytes of a name are kept.
	maxName = 200
)

// What names are of.
const (
	ofDeck  = "deck"
	ofModel = "model"
	ofRule  = "rule"
)

// nameKey is a row of counter_name: a name that an agent, or with agent "" anybody, has used on a day, or with day ""
// at any time. With name "" it is the key of how many there are.
type nameKey struct{ day, workspace, of, agent, name string }

// names are those that have been given out. They are of the page of entries that is counted next: at is the entry
// before it.
type names struct {
	at     int64
	known  map[nameKey]bool
	n      map[nameKey]int
	loaded map[[2]string]bool // by day and workspace
	fresh  []nameKey          // to be stored
}

func newNames(at int64) *names {
	return &names{at: at, known: map[nameKey]bool{}, n: map[nameKey]int{}, loaded: map[[2]string]bool{}}
}

// load reads the names of a day and of all time, once.
func (n *names) load(ctx context.Context, db *store.DB, day, workspace string) error {
	for _, day := range []string{day, ""} {
		if n.loaded[[2]string{day, workspace}] {
			continue
		}
		err := store.Each(db.Reading(ctx), func(scan store.Scan) error {
			key := nameKey{day: day, workspace: workspace}
			if err := scan(&key.of, &key.agent, &key.name); err != nil {
				return err
			}
			n.note(key)
			return nil
		}, "SELECT what, agent, name FROM counter_name WHERE day = $1 AND workspace = $2", day, workspace)
		if err != nil {
			return err
		}
		n.loaded[[2]string{day, workspace}] = true
	}
	return nil
}

// note adds a name that was not known.
func (n *names) note(key nameKey) {
	if n.known[key] {
		return
	}
	n.known[key] = true
	key.name = ""
	n.n[key]++
}

// give is the name under which something is counted: its own while the agent and the workspace have names left.
func (n *names) give(key nameKey) string {
	if key.name == "" || key.name == Other || key.of == ofDeck && key.name == DefaultDeck {
		return key.name
	}
	if len(key.name) > maxName {
		key.name = strings.ToValidUTF8(key.name[:maxName], "") + "…"
	}
	if n.known[key] {
		return key.name
	}
	all, own, each := key, key, key
	all.agent, own.name, each.agent, each.name = "", "", "", ""
	if key.agent != "" && n.n[own] >= namesOfAgent || !n.known[all] && n.n[each] >= namesOfAll {
		return Other
	}
	for _, one := range []nameKey{key, all} {
		if !n.known[one] {
			n.note(one)
			n.fresh = append(n.fresh, one)
		}
	}
	return key.name
}

// save queues the writes of the names that were given out, and drops those of days that are over. Entries have
// times that never fall.
func (n *names) save(tx *store.Tx, newest time.Time) {
	for _, key := range n.fresh {
		tx.Exec("INSERT INTO counter_name (day, workspace, what, agent, name) VALUES ($1, $2, $3, $4, $5)", key.day,
			key.workspace, key.of, key.agent, key.name)
	}
	if yesterday := newest.UTC().AddDate(0, 0, -1).Format(time.DateOnly); len(n.fresh) > 0 {
		tx.Exec("DELETE FROM counter_name WHERE day <> '' AND day < $1", yesterday)
	}
}

// saved says that the page is stored, up to an entry. What is over is forgotten.
func (n *names) saved(at int64, newest time.Time) {
	n.at, n.fresh = at, nil
	yesterday := newest.UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	for key := range n.loaded {
		if key[0] != "" && key[0] < yesterday {
			*n = *newNames(at)
			return
		}
	}
}
