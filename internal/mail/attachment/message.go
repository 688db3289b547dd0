package attachment

import (
	"cmp"
	"context"
	"mime"
	"net/url"
	"slices"
	"strings"
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
	IDs        []string // of those that this server has
	Until      int64    // microseconds: when they expire once the message is stored
	Suspicious bool     // the scan found marks of injection in one of them, or a script (MSG-71)
	// Files are all of them in their order: those that this server has as it recorded them, but for
	// their URL, which Shown makes, and the others as unverified.
	Files []amp.Attachment
}

// reference is an attachment as a message names it. Everything in it is the sender's word; has tells
// what was there.
type reference struct {
	amp.Attachment

	storage string // where it is kept, "" for this server (MSG-76)
	alias   string // download_url, which some clients read in place of url
	has     func(name string) bool
	field   string // before the names of its members, in errors
}

// list is the field that a payload has attachments in.
const list = "payload.attachments"

// readReferences reads the attachments of a payload. ours says whether the message is one of an agent of
// ours: only then an attachment can be kept here.
func readReferences(payload []byte, ours bool) ([]reference, error) {
	f, err := amp.ReadFields(payload)
	if err != nil {
		return nil, err
	}
	raw, ok := f.Get("attachments")
	if !ok {
		return nil, nil
	}
	// One text for everything that is no list of objects.
	notList := fault.New(fault.InvalidField, "The field %q should be a list of objects.", list).About(list)
	var items []wire.Raw
	if err := wire.Unmarshal(raw, &items); err != nil {
		return nil, notList
	}
	if len(items) > MaxCount {
		return nil, fault.New(fault.TooManyAttachments, "The message has %d attachments; the limit is %d.", len(items),
			MaxCount).About(list)
	}
	var all []reference
	for _, item := range items {
		one, err := amp.ReadFields(item)
		if err != nil {
			return nil, notList
		}
		a, err := readReference(one, ours)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// readReference reads one attachment of a payload. What is required of one that is kept here may be absent
// from others.
func readReference(f *amp.Fields, ours bool) (reference, error) {
	f.Prefix = list + "."
	a := reference{storage: f.Text("storage", 64), field: f.Prefix}
	a.has = func(name string) bool { _, there := f.Get(name); return there }
	required := func(name string, most int, right string) string {
		if ours && a.storage == "" {
			return f.Required(name, most, right)
		}
		return f.Text(name, most)
	}
	a.ID = required("id", 128, "the attachment_id")
	a.Digest = required("digest", 128, "the digest as it was announced")
	a.Filename, a.ContentType = f.Text("filename", 512), f.Text("content_type", 256)
	a.URL, a.alias, a.ScanStatus = f.Text("url", 4096), f.Text("download_url", 4096), f.Text("scan_status", 64)
	if a.has("size") || ours && a.storage == "" {
		size, ok := wholeNumber(f, "size", "the size as it was announced")
		if a.Size = size; !ok {
			f.Fail("size", "should be a whole number.")
		}
	}
	return a, f.Err
}

// Check checks the attachments that a payload of one of our agents names, in the protocol's order (MSG-72): how
// many, how large together, then each: its owner, expiry, earlier use, scan, and whether everything that the
// message says about it is what was recorded. It changes nothing; Claim and Bind do, in the transaction of the
// message.
func (t *Attachments) Check(ctx context.Context, who roster.Identity, payload []byte) (Attached, error) {
	var out Attached
	all, err := readReferences(payload, true)
	if err != nil {
		return out, err
	}
	// The sizes are the sender's word here; checkUsable compares each with the record below, so lying about
	// them leads nowhere.
	total := int64(0)
	for _, a := range all {
		if a.storage != "" {
			continue
		}
		if total += a.Size; total > MaxTotal {
			return out, fault.New(fault.AttachmentTooLarge, "The attachments have more than %d bytes together.",
				MaxTotal).About(list)
		}
	}
	for _, a := range all {
		if a.storage != "" {
			file, err := a.elsewhere(true)
			if err != nil {
				return out, err
			}
			out.Files = append(out.Files, file)
			continue
		}
		found, err := t.findOwn(ctx, who, a.ID)
		if err == nil {
			err = found.checkUsable(t.core.Now(), &a, t.address(a.ID, "file", forDownload))
		}
		if err != nil {
			return out, err
		}
		// Claim looks at the table only, and would let the second of the two pass.
		if slices.Contains(out.IDs, a.ID) {
			return out, usedTwice(a.ID)
		}
		out.IDs = append(out.IDs, a.ID)
		out.Files = append(out.Files, found.file())
		out.Suspicious = out.Suspicious || found.status == inspect.Suspicious
	}
	if len(out.IDs) > 0 {
		out.Until = t.core.Now().Add(routedTime).UnixMicro()
	}
	return out, nil
}

// file is what recipients of a message get about an attachment, without the URL: it has a secret in it, and
// the ledger keeps none.
func (a *record) file() amp.Attachment {
	return amp.Attachment{
		ID: a.id, Filename: a.filename, ContentType: a.contentType, Size: a.size, Digest: a.digest,
		ScanStatus: a.status, ScanNote: a.note,
	}
}

// Shown are the attachments of a message as its recipient gets them: those that this server has, by their ids,
// with the URL at which they are.
func (t *Attachments) Shown(files []amp.Attachment, ids []string) []amp.Attachment {
	shown := slices.Clone(files)
	for i := range shown {
		if f := &shown[i]; slices.Contains(ids, f.ID) && f.ScanStatus != amp.Unverified {
			f.URL = t.address(f.ID, "file", forDownload)
		}
	}
	return shown
}

// HideTickets removes the tickets from the URLs of attachments in a decoded payload, for the rules: one opens the file
// that the message sends, and no rule about credentials that leave is meant for it. They are those of our own
// attachments, which Check has compared, and all in a message that came from elsewhere, since nothing leaves with it.
func HideTickets(payload map[string]any, ids []string, arrived bool) {
	files, _ := payload["attachments"].([]any)
	for _, file := range files {
		one, _ := file.(map[string]any)
		id, _ := one["id"].(string)
		if _, elsewhere := one["storage"]; !arrived && (elsewhere || !slices.Contains(ids, id)) {
			continue
		}
		for _, name := range []string{"url", "download_url"} {
			if address, is := one[name].(string); is {
				one[name], _, _ = strings.Cut(address, "?")
			}
		}
	}
}

// Elsewhere reads the attachments of a message that comes from another server, which keeps them (MSG-84).
// vouched is what a host of our own provider recorded about them, and proved that it said so; nil for every
// other server, whose attachments are unverified, whatever the message says.
func Elsewhere(payload []byte, vouched []amp.Attachment) ([]amp.Attachment, error) {
	all, err := readReferences(payload, false)
	if err != nil {
		return nil, err
	}
	if vouched != nil && len(vouched) != len(all) {
		return nil, fault.New(fault.InvalidField,
			"The message has %d attachments, and the host that forwards it recorded %d.", len(all), len(vouched)).About(list)
	}
	var files []amp.Attachment
	for i, a := range all {
		file, err := a.elsewhere(false)
		if err != nil {
			return nil, err
		}
		if vouched != nil && a.storage == "" {
			if err := a.differs(&vouched[i], cmp.Or(a.URL, a.alias)); err != nil {
				return nil, err
			}
			file = a.vouched(vouched[i])
		}
		files = append(files, file)
	}
	return files, nil
}

// vouched is an attachment as another host of ours recorded it, in forms that are safe here. The URL is the
// one in the message, which that host has compared with its own.
func (a *reference) vouched(recorded amp.Attachment) amp.Attachment {
	recorded.Filename, recorded.URL = amp.SafeFilename(recorded.Filename), a.URL
	if _, _, err := mime.ParseMediaType(recorded.ContentType); err != nil {
		recorded.ContentType = "application/octet-stream"
	}
	recorded.ScanStatus = verdict(recorded.ScanStatus)
	return recorded
}

// verdict is a verdict in the protocol's words; every other word is none.
func verdict(word string) string {
	switch word {
	case inspect.Clean, inspect.Suspicious, inspect.Rejected:
		return word
	}
	return amp.Unverified
}

// elsewhere is an attachment that is kept on another server, as unverified: nobody of ours has seen it. What a
// message says that would be unsafe to show or to follow is refused, and from an agent of ours a verdict is,
// too: there is nobody who could have given it.
func (a *reference) elsewhere(ours bool) (amp.Attachment, error) {
	refuse := func(name, format string, args ...any) (amp.Attachment, error) {
		return amp.Attachment{}, fault.New(fault.InvalidField, "The field %q "+format,
			append([]any{a.field + name}, args...)...).About(a.field + name)
	}
	if a.has("filename") && !amp.ShownFilename(a.Filename) {
		return refuse("filename", "should be the name of a file on one line, without folders and invisible characters, "+
			"such as \"report.pdf\", and is %.80q.", a.Filename)
	}
	if _, _, err := mime.ParseMediaType(a.ContentType); a.has("content_type") && err != nil {
		return refuse("content_type", "should be a media type such as \"application/pdf\", and is %.80q.", a.ContentType)
	}
	for _, c := range [][2]string{{"url", a.URL}, {"download_url", a.alias}} {
		if u, err := url.Parse(c[1]); c[1] != "" && (err != nil || u.Host == "" || u.User != nil ||
			u.Scheme != "https" && u.Scheme != "http") {
			return refuse(c[0], "should be an address such as https://files.example/report.pdf, and is %.120q.", c[1])
		}
	}
	if hex, is := strings.CutPrefix(a.Digest, "sha256:"); a.Digest != "" && (!is || !digestForm.MatchString(hex)) {
		return refuse("digest", "should be \"sha256:\" and 64 lower-case hex digits, and is %.80q.", a.Digest)
	}
	file := a.Attachment
	file.Filename, file.ScanStatus = amp.SafeFilename(a.Filename), amp.Unverified
	if !amp.IDForm.MatchString(file.ID) {
		file.ID = ""
	}
	switch {
	case a.ScanStatus == inspect.Suspicious, a.ScanStatus == inspect.Rejected: // others may warn of it
		file.ScanNote = "Its sender calls it " + a.ScanStatus + "."
	case ours && a.ScanStatus != "" && a.ScanStatus != amp.Unverified:
		return refuse("scan_status", "is %.40q about a file that is stored elsewhere, which this server has not scanned. "+
			"Leave it out, or upload the file here with POST /v1/attachments/upload.", a.ScanStatus)
	}
	return file, nil
}

// usedTwice is the answer of MSG-73.
func usedTwice(id string) error {
	return fault.New(fault.AttachmentUsed,
		"The attachment %s belongs to another message, or is listed twice. Upload a new copy.",
		id).About(list)
}

// checkUsable is why an attachment cannot be sent as a message names it, nil if it can. address is its URL.
func (a *record) checkUsable(now time.Time, as *reference, address string) error {
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
	}
	recorded := a.file()
	return as.differs(&recorded, address)
}

// differs is an error if a message says something else about an attachment than was recorded (MSG-72): its
// recipient would believe it. What the message leaves out is no difference.
func (a *reference) differs(recorded *amp.Attachment, address string) error {
	if a.Size != recorded.Size {
		return fault.New(fault.InvalidField, "The attachment %s has %d bytes, and the message says %d.", a.ID, recorded.Size,
			a.Size).About(a.field + "size")
	}
	for _, c := range []struct{ name, said, is string }{
		{"digest", a.Digest, recorded.Digest},
		{"filename", a.Filename, recorded.Filename},
		{"content_type", a.ContentType, recorded.ContentType},
		{"scan_status", a.ScanStatus, recorded.ScanStatus},
		{"url", a.URL, address},
		{"download_url", a.alias, address},
	} {
		isURL := strings.HasSuffix(c.name, "url")
		if c.said != c.is && a.has(c.name) && (!isURL || c.said != "") {
			right := c.is
			if isURL { // whose ticket opens the file
				right = "another; take the one that GET /v1/attachments/" + a.ID + " answers, or leave it out"
			}
			return fault.New(fault.InvalidField, "The %s of the attachment %s is %s, and the message says %.80q.", c.name, a.ID,
				right, c.said).About(a.field + c.name)
		}
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
