package policy_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/policy"
)

func TestAStoredInputOfAnotherVersionIsRead(t *testing.T) {
	var in policy.Input
	if err := policy.DecodeData(
		[]byte(
			`{"event":{"point":"action","colour":"red","payload":{"big":9007199254740993}},"weather":"fine",`+
				`"now":"2026-05-01T12:00:00Z"}`,
		), &in,
	); err != nil {
		t.Fatal(err)
	}
	if in.Event.Point != "action" || !in.Now.Equal(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("got %+v", in)
	}
	if got := outcome(t, `event.payload.big == 9007199254740993 && event.payload.big != 9007199254740992`,
		in); got != "true" {
		t.Errorf("a large number lost its digits: %s", got)
	}
}

// fill gives every field of a struct a value that is not its zero, and returns a
// condition that sees them all.
func fill(v reflect.Value, name string) string {
	var seen []string
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if tag == "-" { // what a call claims, which rules do not see
			continue
		}
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("v-" + tag)
			seen = append(seen, name+"."+tag+` == "v-`+tag+`"`)
		case reflect.Bool:
			f.SetBool(true)
			seen = append(seen, name+"."+tag)
		case reflect.Int64:
			f.SetInt(int64(i))
			seen = append(seen, name+"."+tag+" > 0")
		case reflect.Float64:
			f.SetFloat(1.5)
			seen = append(seen, name+"."+tag+" == 1.5")
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v-"+tag))
			seen = append(seen, name+"."+tag+`.k == "v-`+tag+`"`)
		case reflect.Slice:
			f.Set(reflect.Append(f, reflect.ValueOf("v-"+tag)))
			seen = append(seen, name+"."+tag+`[0] == "v-`+tag+`"`)
		default: // no field that rules see
			continue
		}
		seen = append(seen, "has("+name+"."+tag+")")
	}
	return strings.Join(seen, " && ")
}

func TestDataIsFilledInWhenARuleAsksForIt(t *testing.T) {
	filled := 0
	in := policy.Input{Event: &policy.Event{Point: policy.OnPrompt, Tool: "t", Fill: func(e *policy.Event) {
		filled++
		e.Payload, e.Metadata = map[string]any{"a": "b"}, map[string]any{"c": "d"}
	}}}
	for _, c := range []struct {
		when string
		want int
	}{
		{`event.tool == "t"`, 0},
		{`event.payload.a == "b" && event.metadata.c == "d" && has(event.payload)`, 1},
	} {
		p := parse(t, "version: 1\nrules:\n  - {name: r, on: [prompt], when: '"+c.when+"', then: block}\n")
		if v := p.Decide(t.Context(), in); v.Rule != "r" || filled != c.want {
			t.Errorf("%s: decided by %s, filled %d times", c.when, v.Rule, filled)
		}
	}
}

func TestRulesSeeEveryFieldOfAnInput(t *testing.T) {
	in := policy.Input{Event: &policy.Event{}}
	agent := fill(reflect.ValueOf(&in.Agent).Elem(), "agent")
	event := fill(reflect.ValueOf(in.Event).Elem(), "event")
	event = strings.Replace(event, `event.point == "v-point"`, `event.point == "action"`, 1)
	for part := range slices.Values(strings.Split(event+" && "+agent, " && ")) {
		if got := outcome(t, part, in); got != "true" {
			t.Errorf("%s is %s", part, got)
		}
	}
}

func TestMergePutsASetIntoAPayload(t *testing.T) {
	payload := map[string]any{"a": 1, "b": map[string]any{"c": 2, "d": 3}, "e": 4}
	set := map[string]any{"b": map[string]any{"c": nil, "x": []any{5}}, "e": nil, "f": map[string]any{"g": 6}}
	want := map[string]any{"a": 1, "b": map[string]any{"d": 3, "x": []any{5}}, "f": map[string]any{"g": 6}}
	if diff := cmp.Diff(want, policy.Merge(payload, set)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"a": 1, "b": map[string]any{"c": 2, "d": 3}, "e": 4}, payload); diff != "" {
		t.Errorf("the payload was changed: %s", diff)
	}
	if diff := cmp.Diff(map[string]any{"f": map[string]any{}},
		policy.Merge(nil, map[string]any{"f": map[string]any{"x": nil}})); diff != "" {
		t.Error(diff)
	}
}

// Some decoders make every number a float64; the record of a decision keeps its digits.
func TestAWholeNumberIsTheSameHoweverItWasDecoded(t *testing.T) {
	for _, n := range []float64{0, 3, 1 << 53, 1<<53 + 4, 1e17, 1e18, -1e18, 1e19, 1e21, 1e300} {
		text, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range []string{"event.payload.n % 2 == 0", "event.payload.n / 4 == 1", "event.payload.n > 5"} {
			decided := outcome(t, condition, policy.Input{Event: &policy.Event{Payload: map[string]any{"n": n}}})
			replayed := outcome(t, condition, policy.Input{Event: &policy.Event{Payload: map[string]any{"n": json.Number(text)}}})
			if decided != replayed {
				t.Errorf("%s with %s: %s, and replayed %s", condition, text, decided, replayed)
			}
		}
	}
}
