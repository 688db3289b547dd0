package mail

import (
	"cmp"
	"context"
	"slices"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Words are indexed in steps: a transaction for each message would cost as much as sending it.
// What comes in so short a time the ledger still has in memory.
const wordsEvery = 75 * time.Millisecond

// hasWords selects the entries that findWords follows.
func hasWords(kind string) bool { return kind == kindRouted || kind == kindErased }

// indexWords indexes messages by the words of subject and text, and by their agents, and removes
// the words of erased ones. It follows the ledger, so that no sender waits for it, and moves its cursor on in the
// same transaction.
func (m *Mail) indexWords(ctx context.Context, entries []ledger.Entry, move func(*store.Tx) error) error {
	if len(entries) < ledger.Page {
		defer clock.Pause(ctx, wordsEvery) // let some messages gather for the next step
	}
	// An erased message has no words; message.erased, which comes later, removes those it had.
	ours := slices.DeleteFunc(slices.Clone(entries), func(e ledger.Entry) bool { return e.Body == nil })
	if len(ours) == 0 {
		return nil
	}
	// The lock is one that no sender takes: indexing must not hold up the write path.
	tx, err := m.core.DB.Begin(ctx, ledger.CursorLock)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// Nothing, but for entries that a version before 0.2 has indexed without moving its cursor on.
	m.core.DB.DropWords(tx, "mail_words", ours[0].Seq, ours[len(ours)-1].Seq)
	var parties []party
	for i := range ours {
		more, err := m.indexEntry(tx, &ours[i])
		if err != nil {
			return err
		}
		parties = append(parties, more...)
	}
	addParties(tx, parties)
	if err := move(tx); err != nil {
		return err
	}
	_, err = tx.Commit(false)
	return err
}

// indexEntry indexes the words of one entry, or removes them, and returns the rows of mail_party
// that it makes.
func (m *Mail) indexEntry(tx *store.Tx, e *ledger.Entry) (parties []party, err error) {
	if e.Kind == kindErased {
		var b erased
		if err := e.Decode(&b); err != nil {
			return nil, err
		}
		for i := range b.Messages {
			m.core.DB.DropWords(tx, "mail_words", b.Messages[i].Seq, b.Messages[i].Seq)
			parties = append(parties, b.Messages[i].Meta.parties(b.Messages[i].Seq)...)
		}
		return parties, nil
	}
	b, err := readRouted(e)
	if err != nil {
		return nil, err
	}
	m.core.DB.PutWords(tx, "mail_words", e.Seq, b.Meta.Envelope.Subject+"\n"+b.text)
	return b.Meta.parties(e.Seq), nil
}

// readRouted reads Meta and text of a message for a follower of the ledger: from memory on the
// node that wrote it, else from the body, of which the rest of the payload is skipped.
func readRouted(e *ledger.Entry) (*routed, error) {
	// Written by this process a moment ago: nothing has to be decoded.
	if b, ok := e.Value().(*routed); ok {
		return b, nil
	}
	var b struct {
		Meta    Meta `json:"meta"`
		Payload struct {
			Message wire.Raw `json:"message"`
		} `json:"payload"`
	}
	if err := wire.UnmarshalPart(e.Body, &b); err != nil {
		return nil, err
	}
	text, _ := wire.Text(b.Payload.Message) // ReadDraft has checked that it is text
	return &routed{Meta: b.Meta, text: text}, nil
}

// party is a row of mail_party: an agent that sent or received a message.
type party struct {
	agent string
	seq   int64
}

// parties are the rows of a message, one for each side that is an agent of ours.
func (m *Meta) parties(seq int64) []party {
	all := []party{{m.Sender, seq}, {m.Recipient, seq}}
	return slices.DeleteFunc(all, func(p party) bool { return p.agent == "" })
}

// partyRows is how many rows one statement inserts; the rest go one by one.
const partyRows = 32

var insertParties = "INSERT INTO mail_party (agent, seq) VALUES " + store.RowMarks(partyRows,
	2) + " ON CONFLICT DO NOTHING"

// addParties inserts rows of mail_party, sorted, so that each page of the table is touched once.
func addParties(tx *store.Tx, all []party) {
	slices.SortFunc(all, func(a, b party) int { return cmp.Or(cmp.Compare(a.agent, b.agent), cmp.Compare(a.seq, b.seq)) })
	// Full statements first, which the database has prepared.
	for ; len(all) >= partyRows; all = all[partyRows:] {
		args := make([]any, 0, 2*partyRows)
		for _, p := range all[:partyRows] {
			args = append(args, p.agent, p.seq)
		}
		tx.Exec(insertParties, args...)
	}
	for _, p := range all {
		tx.Exec("INSERT INTO mail_party (agent, seq) VALUES ($1, $2) ON CONFLICT DO NOTHING", p.agent, p.seq)
	}
}
