package wire_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

func get(t *testing.T, query string) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/list?"+query, http.NoBody)
}

func TestALimitIsBetweenOneAndTheMost(t *testing.T) {
	for query, want := range map[string]int{
		"": 100, "limit=": 100, "limit=1": 1, "limit=1000": 1000,
		"limit=0": 0, "limit=1001": 0, "limit=-1": 0, "limit=x": 0, "limit=1.5": 0, "limit=99999999999999999999": 0,
	} {
		got, err := wire.Limit(get(t, query))
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: got %d, %v", query, got, err)
		}
		if err != nil && !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%q: got %v", query, err)
		}
	}
}

func TestANumberInThePathIsOneOrMore(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "12345678901": 12345678901, "0": 0, "-1": 0, "x": 0, "": 0} {
		r := get(t, "")
		r.SetPathValue("seq", text)
		got, err := wire.PathNumber(r, "seq")
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
}

func TestACursorComesBackAsItWasGiven(t *testing.T) {
	for _, parts := range [][]string{{"a"}, {"a", "b"}, {"", ""}, {"ä/?&=", "123"}} {
		cursor := wire.Cursor(parts...)
		got, err := wire.ReadCursor(get(t, "cursor="+url.QueryEscape(cursor)), len(parts))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parts, got); diff != "" {
			t.Error(diff)
		}
	}
	got, err := wire.ReadCursor(get(t, ""), 2)
	if diff := cmp.Diff([]string{"", ""}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestACursorThatNoListingGaveIsRefused(t *testing.T) {
	for name, cursor := range map[string]string{
		"not base64":    "***",
		"too few parts": wire.Cursor("a"),
		"too many":      wire.Cursor("a", "b", "c"),
		"broken UTF-8":  base64.RawURLEncoding.EncodeToString([]byte("a\x00\xff")),
	} {
		if _, err := wire.ReadCursor(get(t, "cursor="+url.QueryEscape(cursor)), 2); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAnUnknownParameterNamesTheNearest(t *testing.T) {
	known := []wire.Param{{Name: "limit"}, {Name: "cursor"}}
	if err := wire.KnownQuery(get(t, "limit=1&cursor=x"), &wire.Route{Query: known}); err != nil {
		t.Error(err)
	}
	err := wire.KnownQuery(get(t, "limt=1"), &wire.Route{Query: known})
	if diff := cmp.Diff(`The parameter "limt" is not known here. Did you mean "limit"?`,
		fault.From(err).Message); diff != "" {
		t.Error(diff)
	}
}
