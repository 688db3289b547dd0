package ledger

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/fault"
	"signalbox/internal/ledger/notes"
)

// Rotated is the kind of the entry by which a key takes over (LED-37).
const Rotated = "ledger.rotated"

// rotated is its body: a notes.Succession from the entry's own number on.
type rotated struct {
	Note string `json:"note"`
}

// succession reads what an entry of the kind Rotated says.
func succession(e *Entry) (notes.Succession, error) {
	var b rotated
	err := e.Decode(&b)
	var s notes.Succession
	if err == nil {
		s, err = notes.OpenSuccession([]byte(b.Note))
	}
	if err == nil && s.From != e.Seq {
		err = fmt.Errorf("it is for entry %d", s.From)
	}
	if err != nil {
		err = fault.Wrap(err, fault.VerificationFailed, "Entry %d does not hand the ledger over to another key: %s", e.Seq,
			fault.From(err).Message)
	}
	return s, err
}

// Successions are the keys that took over by an entry after the given one, in the database of a ledger.
func Successions(ctx context.Context, r reader, after int64) (all []notes.Succession, err error) {
	entries, err := readEntries(ctx, r, "SELECT record, salt, body FROM ledger_entry WHERE kind = $1 AND seq > $2 ORDER BY seq",
		Rotated, after)
	for i := 0; i < len(entries) && err == nil; i++ {
		var s notes.Succession
		s, err = succession(&entries[i])
		all = append(all, s)
	}
	return all, err
}

// followed is a chain with the keys that entries after its last one have put in force.
func followed(ctx context.Context, r reader, chain notes.Chain) (notes.Chain, error) {
	all, err := Successions(ctx, r, chain.Last().From)
	for i := 0; i < len(all) && err == nil; i++ {
		chain, err = chain.With(all[i])
	}
	return chain, err
}

// followKeys takes over the keys that other nodes, or Rotate, have put in force.
func (l *Ledger) followKeys(ctx context.Context) error {
	l.rekeying.Lock()
	defer l.rekeying.Unlock()
	is := l.key.Load()
	chain, err := followed(ctx, l.db.Read, is.chain)
	if fault.Is(err, fault.VerificationFailed) {
		return fault.Wrap(err, fault.LedgerMismatch, "%s", fault.From(err).Message)
	}
	if err != nil || chain.Last().Text == is.chain.Last().Text {
		return err
	}
	k, err := l.hold(chain)
	if err != nil {
		return err
	}
	if k.signer == nil && is.signer != nil {
		l.log.Warn("another node has replaced the ledger's key; this one does not sign until it has the new "+KeyFile,
			"folder", l.dir)
	}
	l.key.Store(k)
	return nil
}

// Rotate makes a new key, which signs the checkpoints over its own entry and all later ones. Both keys sign that. The
// new key is in the folder before its entry is written: whenever the process is killed, the next start has the key
// that the entries say. Nodes of other folders verify by it at once, and sign again when they are given the file.
func (l *Ledger) Rotate(ctx context.Context, actor string) (notes.Succession, error) {
	l.rotating.Lock()
	defer l.rotating.Unlock()
	var s notes.Succession
	if err := l.followKeys(ctx); err != nil {
		return s, err
	}
	is := l.key.Load()
	if is.signer == nil {
		return s, fault.New(fault.Conflict,
			"This node does not have the ledger's key, and only who has it can hand over to another. Run this on the node "+
				"whose data folder has the %s in force.", KeyFile)
	}
	private, public, err := note.GenerateKey(rand.Reader, is.signer.Name())
	if err != nil {
		return s, fmt.Errorf("make the ledger's key: %w", err)
	}
	next, err := note.NewSigner(private)
	if err != nil {
		return s, err
	}
	path := filepath.Join(l.dir, NextKeyFile)
	if err := replaceFile(path, private+"\n", 0o600); err != nil {
		return s, err
	}
	err = l.Write(ctx, func(tx *Tx) error {
		var later int
		if err := tx.QueryRow("SELECT count(*) FROM ledger_entry WHERE kind = $1 AND seq > $2",
			[]any{Rotated, is.chain.Last().From}, &later); err != nil {
			return err
		}
		if later > 0 {
			return fault.New(fault.Conflict, "Another node has replaced the ledger's key just now. Nothing was changed.")
		}
		var err error
		if s, err = notes.Succeed(tx.head.seq+1, is.signer, next, is.chain.Last().Text, public); err == nil {
			tx.Append(Event{Kind: Rotated, Actor: actor, Body: rotated{string(s.Note)}})
		}
		return err
	})
	if err != nil {
		if !fault.Is(err, fault.OutcomeUnknown) { // it may be the key: the next start finds out
			_ = os.Remove(path)
		}
		return s, err
	}
	if err := l.followKeys(context.WithoutCancel(ctx)); err != nil {
		return s, err
	}
	return s, l.Checkpoint(context.WithoutCancel(ctx))
}
