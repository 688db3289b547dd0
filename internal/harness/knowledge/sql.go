package knowledge

import (
	"context"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// The kinds of entries. Their subject is the id of a piece. They are stored and never
// renamed.
const (
	kindAdded   = "knowledge.added"
	kindRemoved = "knowledge.removed"
)

// Tables are those that the entries change.
func Tables() []ledger.Table {
	return ledger.Tables("knowledge (id)", "knowledge_word (workspace, word, id)")
}

// Apply is what the entries do to the tables, by their kind.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{kindAdded: applyAdded, kindRemoved: applyRemoved}
}

// applyAdded indexes a piece by its words. If the way in which Words splits texts
// changes, `signalbox ledger rebuild` brings old pieces up to date; until then they are
// found by their old words.
func applyAdded(tx *store.Tx, e *ledger.Entry) error {
	var k known
	if err := e.Decode(&k); err != nil {
		return err
	}
	words := Words(k.Content + "\n" + k.Source + "\n" + k.Path)
	times := map[string]int64{}
	for _, w := range words {
		times[w]++
	}
	tx.Exec("INSERT INTO knowledge (id, workspace, seq, words) VALUES ($1, $2, $3, $4)", e.Subject, e.Workspace, e.Seq,
		len(words))
	for w, n := range times {
		tx.Exec("INSERT INTO knowledge_word (workspace, word, id, times) VALUES ($1, $2, $3, $4)", e.Workspace, w, e.Subject,
			n)
	}
	return nil
}

// applyRemoved takes a piece out of the index. Its entry stays in the ledger.
func applyRemoved(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("DELETE FROM knowledge WHERE id = $1", e.Subject)
	tx.Exec("DELETE FROM knowledge_word WHERE id = $1", e.Subject)
	return nil
}

// selectKnowledge reads pieces together with their entries, which hold the text.
const selectKnowledge = "SELECT k.seq, " + ledger.EntryColumns + " FROM knowledge k JOIN " + ledger.EntryTable +
	" ON e.seq = k.seq "

// read reads pieces, and returns the entry of the last of them, from which the next
// page goes on.
func (b *Base) read(ctx context.Context, where string, args ...any) (all []Knowledge, last int64, err error) {
	all, err = store.All(b.db.Reading(ctx), func(scan store.Scan) (Knowledge, error) {
		var row ledger.Row
		if err := scan(row.After(&last)...); err != nil {
			return Knowledge{}, err
		}
		e, err := row.Entry()
		if err != nil {
			return Knowledge{}, err
		}
		var k known
		err = e.Decode(&k)
		return Knowledge{e.Subject, e.Workspace, k.Content, k.Source, k.Path, k.Confidence, e.At, e.Actor, 0}, err
	}, selectKnowledge+where, args...)
	return all, last, err
}
