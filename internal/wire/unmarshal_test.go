package wire_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

type vote struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

type common struct {
	Trace string `json:"trace"`
}

// level decodes itself and says what is wrong in its own words.
type level string

func (l *level) UnmarshalText(text []byte) error {
	if string(text) != "low" && string(text) != "high" {
		return fault.New(fault.InvalidPayload, "A level is low or high.")
	}
	*l = level(text)
	return nil
}

type request struct {
	common
	Name    string          `json:"name"`
	Count   int             `json:"count"`
	Small   int8            `json:"small"`
	Cost    float64         `json:"cost"`
	Urgent  bool            `json:"urgent"`
	Labels  []string        `json:"labels"`
	Votes   []vote          `json:"votes"`
	Grid    [][]*vote       `json:"grid"`
	Owner   *vote           `json:"owner"`
	ByName  map[string]vote `json:"by_name"`
	At      time.Time       `json:"at"`
	Data    []byte          `json:"data"`
	Level   level           `json:"level"`
	Free    any             `json:"free"`
	Payload wire.Raw        `json:"payload"`
	Hidden  string          `json:"-"`
}

const allFields = "trace, name, count, small, cost, urgent, labels, votes, grid, owner, " +
	"by_name, at, data, level, free, payload"

var unmarshalCases = []struct {
	name, in       string
	message, field string // "" for what is accepted
}{
	{"an object", `{"name":"a","count":3,"votes":[{"by":"x"}],"owner":{"by":"y"},"level":"low"}`, "", ""},
	{"an empty object", ` {} `, "", ""},
	{"null is as good as absent", `{"name":null,"count":null,"votes":null,"owner":null}`, "", ""},
	{"a payload with anything in it", `{"payload":{"x":["\u0000",1e999]}}`, "", ""},
	{"an escaped backslash before u0000", `{"name":"\\u0000"}`, "", ""},

	{
		"an unknown field names the nearest", `{"nmae":"a"}`, `The field "nmae" is not known here. Did you mean "name"?`,
		"nmae",
	},
	{"another case is another field", `{"Name":"a"}`, `The field "Name" is not known here. Did you mean "name"?`, "Name"},
	{
		"an unknown field near to nothing lists all", `{"zzzzzz":1}`,
		`The field "zzzzzz" is not known here. Choose one of: ` + allFields + `.`, "zzzzzz",
	},
	{"nested", `{"owner":{"buy":"a"}}`, `The field "owner.buy" is not known here. Did you mean "by"?`, "owner.buy"},
	{
		"inside a list", `{"votes":[{},{"raeson":""}]}`,
		`The field "votes.1.raeson" is not known here. Did you mean "reason"?`, "votes.1.raeson",
	},
	{
		"inside a list of lists", `{"grid":[[{}],[{},{"raeson":""}]]}`,
		`The field "grid.1.1.raeson" is not known here. Did you mean "reason"?`, "grid.1.1.raeson",
	},
	{
		"inside a map", `{"by_name":{"name":{"raeson":""}}}`,
		`The field "by_name.name.raeson" is not known here. Did you mean "reason"?`, "by_name.name.raeson",
	},
	{"of an embedded struct", `{"trase":""}`, `The field "trase" is not known here. Did you mean "trace"?`, "trase"},
	{
		"with a dot in its name", `{"owner.by":""}`, `The field "owner.by" is not known here. Did you mean "owner"?`,
		"owner.by",
	},
	{
		"with a slash and a tilde in its name", `{"a/b~c":""}`,
		`The field "a/b~c" is not known here. Choose one of: ` + allFields + `.`, "a/b~c",
	},
	{
		"a field that JSON does not see", `{"Hidden":""}`,
		`The field "Hidden" is not known here. Choose one of: ` + allFields + `.`, "Hidden",
	},

	{"a field twice", `{"name":"a","name":"b"}`, `Duplicate field "name". Send it once.`, "name"},
	{
		"a nested field twice", `{"votes":[{"by":"a","by":"a"}]}`, `Duplicate field "votes.0.by". Send it once.`,
		"votes.0.by",
	},
	{
		"a key twice inside a payload", `{"payload":{"x":1,"x":2}}`,
		`Duplicate field "payload.x". Send it once.`, "payload.x",
	},

	{"a number for a string", `{"name":5}`, `The field "name" should be a string, and is a number.`, "name"},
	{"a string for a number", `{"count":"5"}`, `The field "count" should be a whole number, and is a string.`, "count"},
	{
		"a fraction for a whole number", `{"count":1.5}`,
		`The field "count" should be a whole number, and is a number that does not fit.`, "count",
	},
	{
		"a number that is too large", `{"small":300}`,
		`The field "small" should be a whole number, and is a number that does not fit.`, "small",
	},
	{
		"a huge number", `{"count":1` + strings.Repeat("0", 400) + `}`,
		`The field "count" should be a whole number, and is a number that does not fit.`, "count",
	},
	{
		"a huge fraction", `{"cost":1e999}`, `The field "cost" should be a number, and is a number that does not fit.`,
		"cost",
	},
	{"a string for a bool", `{"urgent":"yes"}`, `The field "urgent" should be true or false, and is a string.`, "urgent"},
	{"an object for a list", `{"labels":{}}`, `The field "labels" should be a list, and is an object.`, "labels"},
	{
		"a bool in a list of strings", `{"labels":["a",true]}`,
		`The field "labels.1" should be a string, and is true or false.`, "labels.1",
	},
	{"a list for an object", `{"owner":[]}`, `The field "owner" should be an object, and is a list.`, "owner"},
	{
		"a string for an object in a map", `{"by_name":{"x":"y"}}`,
		`The field "by_name.x" should be an object, and is a string.`, "by_name.x",
	},
	{
		"a number for a time", `{"at":1}`, `The field "at" should be a time such as 2026-05-01T12:00:00Z, and is a number.`,
		"at",
	},
	{
		"a text that is no time", `{"at":"today"}`,
		`The field "at" should be a time such as 2026-05-01T12:00:00Z, and its text is not.`, "at",
	},
	{
		"a text that is no base64", `{"data":"*"}`, `The field "data" should be a string in base64, and its text is not.`,
		"data",
	},
	{"a list for base64", `{"data":[1]}`, `The field "data" should be a string in base64, and is a list.`, "data"},
	{"a type that knows better", `{"level":"middle"}`, `A level is low or high.`, "level"},
	{
		"a number for a type that knows better", `{"level":1}`, `The field "level" should be a string, and is a number.`,
		"level",
	},

	{"broken UTF-8", "{\"name\":\"\xff\"}", "The body is not valid JSON at byte 9: invalid UTF-8.", ""},
	{
		"half of a surrogate pair", `{"name":"\ud800"}`,
		"The body is not valid JSON at byte 9: invalid surrogate pair `\\ud800\"}` in string.", "",
	},
	{
		"a bare NUL", "{\"name\":\"a\x00\"}",
		"The body is not valid JSON at byte 10: invalid character '\\x00' in string (expecting non-control character).", "",
	},
	{
		"a NUL in a text", `{"name":"a\u0000"}`,
		`The field "name" contains the character \u0000, which is not allowed in text. Leave it out.`, "name",
	},
	{
		"a NUL in a list", `{"votes":[{},{"by":"\u0000"}]}`,
		`The field "votes.1.by" contains the character \u0000, which is not allowed in text. Leave it out.`, "votes.1.by",
	},
	{
		"a NUL in a key", `{"by_name":{"\u0000":{}}}`,
		`The field "by_name" contains the character \u0000, which is not allowed in text. Leave it out.`, "by_name",
	},
	{
		"a NUL in something free", `{"free":[{"x":"\u0000"}]}`,
		`The field "free.0.x" contains the character \u0000, which is not allowed in text. Leave it out.`, "free.0.x",
	},
	{
		"a NUL in an embedded struct", `{"trace":"\u0000"}`,
		`The field "trace" contains the character \u0000, which is not allowed in text. Leave it out.`, "trace",
	},
	{"cut off", `{"name":"a"`, "The JSON stops in the middle, at byte 11.", ""},
	{"cut off in a string", `{"name":"a`, "The JSON stops in the middle, at byte 10.", ""},
	{"nothing", ``, "The body is empty. Send a JSON object with the fields " + allFields + ".", ""},
	{"only spaces", " \n\t", "The body is empty. Send a JSON object with the fields " + allFields + ".", ""},
	{
		"something after the end", `{} x`,
		"The body is not valid JSON at byte 3: invalid character 'x' after top-level value.", "",
	},
	{"a second object", `{}{}`, "The body is not valid JSON at byte 2: invalid character '{' after top-level value.", ""},
	{
		"not JSON", `name=a`, "The body is not valid JSON at byte 1: invalid character 'a' in literal null (expecting 'u').",
		"",
	},
	{"a list", `[]`, "The body should be a JSON object with the fields " + allFields + ", and is a list.", ""},
	{"a string", `"x"`, "The body should be a JSON object with the fields " + allFields + ", and is a string.", ""},
	{"a number", `1`, "The body should be a JSON object with the fields " + allFields + ", and is a number.", ""},
	{"null", `null`, "The body should be a JSON object with the fields " + allFields + ", and is null.", ""},
}

func TestUnmarshalSaysWhatIsWrongAndWhere(t *testing.T) {
	for _, c := range unmarshalCases {
		t.Run(c.name, func(t *testing.T) {
			var v request
			err := wire.Unmarshal([]byte(c.in), &v)
			if c.message == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			e, ok := errors.AsType[*fault.Error](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			type face struct {
				Code           fault.Code
				Message, Field string
			}
			if diff := cmp.Diff(face{fault.InvalidPayload, c.message, c.field}, face{e.Code, e.Message, e.Field}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHugeNameIsNotRepeatedInFull(t *testing.T) {
	err := wire.Unmarshal([]byte(`{"`+strings.Repeat("ä", 1<<20)+`":1}`), &vote{})
	e := fault.From(err)
	if len(e.Message) > 300 || len(e.Field) > 300 || !utf8.ValidString(e.Field) {
		t.Errorf("a message of %d bytes, a field of %d", len(e.Message), len(e.Field))
	}
}

func TestAPayloadIsHandedOnAsItCame(t *testing.T) {
	const payload = `{ "b": 1.00,  "a": "\u00e4\/" }`
	var v request
	if err := wire.Unmarshal([]byte(`{"payload": `+payload+` }`), &v); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(payload, string(v.Payload)); diff != "" {
		t.Error(diff)
	}
}

func TestMarshalWritesFieldsAsDeclaredAndKeysSorted(t *testing.T) {
	got, err := wire.Marshal(map[string]any{"b": vote{"x", "<&>"}, "a": nil, "c": []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"a":null,"b":{"by":"x","reason":"<&>"},"c":[1]}`, string(got)); diff != "" {
		t.Error(diff)
	}
}

// Whatever comes in, Unmarshal returns: an error for the caller, or a value that
// the standard library reads the same way.
func FuzzUnmarshal(f *testing.F) {
	for _, c := range unmarshalCases {
		f.Add([]byte(c.in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v request
		err := wire.Unmarshal(data, &v)
		if err == nil {
			if !json.Valid(data) {
				t.Errorf("accepted what is not JSON: %q", data)
			}
			return
		}
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Code != fault.InvalidPayload || e.Message == "" {
			t.Errorf("%q: got %#v", data, err)
		}
		if !utf8.ValidString(e.Message) || !utf8.ValidString(e.Field) {
			t.Errorf("%q: the message is not clean text: %q", data, e.Message)
		}
	})
}

func TestUnmarshalPartPassesOverWhatItHasNoFieldFor(t *testing.T) {
	t.Parallel()
	var v vote
	if err := wire.UnmarshalPart([]byte(`{"name":{"by":"x"},"by":"ada","more":[1,"\u0000"],"reason":"r\u0000"}`),
		&v); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(vote{By: "ada", Reason: "r\x00"}, v); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{``, `{"by":1}`, `{"by":"a","by":"b"}`, `{"by":"a"`} {
		if err := wire.UnmarshalPart([]byte(bad), &v); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
