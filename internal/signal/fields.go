package signal

import (
	"fmt"
	"math"
	"strconv"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// fields are the members of a payload, with the errors found so far. A reader such as kebabName
// or dollars notes an error and returns zero, so that one pass finds everything that is wrong.
// Nothing read is to be used before err was asked.
type fields struct {
	wire.Fields
	body    []byte // without a user's token
	named   behalf.Named
	typ     Type
	version string // the amp_version that this type has
}

// readFields reads a JSON object of type t, or with "" of the type that it names itself. A body
// that is not an object, has a name twice or is too deep is refused as a whole (SIG-4).
func readFields(body []byte, t Type) (*fields, error) {
	members, err := wire.Members(body)
	if err != nil {
		return nil, err
	}
	if t == "" {
		t = messageType(members)
	}
	if wire.Depth(body) > maxDepth {
		return nil, fault.New(fault.InvalidPayload,
			"Lists and objects are nested more than %d deep. Send what is that deep as text.", maxDepth)
	}
	form := forms[t]
	named := behalf.In(members["metadata"])
	f := &fields{
		Fields: wire.Fields{Members: members, Form: form.fields}, body: named.Hide(body), named: named, typ: t,
		version: form.version,
	}
	f.checkVersion()
	f.Word("type", string(t))
	return f, nil
}

// maxDepth is far above any real payload. The entry in the ledger nests the payload a few
// levels deeper, and must stay within what the JSON reader takes.
const maxDepth = 256

// messageType is the type that a payload names. A payload without one is a completion (SIG-40). One
// with an unknown type is read as a completion too, and readFields then reports the type.
func messageType(members map[string]wire.Raw) Type {
	var t Type
	if raw, ok := members["type"]; ok && wire.Unmarshal(raw, &t) == nil {
		if _, known := forms[t]; known {
			return t
		}
	}
	return Completion
}

// checkVersion reports an amp_version that is not exactly the string of this type. The number
// 1.0 is wrong too (SIG-6).
func (f *fields) checkVersion() {
	right := func() string { return strconv.Quote(f.version) }
	raw, ok := f.Get("amp_version", right)
	if !ok {
		return
	}
	if s, is := wire.Text(raw); !is || s != f.version {
		f.Fail("amp_version", "should be the text %s, and is %.40s.", right(), raw)
	}
}

// err is one error for everything that is wrong, nil if nothing is.
func (f *fields) err() error {
	err := f.Err()
	if f.Failed("amp_version") {
		return fault.From(err).With("supported", []string{f.version})
	}
	return err
}

// kebabName reads a name in kebab-case, at most 63 characters.
func (f *fields) kebabName(field, example string) string {
	right := func() string {
		return fmt.Sprintf("1 to 63 lower-case letters and digits with single hyphens between them, such as %q", example)
	}
	return f.Matching(field, right, func(s string) bool { return len(s) <= 63 && kebab.MatchString(s) })
}

// dollars reads an amount in dollars as nano-dollars (SIG-38).
func (f *fields) dollars(name string) int64 {
	return f.Number(name, "an amount in dollars, 0 or more, such as 0.007532", parseDollars)
}

// parseDollars reads a JSON number of dollars. Rounding to a nano-dollar is harmless: a token of
// the cheapest model costs more than a hundred.
func parseDollars(raw wire.Raw) (nano int64, ok bool) {
	n, err := strconv.ParseFloat(string(raw), 64)
	if raw.Kind() != '0' || err != nil || n < 0 || n > maxCost {
		return 0, false
	}
	return int64(math.Round(n * 1e9)), true
}

func (f *fields) artifacts() []wire.Raw {
	return f.List("artifacts", maxArtifacts, `{"type": "text", "content": "…"}`)
}

func (f *fields) metadata() wire.Raw { return f.Object("metadata", `{"source": "cron"}`) }
