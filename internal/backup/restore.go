package backup

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"filippo.io/age"

	"signalbox/internal/blob"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/dump"
	keys "signalbox/internal/ledger/notes"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Target is where a ledger is brought back: an empty database with the tables of this program, and a data folder with the
// ledger's key.
type Target struct {
	Parts
	DB    *store.DB
	Dir   string
	Blobs blob.Store
}

// Order says what is brought back.
type Order struct {
	From   *Place
	Number int64 // which backup; 0 is the newest
	Who    []age.Identity
	Known  [][]byte // checkpoints that were kept elsewhere; they say what is missing, and show another history
	By     string   // who restores
	Now    time.Time
}

// Restored is what was brought back, and the body of the entry ledger.restored.
type Restored struct {
	By      string    `json:"by"`
	From    string    `json:"from"`
	Number  int64     `json:"number"`
	At      time.Time `json:"at"` // when the backup was made
	Entries int64     `json:"entries"`
	Root    string    `json:"root"`
	Blobs   int       `json:"attachments"`
	// Missing is how many entries are known to have been recorded after the backup; nil if nobody told.
	Missing *int64 `json:"missing"`
	// Newest is the newest checkpoint that was known, if it is over entries that are missing.
	Newest string `json:"newest_checkpoint,omitzero"`
}

// KindRestored is the entry that a restored ledger goes on with.
const KindRestored = "ledger.restored"

// lostCheckpoint is where the checkpoint of a data folder is kept that is over more entries than the backup.
const lostCheckpoint = ledger.CheckpointFile + ".lost"

// restorer is one restore under way.
type restorer struct {
	Target
	Order
	m      *Manifest
	w      *dump.Writer
	keys   keys.Chain
	erased bits
	out    Restored
}

// Restore fills the database with the entries of a backup. It verifies each of them, and their root against the signed
// checkpoint with the key in the folder, before the database can be opened by a server. After a crash the same call goes on
// where it was.
func Restore(ctx context.Context, t Target, o Order, progress func(done, total int64)) (Restored, error) {
	r := &restorer{Target: t, Order: o, erased: bits{}}
	if err := r.begin(ctx); err != nil {
		return r.out, err
	}
	r.out = Restored{
		By: o.By, From: o.From.name, Number: r.m.Number, At: r.m.At, Entries: r.m.Tree.Size,
		Root: r.m.Tree.Root().String(), Blobs: len(r.m.Blobs),
	}
	if err := r.open(ctx); err != nil {
		return r.out, err
	}
	for _, step := range []func(context.Context, func(done, total int64)) error{r.readErased, r.addEntries, r.addBlobs} {
		if err := step(ctx, progress); err != nil {
			return r.out, err
		}
	}
	return r.out, r.finish(ctx)
}

// begin finds the manifest, and checks that this program can read what it is about.
func (r *restorer) begin(ctx context.Context) error {
	if r.Number == 0 {
		numbers, _, err := r.From.numbers(ctx)
		if err != nil {
			return err
		}
		if len(numbers) == 0 {
			return fault.New(fault.NotFound, "There is no backup at %s.", r.From.name)
		}
		r.Number = numbers[len(numbers)-1]
	}
	var err error
	if r.m, err = r.From.manifest(ctx, r.Number, inFolder(r.Dir)); err != nil {
		return err
	}
	ours := schemaOf(r.Schema)
	for name, steps := range r.m.Schema {
		if steps > ours[name] {
			return fault.New(fault.SchemaNewer,
				"The backup was made by a newer Signalbox (its %s tables are ahead of this program). Restore it with that version.",
				name)
		}
	}
	if r.keys, err = dump.Chain(r.m.Key, r.m.Took); err != nil {
		return err
	}
	c, err := r.keys.Open([]byte(r.m.Checkpoint))
	if err == nil && (c.Size != r.m.Tree.Size || c.Root != r.m.Tree.Root()) {
		err = fault.New(fault.VerificationFailed, "The manifest and its checkpoint are about different entries.")
	}
	return err
}

// open closes the database for everybody else, or finds out how far it was filled.
func (r *restorer) open(ctx context.Context) error {
	at, err := dump.Look(ctx, r.DB, nil)
	if err != nil {
		return err
	}
	if at.Closed != nil { // what an earlier call has put away
		lost, err := os.ReadFile(filepath.Join(r.Dir, lostCheckpoint))
		if err == nil {
			r.Known = append(r.Known, lost)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	closed := dump.Closed{State: dump.Restoring, Other: strconv.FormatInt(r.Number, 10), At: r.Now, Key: r.m.Key}
	var bad error
	r.w, err = dump.Begin(ctx, r.DB, r.Projections, closed, func(w *dump.Writer) {
		w.Expect(r.m.Tree.Size, r.m.Tree.Root())
		most := int64(-1)
		for _, text := range r.Known {
			c, err := r.keys.Open(text)
			if err != nil {
				bad = errors.Join(bad, err)
				continue
			}
			if c.Size <= r.m.Tree.Size {
				w.Expect(c.Size, c.Root)
			}
			if c.Size > most {
				most = c.Size
				if c.Size > r.m.Tree.Size {
					r.out.Newest = string(text)
				}
			}
		}
		if most >= 0 {
			missing := max(0, most-r.m.Tree.Size)
			r.out.Missing = &missing
		}
	})
	return errors.Join(bad, err)
}

// readErased finds out which bodies were erased after they had been written to the place.
func (r *restorer) readErased(ctx context.Context, _ func(done, total int64)) error {
	return r.eachNotes(ctx, func(n notes) error {
		for _, seq := range n.Erased {
			r.erased.add(seq)
		}
		return nil
	})
}

// eachNotes reads the notes of all backups up to this one.
func (r *restorer) eachNotes(ctx context.Context, fn func(notes) error) error {
	for _, o := range r.m.Notes {
		var n notes
		plain, err := r.From.open(ctx, o, r.Who)
		if err == nil {
			err = wire.UnmarshalPart(plain, &n)
		}
		if err == nil {
			err = fn(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addEntries adds the entries that are not there yet.
func (r *restorer) addEntries(ctx context.Context, progress func(done, total int64)) error {
	for _, o := range r.m.Entries {
		text, err := r.From.open(ctx, o, r.Who)
		if err != nil {
			return err
		}
		var page []ledger.Entry
		for size := 0; len(text) > 0; {
			e, rest, err := nextEntry(text, r.erased)
			if err != nil {
				return err
			}
			if e.Seq > r.w.Tree.Size { // else it is there since an earlier call
				page = append(page, e)
				size += len(text) - len(rest)
			}
			if text = rest; len(page) == ledger.Page || size >= pageBytes || len(rest) == 0 && len(page) > 0 {
				if err := r.w.Add(ctx, page); err != nil {
					return err
				}
				page, size = page[:0], 0
				progress(r.w.Tree.Size, r.m.Tree.Size)
			}
		}
	}
	if r.w.Tree.Size != r.m.Tree.Size {
		return fault.New(fault.VerificationFailed, "The backup has %d entries and its checkpoint is over %d.", r.w.Tree.Size,
			r.m.Tree.Size)
	}
	return r.eachNotes(ctx, func(n notes) error { return r.w.AddCheckpoints(ctx, n.Checkpoints) })
}

// pageBytes is how much of a backup goes into one transaction, beside the last entry.
const pageBytes = 4 << 20

// addBlobs puts the attachments back. One that is there is left alone if it is the same; else it is half of one.
func (r *restorer) addBlobs(ctx context.Context, _ func(done, total int64)) error {
	for _, one := range r.m.Blobs {
		plain, err := r.From.open(ctx, one.Object, r.Who)
		if err != nil {
			return err
		}
		there, err := readBlob(ctx, r.Blobs, one.Blob)
		if err == nil && bytes.Equal(there, plain) {
			continue
		}
		if err == nil {
			err = r.Blobs.Remove(ctx, one.Blob)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err == nil {
			_, err = r.Blobs.Put(ctx, one.Blob, bytes.NewReader(plain), int64(len(plain)))
		}
		if err != nil {
			return fault.Wrap(err, fault.StoreUnavailable, "Cannot put the attachment %s back.", one.Blob)
		}
	}
	return nil
}

// finish adds what stands beside the ledger, and the entry that says that it was restored, and opens the database. The
// checkpoint of the folder, which may be over entries that are lost, is put aside first: servers compare it.
func (r *restorer) finish(ctx context.Context) error {
	plain, err := r.From.open(ctx, r.m.State, r.Who)
	var s state
	if err == nil {
		err = wire.UnmarshalPart(plain, &s)
	}
	if err != nil {
		return err
	}
	for _, t := range s.Tables {
		if !r.keeps(t.Name) {
			return fault.New(fault.VerificationFailed, "The backup has a table %q that this program does not keep.", t.Name)
		}
	}
	path := filepath.Join(r.Dir, ledger.CheckpointFile)
	if err := os.Rename(path, filepath.Join(r.Dir, lostCheckpoint)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot move %s aside. Check that this user may write there.", path)
	}
	err = r.w.Finish(ctx, dump.View{Cursors: s.Cursors, Tables: s.Tables}, &ledger.Event{
		Kind: KindRestored, Actor: "system", Body: r.out,
	}, r.Now)
	return err
}

func (r *restorer) keeps(table string) bool {
	for _, t := range r.Tables {
		if t.Name == table {
			return true
		}
	}
	return false
}
