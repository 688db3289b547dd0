package ledger

import (
	"maps"
	"slices"
	"strings"

	"signalbox/internal/store"
)

// Projection is the part of the state that one package keeps: its tables, and what
// each kind of entry does to them. A package makes one; the server hands all of them to
// Open. Several projections may apply the same kind.
//
// What always holds: applying the entries 1 to N, in order, to empty tables gives the tables
// as they were after entry N. `signalbox ledger rebuild --check` compares.
type Projection struct {
	Name   string
	Tables []Table
	Apply  map[string]Apply
	// Erasable are the kinds whose Apply can do without a body, because it was
	// erased: retention leaves the bodies of all other kinds in Apply alone.
	Erasable []string
}

// Apply changes the tables as the entry says. It depends on nothing but the entry
// and the projection's own tables, since a rebuild runs it again beside the live
// database, where there are no entries. It must not read a clock, draw random numbers or
// look at configuration, or a rebuild would come out differently. An error drops the entry
// together with the write function that appended it.
type Apply func(tx *store.Tx, e *Entry) error

// ApplyBody is an Apply that reads the entry's body, which it must not change.
func ApplyBody[T any](apply func(tx *store.Tx, e *Entry, b *T)) Apply {
	return TryBody(func(tx *store.Tx, e *Entry, b *T) error {
		apply(tx, e, b)
		return nil
	})
}

// TryBody is ApplyBody for what may fail.
func TryBody[T any](apply func(tx *store.Tx, e *Entry, b *T) error) Apply {
	return func(tx *store.Tx, e *Entry) error {
		b, err := Read[T](e)
		if err != nil {
			return err
		}
		return apply(tx, e, b)
	}
}

// Table is a table that is rebuilt and compared.
type Table struct {
	Name string
	Key  string // the columns of the primary key, as in ORDER BY; they come first in the table
}

// Tables reads tables with their keys, each written as in "agent_public_key (agent, fingerprint)".
func Tables(all ...string) []Table {
	tables := make([]Table, len(all))
	for i, text := range all {
		name, key, _ := strings.Cut(text, " (")
		tables[i] = Table{name, strings.TrimSuffix(key, ")")}
	}
	return tables
}

// projections is what a ledger knows of the packages that follow it.
type projections struct {
	all   []Projection
	apply map[string][]Apply
	kept  []string // kinds whose bodies are not erased
}

// combine indexes the apply functions by kind, and finds out whose bodies retention must
// leave alone (LED-14): those of every kind that some projection cannot apply without.
func combine(all []Projection) projections {
	p := projections{all: all, apply: map[string][]Apply{}}
	// What was erased stays on record, else each erasing would leave one to erase.
	kept := map[string]bool{bodyErased: true, Rotated: true}
	for _, one := range all {
		for kind, apply := range one.Apply {
			p.apply[kind] = append(p.apply[kind], apply)
			if !slices.Contains(one.Erasable, kind) {
				kept[kind] = true
			}
		}
	}
	p.kept = slices.Sorted(maps.Keys(kept))
	return p
}

// run applies an entry with every projection that knows its kind, in the order in which they
// were given to Open.
func (p projections) run(tx *store.Tx, e *Entry) error {
	for _, apply := range p.apply[e.Kind] {
		if err := apply(tx, e); err != nil {
			return err
		}
	}
	return nil
}
