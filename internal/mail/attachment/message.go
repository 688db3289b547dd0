package attachment

import (
	"context"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Attached are the attachments of a message that is about to be stored.
type Attached struct {
	IDs        []string
	Until      int64 // microseconds: when they expire once the message is stored
	Suspicious bool  // the scan found marks of injection in one of them (MSG-71)
}

// reference is an attachment as a message names it. The other members of the message, such as its
// scan_status, are not read (MSG-72).
type reference struct {
	id, digest string
	size       int64
}

// readReferences reads the attachments of a payload that this server stores. MSG-76: those that are
// stored elsewhere are skipped.
func readReferences(payload []byte) ([]reference, error) {
	f, err := amp.ReadFields(payload)
	if err != nil {
		return nil, err
	}
	raw, ok := f.Get("attachments")
	if !ok {
		return nil, nil
	}
	// One text for everything that is no list of objects.
	notList := fault.New(fault.InvalidField,
		"The field \"payload.attachments\" should be a list of objects.").About("payload.attachments")
	var items []wire.Raw
	if err := wire.Unmarshal(raw, &items); err != nil {
		return nil, notList
	}
	var list []reference
	for _, item := range items {
		one, err := amp.ReadFields(item)
		if err != nil {
			return nil, notList
		}
		if one.Text("storage", 16) == "afp" {
			continue // kept elsewhere
		}
		one.Prefix = "payload.attachments."
		a := reference{
			id:     one.Required("id", 128, "the attachment_id"),
			digest: one.Required("digest", 128, "the digest as it was announced"),
		}
		size, ok := wholeNumber(one, "size", "the size as it was announced")
		if a.size = size; !ok {
			one.Fail("size", "should be a whole number.")
		}
		if one.Err != nil {
			return nil, one.Err
		}
		list = append(list, a)
	}
	return list, nil
}

// Check checks the attachments that a payload names, in the protocol's order (MSG-72): how many,
// how large together, then each: its owner, expiry, earlier use, scan, size and digest. It changes
// nothing; Claim and Bind do, in the transaction of the message.
func (t *Attachments) Check(ctx context.Context, who roster.Identity, payload []byte) (Attached, error) {
	var out Attached
	list, err := readReferences(payload)
	if err != nil {
		return out, err
	}
	if len(list) > MaxCount {
		return out, fault.New(fault.TooManyAttachments, "The message has %d attachments; the limit is %d.", len(list),
			MaxCount).About("payload.attachments")
	}
	// The sizes are the sender's word here; usable compares each with the record below, so lying about
	// them leads nowhere.
	total := int64(0)
	for _, a := range list {
		if total += a.size; total > MaxTotal {
			return out, fault.New(fault.AttachmentTooLarge, "The attachments have more than %d bytes together.",
				MaxTotal).About("payload.attachments")
		}
	}
	for _, a := range list {
		found, err := t.findOwn(ctx, who, a.id)
		if err == nil {
			err = found.checkUsable(t.core.Now(), a)
		}
		if err != nil {
			return out, err
		}
		// Claim looks at the table only, and would let the second of the two pass.
		if slices.Contains(out.IDs, a.id) {
			return out, usedTwice(a.id)
		}
		out.IDs = append(out.IDs, a.id)
		out.Suspicious = out.Suspicious || found.status == inspect.Suspicious
	}
	if len(out.IDs) > 0 {
		out.Until = t.core.Now().Add(routedTime).UnixMicro()
	}
	return out, nil
}

// usedTwice is the answer of MSG-73.
func usedTwice(id string) error {
	return fault.New(fault.AttachmentUsed,
		"The attachment %s belongs to another message, or is listed twice. Upload a new copy.",
		id).About("payload.attachments")
}

// checkUsable is why an attachment cannot be sent, nil if it can.
func (a *record) checkUsable(now time.Time, as reference) error {
	if err := a.expired(now); err != nil {
		return err
	}
	switch {
	case a.message != "":
		return usedTwice(a.id)
	case a.scanStatus() == "pending":
		return fault.New(fault.AttachmentPending,
			"The attachment %s is not scanned yet. Confirm it with POST /v1/attachments/%s/confirm, and send the message when "+
				"its scan_status is clean.", a.id, a.id)
	case a.status == inspect.Rejected:
		return fault.New(fault.AttachmentRejected, "The scan rejected the attachment %s: %s Send the message without it.",
			a.id, a.note)
	case a.size != as.size:
		return fault.New(fault.InvalidField, "The attachment %s has %d bytes, and the message says %d.", a.id, a.size,
			as.size).About("payload.attachments.size")
	case a.digest != as.digest:
		return fault.New(fault.InvalidField, "The attachment %s has the digest %s, and the message says %.80s.", a.id,
			a.digest, as.digest).About("payload.attachments.digest")
	}
	return nil
}

// Claim checks again, in the transaction of the message, that no other message has taken the
// attachments since Check. Bind then takes them, in the apply function of the same entry.
func Claim(tx *ledger.Tx, ids []string) error {
	for _, id := range ids {
		a, err := find(id, tx.QueryRow)
		if err != nil {
			return err
		}
		if a.message != "" {
			return usedTwice(id)
		}
	}
	return nil
}
