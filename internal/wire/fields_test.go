package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// document reads a member of each kind, of which the text has to be there.
func document(t *testing.T, text string) (f *wire.Fields, got []any) {
	t.Helper()
	members, err := wire.Members([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f = &wire.Fields{
		Members: members,
		Form: map[string]bool{
			"text": true, "word": false, "url": false, "time": false, "count": false, "flag": false,
			"list": false, "texts": false, "object": false,
		},
	}
	got = []any{
		f.Text("text", 5, "hello"), f.Word("word", "one", "two"), f.URL("url", 30), f.Time("time"), f.Count("count"),
		f.Flag("flag"),
		f.List("list", 2, "1"), f.Texts("texts", 2, 3, "abc"), f.Object("object", "{}"),
	}
	return f, got
}

func TestFieldsAreReadWithTheirTypes(t *testing.T) {
	f, got := document(
		t, `{"text":"h\u00e9llo","word":"two","url":"https://example.com/x","time":"2026-03-06T22:10:38.5+01:00",`+
			`"count":1842.0,"flag":true,"list":[ 1,{}],"texts":["a","bcd"],"object":{ "x":1},"more":1,"and":2}`,
	)
	at, _ := time.Parse(time.RFC3339Nano, "2026-03-06T22:10:38.5+01:00")
	want := []any{
		"héllo", "two", "https://example.com/x", at, int64(1842), true,
		[]wire.Raw{wire.Raw("1"), wire.Raw("{}")},
		[]string{"a", "bcd"},
		wire.Raw(`{ "x":1}`),
	}
	if diff := cmp.Diff(want, got); diff != "" || f.Err() != nil {
		t.Errorf("%v\n%s", f.Err(), diff)
	}
	if diff := cmp.Diff([]string{"and", "more"}, f.Unknown()); diff != "" {
		t.Error(diff)
	}
}

func TestFieldsThatAreNullAreAbsent(t *testing.T) {
	f, _ := document(t,
		`{"text":"x","word":null,"url":null,"time":null,"count":null,"flag":null,"list":null,"texts":null,"object":null}`)
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	f, _ = document(t, `{"text":null}`)
	if got := fault.From(f.Err()).Message; got != `The field "text" is null. It should be text of 1 to 5 `+
		`characters, such as "hello".` {
		t.Error(got)
	}
}

func TestEveryWrongFieldIsInTheError(t *testing.T) {
	f, _ := document(
		t, `{"text":7,"word":"three","url":"ftp://example.com","time":"2026-03-06","count":-1,"flag":"yes","list":[1,`+
			`2,3],"texts":["abcd"],"object":[]}`,
	)
	e := fault.From(f.Err())
	wrong, _ := e.Details["fields"].(map[string]string)
	if e.Code != fault.InvalidPayload || e.Field != "count" || len(wrong) != 9 ||
		!strings.Contains(e.Message,
			"(And 8 more wrong, in details.fields: flag, list, object, text, texts, time, url, word.)") {
		t.Errorf("%v: %v", e, wrong)
	}
	for name, text := range wrong {
		if !strings.HasPrefix(text, `The field "`+name+`" should be `) || !f.Failed(name) {
			t.Errorf("of %s it is said: %s", name, text)
		}
	}
	for text, want := range map[string]string{
		`{"text":"  "}`:      "has 2 characters",
		`{"text":"toolong"}`: "has 7 characters",
		`{"text":"\u0000"}`:  `contains the character \u0000`,
		`{}`:                 "is missing",
	} {
		f, _ := document(t, text)
		if got := fault.From(f.Err()).Message; !strings.Contains(got, want) {
			t.Errorf("%s: %s", text, got)
		}
	}
}
