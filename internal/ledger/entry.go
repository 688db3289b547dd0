package ledger

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Event is what a caller appends. It becomes an Entry in Tx.Append, which gives it its
// number and its time, or it is refused together with everything else that the write
// function did.
type Event struct {
	Workspace string // "" for what concerns the whole server
	Kind      string // noun.verb in the past tense
	Actor     string // who did it: operator:NAME, agent:NAME or system
	Subject   string // the id of what it happened to
	Trace     string // ties together what belongs together
	Body      any    // []byte and Body are kept as they are, anything else is written as JSON
}

// Body is a body that the caller has encoded, before the transaction in which only one
// can work at a time. Value, or what it points to, is what apply functions get in place
// of decoding it, and followers in this process may; nobody changes it any more.
type Body struct {
	Value any
	JSON  []byte
}

// Encode is a value as a body.
func Encode(v any) (Body, error) {
	text, err := wire.Marshal(v)
	if err == nil {
		// Decode refuses it, and an entry that cannot be read stays for ever.
		err = wire.RefuseNUL(text, v)
	}
	return Body{v, text}, err
}

// Entry is an event that has its place in the ledger: the unit of everything that is
// recorded, followed, proved and rebuilt. Tx.Append makes it, and it is never changed or
// removed afterwards; only its body, together with the salt, may be erased.
//
// What always holds: Seq has no gaps and follows the order of commits (LED-1). At never
// goes back (LED-5). Record is the exact bytes of the leaf, and names the body by its
// salted hash, which is compared whenever an entry is read from the database (LED-15).
// The other fields repeat what the record says.
type Entry struct {
	Seq       int64
	At        time.Time // never before the entry that precedes it
	Workspace string
	Kind      string
	Actor     string
	Subject   string
	Trace     string
	Body      []byte // nil when it was erased
	Record    []byte // the bytes that are hashed into the tree
	Salt      []byte

	// appended is what was written as the body, while this process has it in memory.
	appended any
}

// Value is what the caller appended as the body, while this process has it in memory;
// nil otherwise. It is not to be changed.
func (e *Entry) Value() any { return e.appended }

// Decode reads the body as JSON. While the value that was appended is in memory it is
// taken as it is, which spares the time; a rebuild reads what is stored, and shows where
// the two are not the same.
func (e *Entry) Decode(v any) error {
	if e.appended != nil {
		into, from := reflect.ValueOf(v).Elem(), reflect.Indirect(reflect.ValueOf(e.appended))
		if into.Type() == from.Type() {
			into.Set(from)
			return nil
		}
	}
	if e.Body == nil {
		return fmt.Errorf("the body of entry %d was erased", e.Seq)
	}
	if err := wire.Unmarshal(withoutRaw(e.Body), v); err != nil {
		return fmt.Errorf("read the body of entry %d (%s): %w", e.Seq, e.Kind, err)
	}
	return nil
}

// RawMember is the last member of a body in which something was replaced: the keyed digest of what it was
// (LED-34). It belongs to the ledger and not to the value that was appended.
const RawMember = "raw_hmac"

// rawForm is how a body ends that has it.
var rawForm = regexp.MustCompile(`,?"` + RawMember + `":"[0-9a-f]{64}"}$`)

// withoutRaw is a body as it was appended, but for what was replaced.
func withoutRaw(body []byte) []byte {
	const most = len(`,"`+RawMember+`":""}`) + 64
	if !bytes.Contains(body[max(0, len(body)-most):], []byte(RawMember)) {
		return body
	}
	if at := rawForm.FindIndex(body[max(0, len(body)-most):]); at != nil {
		at[0] += max(0, len(body)-most)
		return append(slices.Clone(body[:at[0]]), '}')
	}
	return body
}

// Read is the body of an entry. While the value that was appended is in memory it is that
// one, which nobody changes; so it costs nothing where thousands a second are applied.
func Read[T any](e *Entry) (*T, error) {
	if v, ok := e.appended.(*T); ok {
		return v, nil
	}
	v := new(T)
	return v, e.Decode(v)
}

// record is the form in which an entry is hashed. LED-7: the order of the fields is part
// of the format: seq first, body last, so that a verifier finds both without parsing what
// is between. A new member would be a new format of the ledger, not a new field.
type record struct {
	Seq       int64  `json:"seq"`
	At        int64  `json:"at"` // microseconds
	Workspace string `json:"workspace"`
	Kind      string `json:"kind"`
	Actor     string `json:"actor"`
	Subject   string `json:"subject"`
	Trace     string `json:"trace"`
	Body      string `json:"body"` // hex SHA-256 of salt and body
}

// encode is the record as JSON. It is written by hand because there is one for every
// entry, and because LED-8 forbids that another JSON writer ever makes these bytes again:
// two of them would escape the same text differently.
func (r record) encode() []byte {
	text := make([]byte, 0, 192+len(r.Workspace)+len(r.Kind)+len(r.Actor)+len(r.Subject)+len(r.Trace))
	text = strconv.AppendInt(append(text, `{"seq":`...), r.Seq, 10)
	text = strconv.AppendInt(append(text, `,"at":`...), r.At, 10)
	for _, m := range [...]struct{ name, value string }{
		{`,"workspace":`, r.Workspace},
		{`,"kind":`, r.Kind},
		{`,"actor":`, r.Actor},
		{`,"subject":`, r.Subject},
		{`,"trace":`, r.Trace},
		{`,"body":`, r.Body},
	} {
		text = wire.AppendText(append(text, m.name...), m.value)
	}
	return append(text, '}')
}

// parseRecord reads what encode writes, by cutting it at the names of its members. That is
// right only if encoding the result gives the same bytes again, which is checked. A record
// with an escaped character goes through the JSON decoder.
func parseRecord(text []byte) (r record, err error) {
	rest, ok := string(text), true
	cut := func(name, end string) (value string) {
		var found bool
		if rest, found = strings.CutPrefix(rest, name); !found {
			ok = false
		}
		value, rest, found = strings.Cut(rest, end)
		ok = ok && found
		return value
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(cut(name, ","), 10, 64)
		ok = ok && err == nil
		return n
	}
	r = record{
		number(`{"seq":`), number(`"at":`),
		cut(`"workspace":"`, `",`), cut(`"kind":"`, `",`), cut(`"actor":"`, `",`), cut(`"subject":"`, `",`),
		cut(`"trace":"`, `",`), cut(`"body":"`, `"}`),
	}
	if ok && rest == "" && bytes.IndexByte(text, '\\') < 0 && bytes.Equal(r.encode(), text) {
		return r, nil
	}
	r = record{}
	return r, wire.Unmarshal(text, &r)
}

const (
	// saltSize is in bytes. LED-11: it is fixed, so that no byte can be moved between the
	// salt and the body of an export without changing the hash.
	saltSize = 16
	// MaxBody is the largest body an entry may have, in bytes (LED-12).
	MaxBody = 32 << 20
	// maxName is the longest workspace, actor, subject or trace, in bytes. LED-10: a record
	// has to fit into the two bytes that an entry bundle has for its length, even if every
	// character of every name is escaped.
	maxName = 512
)

// isKind reports whether a kind is of the form noun.verb (LED-9).
func isKind(kind string) bool {
	noun, verb, ok := strings.Cut(kind, ".")
	return ok && isWord(noun) && isWord(verb)
}

func isWord(s string) bool {
	return s != "" && len(s) <= 31 && s[0] != '_' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// seal makes the entry that stands at seq. Everything that could make an entry unreadable
// later is refused here, because what was committed cannot be taken back.
func seal(ev Event, seq, at int64, clean func(kind string, body []byte) ([]byte, bool)) (*Entry, error) {
	if !isKind(ev.Kind) {
		return nil, fmt.Errorf("the kind %q is not of the form noun.verb", ev.Kind)
	}
	for _, name := range []string{ev.Workspace, ev.Actor, ev.Subject, ev.Trace} {
		if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return nil, fmt.Errorf("%s: %.40q is too long or not clean text", ev.Kind, name)
		}
	}
	var encoded Body
	switch given := ev.Body.(type) {
	case []byte:
		encoded = Body{nil, given}
	case Body:
		encoded = given
	default:
		var err error
		if encoded, err = Encode(given); err != nil {
			return nil, fmt.Errorf("encode the body of %s: %w", ev.Kind, err)
		}
	}
	if clean != nil {
		// What was appended is not what is stored, so everybody reads what is stored.
		if cleaned, changed := clean(ev.Kind, encoded.JSON); changed {
			encoded = Body{nil, cleaned}
		}
	}
	body := encoded.JSON
	if len(body) > MaxBody {
		return nil, fmt.Errorf("the body of %s has %d bytes, the most is %d", ev.Kind, len(body), MaxBody)
	}
	if body == nil {
		body = []byte{}
	}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	rec := record{seq, at, ev.Workspace, ev.Kind, ev.Actor, ev.Subject, ev.Trace, bodyHash(salt, body)}.encode()
	return &Entry{
		Seq: seq, At: time.UnixMicro(at).UTC(),
		Workspace: ev.Workspace, Kind: ev.Kind, Actor: ev.Actor, Subject: ev.Subject, Trace: ev.Trace,
		Body: body, Record: rec, Salt: salt, appended: encoded.Value,
	}, nil
}

// Unseal reads an entry back from what is stored of it: the columns record, salt and
// body, which other packages join to what refers to an entry. LED-15: a body that is not
// the one in its record is an error before anybody acts on it. Erased bodies have neither
// salt nor body, and come back with a nil Body.
func Unseal(rec, salt, body []byte) (Entry, error) {
	r, err := parseRecord(rec)
	if err != nil {
		return Entry{}, fault.Wrap(err, fault.LedgerMismatch,
			"A record in the database is not in the ledger's form: it was changed after the "+
				"fact. Restore the database from a backup.")
	}
	if salt != nil && bodyHash(salt, body) != r.Body || salt == nil && body != nil {
		return Entry{}, fault.New(fault.LedgerMismatch,
			"The body of entry %d in the database is not the one in its record: it was changed after "+
				"the fact. Restore the database from a backup.", r.Seq)
	}
	if salt != nil && body == nil {
		body = []byte{} // an empty body, not an erased one
	}
	e := r.entry()
	e.Body, e.Record, e.Salt = body, rec, salt
	return e, nil
}

// entry is what the record says of its entry.
func (r record) entry() Entry {
	return Entry{
		Seq: r.Seq, At: time.UnixMicro(r.At).UTC(),
		Workspace: r.Workspace, Kind: r.Kind, Actor: r.Actor, Subject: r.Subject, Trace: r.Trace,
	}
}

// bodyHash is the hash of a body in its record. LED-11: it is salted so that a body that
// could be guessed cannot be confirmed after it was erased; the salt goes with the body.
func bodyHash(salt, body []byte) string {
	h := sha256.New()
	h.Write(salt)
	h.Write(body)
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0]))
}
