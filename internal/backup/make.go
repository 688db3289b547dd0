package backup

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"filippo.io/age"

	"signalbox/internal/blob"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Parts are what stands on the ledger, as the server knows it.
type Parts struct {
	Schema      []store.Migrations
	Projections []ledger.Projection
	Tables      []ledger.Table // that do not follow from the ledger, and are kept; their rows are few
	Indexes     []string       // cursors of indexes that are made anew, and so begin at the beginning
}

// Source is what a backup is made of.
type Source struct {
	Parts
	DB    *store.DB
	Dir   string // the data folder, with the ledger's key
	Blobs blob.Store
	// Names are the attachments that there are. One whose upload is not complete is not among them.
	Names func(ctx context.Context) ([]string, error)
}

// Made says what a backup has done.
type Made struct {
	Number   int64  `json:"number"`
	Entries  int64  `json:"entries"` // in the backup
	Root     string `json:"root"`
	Written  int64  `json:"entries_written"` // by this one; the others were there
	Blobs    int    `json:"attachments"`
	NewBlobs int    `json:"attachments_written"`
	Bytes    int64  `json:"bytes_written"`
	Unsigned int64  `json:"entries_unsigned"`     // younger than the newest checkpoint, and not in it
	Nothing  bool   `json:"nothing_new,omitzero"` // the backup before has all that there is, and was left as it is
}

// keepManifests is how many backups can be restored; what only older ones name is removed.
const keepManifests = 3

// maker is one backup in the making.
type maker struct {
	Source
	to   *Place
	keys []age.Recipient
	view dump.View
	m    *Manifest
	made Made
	from int64 // the number of entries that were there
}

// Make writes what is not in the place yet, and then the manifest. Without an error the backup can be restored. With one,
// what was there before can. It only reads the database, and may run beside a server, and beside another backup.
func Make(ctx context.Context, s Source, to *Place, recipients []string, now time.Time,
	progress func(done, total int64),
) (Made, error) {
	b := &maker{Source: s, to: to}
	var err error
	if b.keys, err = Recipients(recipients); err != nil {
		return b.made, err
	}
	if b.view, err = s.look(ctx); err != nil {
		return b.made, err
	}
	if b.view.Closed != nil {
		return b.made, fault.Wrap(b.view.Closed, fault.LedgerMismatch, "%s", b.view.Closed.Error())
	}
	if b.view.Size == 0 {
		return b.made, fault.New(fault.NotFound,
			"There is nothing to back up: no checkpoint has been signed yet. Start the server with `signalbox up`.")
	}
	recipients = slices.Sorted(slices.Values(recipients))
	last, err := b.begin(ctx, recipients, now)
	if err != nil {
		return b.made, err
	}
	b.from = b.m.Tree.Size
	err = b.addEntries(ctx, progress)
	if err == nil {
		err = b.addBlobs(ctx)
	}
	if err != nil {
		return b.made, err
	}
	b.made.Entries, b.made.Root, b.made.Blobs = b.view.Size, b.view.Root.String(), len(b.m.Blobs)
	b.made.Unsigned = b.view.Head - b.view.Size
	if last != nil && b.from == b.view.Size && b.made.NewBlobs == 0 && len(b.m.Blobs) == len(last.Blobs) {
		b.made.Number, b.made.Nothing = last.Number, true
		return b.made, nil
	}
	if err := b.addState(ctx); err != nil {
		return b.made, err
	}
	if err := to.publish(ctx, b.m, s.Dir); err != nil {
		return b.made, err
	}
	b.made.Number = b.m.Number
	_ = b.clean(ctx, now) // the next one tries again; a place may forbid it on purpose
	return b.made, nil
}

// look reads what is beside the entries. It waits for a checkpoint over all that was there when it began, so that a backup
// has what was acknowledged before it; three seconds at the most, since there may be nobody to sign.
func (s Source) look(ctx context.Context) (v dump.View, err error) {
	head := int64(1)
	for tries := 0; ; tries++ {
		if v, err = dump.Look(ctx, s.DB, s.Tables); err != nil {
			return v, err
		}
		if tries == 0 {
			head = max(head, v.Head)
		}
		if v.Size >= head || v.Closed != nil || tries == 30 {
			return v, nil
		}
		clock.Pause(ctx, 100*time.Millisecond)
	}
}

// believe believes what any key has signed that the ledger has had.
func (b *maker) believe(signer string) error {
	if !b.view.Chain.Has(signer) {
		return fault.New(fault.LedgerMismatch, "The backups at %s are of another ledger. Use a place of its own.", b.to.name)
	}
	return nil
}

// begin finds the backup that this one goes on from, nil for none. One for other recipients, or of which something is
// missing, is not gone on from: everything is written again.
func (b *maker) begin(ctx context.Context, recipients []string, now time.Time) (last *Manifest, err error) {
	b.m = &Manifest{
		Number: 1, At: now.UTC(), Key: b.view.Key, Took: b.view.Took, Checkpoint: b.view.Newest, Schema: schemaOf(b.Schema),
		Recipients: recipients,
	}
	numbers, there, err := b.to.numbers(ctx)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	if last, err = b.to.manifest(ctx, numbers[len(numbers)-1], b.believe); err != nil {
		return nil, err
	}
	if last.Tree.Size > b.view.Size {
		return nil, fault.New(fault.LedgerMismatch,
			"The backup at %s has %d entries and the ledger %d: this database is older than its backup. Nothing was written.",
			b.to.name, last.Tree.Size, b.view.Size)
	}
	b.m.Number = last.Number + 1
	missing := func(o Object) bool { return !there[o.Name] }
	if !slices.Equal(last.Recipients, recipients) || slices.ContainsFunc(last.objects(), missing) {
		return nil, nil
	}
	b.m.Tree, b.m.Entries, b.m.Notes = last.Tree, last.Entries, last.Notes
	b.m.Blobs = last.Blobs
	return last, nil
}

// store writes an object.
func (b *maker) store(ctx context.Context, kind string, plain []byte) (Object, error) {
	o, err := b.to.seal(ctx, kind, b.keys, plain)
	b.made.Bytes += o.Bytes
	return o, err
}

// addEntries writes the entries that are not in the place, and compares the root of all with the one that was signed.
func (b *maker) addEntries(ctx context.Context, progress func(done, total int64)) error {
	found := notes{Erased: []int64{}}
	var text []byte
	for b.m.Tree.Size < b.view.Size {
		entries, err := dump.Page(ctx, b.DB, b.m.Tree.Size, b.view.Size)
		if err != nil {
			return err
		}
		for i := range entries {
			if err := dump.Grow(&b.m.Tree, &entries[i]); err != nil {
				return err
			}
			text = appendEntry(text, &entries[i])
		}
		erased, err := dump.Erased(ctx, b.DB, entries, b.from)
		if err != nil {
			return err
		}
		found.Erased = append(found.Erased, erased...)
		if len(text) >= objectBytes || b.m.Tree.Size == b.view.Size {
			o, err := b.store(ctx, "entries", text)
			if err != nil {
				return err
			}
			b.m.Entries, text = append(slices.Clip(b.m.Entries), o), text[:0]
		}
		progress(b.m.Tree.Size, b.view.Size)
	}
	if b.m.Tree.Root() != b.view.Root {
		return fault.New(fault.LedgerMismatch,
			"The %d entries in the database do not have the root that was signed: they were changed after the fact. Nothing was "+
				"backed up; the backups before are as they were.", b.view.Size)
	}
	b.made.Written = b.view.Size - b.from
	if b.made.Written == 0 {
		return nil
	}
	return b.addNotes(ctx, found)
}

// addNotes writes what was erased, and the checkpoints that were signed.
func (b *maker) addNotes(ctx context.Context, found notes) error {
	for after := b.from; ; {
		page, err := dump.Checkpoints(ctx, b.DB, after, b.view.Size)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		found.Checkpoints, after = append(found.Checkpoints, page...), page[len(page)-1].Size
	}
	plain, err := wire.Marshal(found)
	if err != nil {
		return err
	}
	o, err := b.store(ctx, "notes", plain)
	b.m.Notes = append(slices.Clip(b.m.Notes), o)
	return err
}

// addBlobs writes the attachments that are not in the place. One that was removed since it was listed is left out.
func (b *maker) addBlobs(ctx context.Context) error {
	names, err := b.Names(ctx)
	if err != nil {
		return err
	}
	there := map[string]Blob{}
	for _, one := range b.m.Blobs {
		there[one.Blob] = one
	}
	b.m.Blobs = []Blob{}
	for _, name := range names {
		one, ok := there[name]
		if !ok {
			plain, err := readBlob(ctx, b.Blobs, name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fault.Wrap(err, fault.StoreUnavailable, "The attachment %s cannot be read.", name)
			}
			if one.Object, err = b.store(ctx, "blob", plain); err != nil {
				return err
			}
			one.Blob = name
			b.made.NewBlobs++
		}
		b.m.Blobs = append(b.m.Blobs, one)
	}
	return nil
}

// addState writes what stands beside the ledger. Cursors behind what is in the backup are set back when it is restored.
func (b *maker) addState(ctx context.Context) error {
	plain, err := wire.Marshal(b.carried(b.view))
	if err != nil {
		return err
	}
	b.m.State, err = b.store(ctx, "state", plain)
	return err
}

// carried is what goes along with the entries.
func (p Parts) carried(v dump.View) state {
	cursors := maps.Clone(v.Cursors)
	for _, name := range p.Indexes {
		delete(cursors, name)
	}
	return state{cursors, v.Tables}
}

// clean removes backups before the last few, and what no backup names. What is younger than a day is left: another
// backup may be about to name it.
func (b *maker) clean(ctx context.Context, now time.Time) error {
	p := b.to
	numbers, _, err := p.numbers(ctx)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for i, number := range numbers {
		if i < len(numbers)-keepManifests && number < b.m.Number {
			if err := p.Remove(ctx, manifestName(number)); err != nil {
				return err
			}
			continue
		}
		kept, err := p.manifest(ctx, number, b.believe)
		if err != nil {
			return nil //nolint:nilerr // somebody has damaged it; what it named is left for those who look into that
		}
		for _, o := range kept.objects() {
			named[o.Name] = true
		}
	}
	old, err := p.Before(ctx, now.Add(-24*time.Hour))
	if err != nil {
		return err
	}
	for _, name := range old {
		if !named[name] && isObject(name) {
			if err := p.Remove(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}
