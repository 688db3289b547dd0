package signal

import (
	"fmt"
	"math"
	"strconv"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// fields are the members of a payload, and what was found to be wrong with them.
type fields struct {
	wire.Fields
	body    []byte
	typ     Type
	version string // that a payload of the type should have
}

// readFields reads a JSON object of the type, or of the type that it says itself. What
// is no object, or has a name twice, is an error of the whole.
func readFields(body []byte, t Type) (*fields, error) {
	members, err := wire.Members(body)
	if err != nil {
		return nil, err
	}
	if t == "" {
		t = typeOf(members)
	}
	if wire.Depth(body) > maxDepth {
		return nil, fault.New(fault.InvalidPayload,
			"Lists and objects are nested more than %d deep. Send what is that deep as text.", maxDepth)
	}
	form := forms[t]
	f := &fields{Fields: wire.Fields{Members: members, Form: form.fields}, body: body, typ: t, version: form.version}
	f.checkVersion()
	f.Word("type", string(t))
	return f, nil
}

// maxDepth is far above what is real. What is written around a payload in the ledger makes
// it deeper, and must not make it deeper than JSON is read.
const maxDepth = 256

// typeOf is the type that a payload says it is. One without is a completion, and so is
// one with a type that is not known, which is then said to be wrong.
func typeOf(members map[string]wire.Raw) Type {
	var t Type
	if raw, ok := members["type"]; ok && wire.Unmarshal(raw, &t) == nil {
		if _, known := forms[t]; known {
			return t
		}
	}
	return Completion
}

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

// err is the error for all that is wrong, nil when nothing is.
func (f *fields) err() error {
	err := f.Err()
	if f.Failed("amp_version") {
		return fault.From(err).With("supported", []string{f.version})
	}
	return err
}

// name reads a name in kebab-case.
func (f *fields) name(field, example string) string {
	right := func() string {
		return fmt.Sprintf("1 to 63 lower-case letters and digits with single hyphens between them, such as %q", example)
	}
	return f.Matching(field, right, func(s string) bool { return len(s) <= 63 && kebab.MatchString(s) })
}

// dollars reads an amount as nano-dollars.
func (f *fields) dollars(name string) int64 {
	return f.Number(name, "an amount in dollars, 0 or more, such as 0.007532", parseDollars)
}

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
