package deliver

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
)

// Delivery is what is to be sent.
type Delivery struct {
	Workspace string
	Sender    string // the kind of sender; "webhook" when empty
	Target    string // an address for webhooks; what the sender understands for others
	Method    string // POST when empty
	// Header is sent along and kept in the ledger, so it holds no secrets.
	Header  map[string]string
	Payload []byte // sent byte for byte
	// Receiver and Generation say whose secret signs it; see Outbox.SecretFor.
	Receiver   string
	Generation int
	// OrderKey names the line it stands in, within its workspace and sender: the
	// host and path of the target when empty.
	OrderKey    string
	NotBefore   time.Time     // at once when zero; those behind it wait too
	GiveUpAfter time.Duration // DefaultGiveUpAfter when zero
	Actor       string        // who caused it; system when empty
	Trace       string
}

// WebhookSender is the kind of the sender that is always there.
const WebhookSender = "webhook"

const (
	maxTarget   = 2000 // an index of PostgreSQL takes no more than 2,700 bytes
	maxOrderKey = 200
	maxHeaders  = 32
	maxValue    = 1024
)

// Queue appends a delivery in the caller's transaction: it is sent if, and only if,
// the transaction commits. The id is the same on every try.
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

func defaultLine(u *url.URL) string { return strings.ToLower(u.Host) + u.EscapedPath() }

// orderKey puts the workspace into the key, so that nobody can hold up the
// deliveries of another workspace to the same address.
func orderKey(workspace, sender, line string) string {
	key := workspace + " " + sender + " " + line
	if !clean(key, maxOrderKey) {
		sum := sha256.Sum256([]byte(key))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}

// clean reports whether both databases take the text.
func clean(text string, most int) bool {
	return len(text) <= most && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

var headerForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

var (
	// ownHeaders are those that we set, or that decide where one request ends.
	ownHeaders = []string{
		"Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade", "Te", "Expect",
		"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "X-Amp-Signature", "X-Amp-Timestamp",
		"X-Amp-Delivery-Attempt",
	}
	// secretHeaders must not get into the ledger.
	secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"}
)

func checkHeader(header map[string]string) error {
	if len(header) > maxHeaders {
		return fault.New(fault.InvalidPayload, "There are %d headers; the most is %d.", len(header),
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
