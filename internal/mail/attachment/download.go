package attachment

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"signalbox/internal/fault"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/roster"
)

// file is an attachment that may be read. Whoever has it closes it.
type file struct {
	io.ReadSeekCloser
	record
}

// download opens an attachment for its sender, or the recipient of its message.
func (t *Attachments) download(ctx context.Context, who roster.Identity, id string) (*file, error) {
	a, err := t.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if a.agent != who.ID {
		if got, err := t.options.Received(ctx, who.ID, a.message); err != nil {
			return nil, err
		} else if !got {
			return nil, notFound(a.id)
		}
	}
	return t.open(ctx, a)
}

// shared opens an attachment for whoever has the address that we have given out.
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

// open opens an attachment that has passed the scan.
func (t *Attachments) open(ctx context.Context, a record) (*file, error) {
	if err := a.expired(t.core.Now()); err != nil {
		return nil, err
	}
	switch {
	case a.scanStatus() == "pending":
		return nil, fault.New(fault.AttachmentPending, "The attachment %s is not scanned yet.", a.id)
	case a.status == inspect.Rejected:
		return nil, fault.New(fault.AttachmentRejected, "The attachment %s did not pass the scan, and is not kept.", a.id)
	}
	kept, err := t.options.Blobs.Get(ctx, a.blob)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(err, fault.AttachmentExpired, "The attachment %s is not there any more.", a.id)
	}
	if err != nil {
		return nil, err
	}
	return &file{kept, a}, nil
}
