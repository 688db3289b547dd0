package deliver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Delivery is one outgoing call that must arrive. Queue makes it durable; it ends as delivered, or as
// dead when its time is over or the receiver refuses it for good. Resend revives a dead one. Its id,
// target and payload never change.
type Delivery struct {
	Workspace string
	Sender    string // the kind of sender; WebhookSender when empty
	Target    string // the address of a webhook; for other senders whatever they understand
	Method    string // POST when empty
	// Header has further headers. They are kept in the ledger, so they must hold no secrets.
	Header  map[string]string
	Payload []byte // sent byte for byte
	// Receiver and Generation select the secret that signs the call; see Outbox.SecretFor.
	Receiver   string
	Generation int
	// OrderKey is the lane within workspace and sender; host and path of the target when empty.
	OrderKey    string
	NotBefore   time.Time     // at once when zero; deliveries behind it wait too
	GiveUpAfter time.Duration // DefaultGiveUpAfter when zero
	Actor       string        // who caused it; system when empty
	Trace       string
}

// WebhookSender is the kind of the built-in sender, which makes signed HTTP requests.
const WebhookSender = "webhook"

// The limits of a delivery, in bytes; maxHeaders counts.
const (
	maxTarget   = 2000 // an index of PostgreSQL takes no more than 2,700 bytes
	maxOrderKey = 200
	maxHeaders  = 32
	maxValue    = 1024
)

// Queue appends a delivery in the caller's transaction: it is sent if and only if the transaction
// commits. It returns the id, which every try carries. Call Outbox.Wake after the commit if somebody
// waits for it; otherwise it is found within Options.Poll.
func Queue(tx *ledger.Tx, d Delivery) (string, error) {
	b, err := d.body()
	if err != nil {
		return "", err
	}
	if d.Actor == "" {
		d.Actor = "system"
	}
	name := id.New("delivery")
	tx.Append(ledger.Event{
		Workspace: d.Workspace, Kind: kindQueued, Actor: d.Actor, Subject: name, Trace: d.Trace,
		Body: b,
	})
	return name, nil
}

// Stalled reports whether a delivery that is queued now would wait behind one whose last try failed: nobody tries it
// before that one has ended.
func Stalled(tx *ledger.Tx, d Delivery) (bool, error) {
	b, err := d.body()
	if err != nil {
		return false, err
	}
	var n int64
	err = tx.QueryRow("SELECT count(*) FROM delivery_lane WHERE order_key = $1 AND tries > 0", []any{b.OrderKey}, &n)
	return n > 0, err
}

// FailedTry is why a try failed, false for an entry that is no failed try. The subject of the entry is the delivery.
// The reason is for whoever caused the delivery: it names neither the address nor what the receiver said.
func FailedTry(e *ledger.Entry) (reason string, failed bool) {
	if e.Kind != kindFailed && e.Kind != kindGivenUp {
		return "", false
	}
	b, err := ledger.Read[tried](e)
	switch {
	case err != nil: // who waits goes on without the reason
		return "the call failed", true
	case b.Status != 0:
		return "the call was answered with the status " + strconv.Itoa(b.Status), true
	}
	return "the call failed (" + cmp.Or(b.Class, "unknown") + ")", true
}

// body checks a delivery and makes the body of its entry.
func (d *Delivery) body() (queued, error) {
	b := queued{
		Sender: d.Sender, Target: d.Target, Method: d.Method, Header: d.Header,
		Receiver: d.Receiver, Generation: d.Generation, GiveUpAfter: d.GiveUpAfter.Microseconds(),
	}
	if b.Sender == "" {
		b.Sender = WebhookSender
	}
	if b.Method == "" {
		b.Method = http.MethodPost
	}
	if d.GiveUpAfter <= 0 {
		b.GiveUpAfter = DefaultGiveUpAfter.Microseconds()
	}
	if !d.NotBefore.IsZero() {
		b.NotBefore = d.NotBefore.UnixMicro()
	}
	// Checked before it is queued: a delivery in the ledger can always be tried.
	b.setPayload(d.Payload)
	line := d.OrderKey
	if b.Sender == WebhookSender {
		u, err := parseTarget(d.Target)
		if err != nil {
			return b, err
		}
		if line == "" {
			line = defaultLine(u)
		}
	} else if !clean(d.Target, maxTarget) || d.Target == "" {
		return b, fault.New(fault.InvalidTarget, "The target of a %s delivery should be 1 to %d bytes of plain text.",
			b.Sender, maxTarget).About("target")
	}
	if line == "" {
		line = d.Target
	}
	b.OrderKey = orderKey(d.Workspace, b.Sender, line)
	return b, checkHeader(d.Header)
}

// defaultLine ignores the query: one receiver often has several.
func defaultLine(u *url.URL) string { return strings.ToLower(u.Host) + u.EscapedPath() }

// orderKey makes the key of a lane. The workspace is part of it, so that nobody can hold up the
// deliveries of another workspace to the same address. A long one is hashed.
func orderKey(workspace, sender, line string) string {
	key := workspace + " " + sender + " " + line
	if !clean(key, maxOrderKey) {
		sum := sha256.Sum256([]byte(key))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}

// clean reports whether a text is short enough and can be stored.
func clean(text string, most int) bool {
	return len(text) <= most && wire.Storable(text)
}

// headerForm is the form of a header's name.
var headerForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

var (
	// ownHeaders are headers that we set, or by which a request could be split in two.
	ownHeaders = []string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Te", "Expect",
		"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "X-Amp-Signature", "X-Amp-Timestamp",
		"X-Amp-Delivery-Attempt",
	}
	// secretHeaders carry secrets, which must not get into the ledger.
	secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"}
)

// checkHeader refuses headers that are ours, secret, or no single line.
func checkHeader(header map[string]string) error {
	if len(header) > maxHeaders {
		return fault.New(fault.InvalidPayload, "There are %d headers; the limit is %d.", len(header),
			maxHeaders).About("headers")
	}
	for name, value := range header {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerForm.MatchString(name):
			return fault.New(fault.InvalidPayload,
				"A header's name has 1 to 64 letters, digits and hyphens, such as X-Request-Source. It is %.80q.",
				name).About("headers")
		case slices.Contains(ownHeaders, canonical):
			return fault.New(fault.InvalidPayload, "The header %s is set by Signalbox itself. Leave it out.",
				canonical).About("headers")
		case slices.Contains(secretHeaders, canonical):
			return fault.New(fault.InvalidPayload,
				"The header %s would put a secret into the ledger. Leave it out; the receiver recognises us by the signature.",
				canonical).About("headers")
		case !clean(value, maxValue) || strings.ContainsAny(value, "\r\n"):
			return fault.New(fault.InvalidPayload, "The value of the header %s should be one line of at most %d bytes.",
				canonical, maxValue).About("headers")
		}
	}
	return nil
}
