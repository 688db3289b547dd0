package attachment

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"

	"signalbox/internal/fault"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/roster"
)

// file is an attachment that is open for reading. The caller closes it.
type file struct {
	io.ReadSeekCloser
	record
}

// findFor finds an attachment for its sender, or for the recipient of its message. Others get
// the answer for one that does not exist.
func (t *Attachments) findFor(ctx context.Context, who roster.Identity, id string) (record, error) {
	a, err := t.find(ctx, id)
	if err != nil || a.agent == who.ID {
		return a, err
	}
	if got, err := t.options.Received(ctx, who.ID, a.message); err != nil || !got {
		return record{}, cmp.Or(err, error(notFound(id)))
	}
	return a, nil
}

// download opens an attachment for its sender, or for the recipient of its message.
func (t *Attachments) download(ctx context.Context, who roster.Identity, id string) (*file, error) {
	a, err := t.findFor(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, a)
}

// shared opens an attachment for anybody who has its signed URL.
func (t *Attachments) shared(ctx context.Context, id, ticket string) (*file, error) {
	if err := t.checkTicket(forDownload, id, ticket); err != nil {
		return nil, err
	}
	a, err := t.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, a)
}

// open opens an attachment that is not expired and has passed the scan; suspicious passes.
func (t *Attachments) open(ctx context.Context, a record) (*file, error) {
	if err := a.expired(t.core.Now()); err != nil {
		return nil, err
	}
	switch {
	case a.scanStatus() == "pending":
		return nil, fault.New(fault.AttachmentPending, "The attachment %s is not scanned yet.", a.id)
	case a.status == inspect.Rejected:
		return nil, fault.New(fault.AttachmentRejected, "The scan rejected the attachment %s, and it was deleted.", a.id)
	}
	kept, err := t.options.Blobs.Get(ctx, a.blob)
	// Removed by a sweep between the look-up and now.
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(err, fault.AttachmentExpired, "The attachment %s no longer exists.", a.id)
	}
	if err != nil {
		return nil, err
	}
	return &file{kept, a}, nil
}
