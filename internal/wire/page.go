package wire

import (
	"encoding/base64"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"signalbox/internal/fault"
)

// MaxPage is the most that one page of a listing holds.
const MaxPage = 1000

// Limit reads ?limit=, which is 100 when absent.
func Limit(r *http.Request) (int, error) {
	n, err := Number(r, "limit", 100)
	if err != nil || n < 1 || n > MaxPage {
		return 0, fault.New(fault.InvalidRequest, "The parameter limit should be a whole number from 1 to %d.",
			MaxPage).About("limit")
	}
	return int(n), nil
}

// Number reads a whole number, 0 or more, from the query.
func Number(r *http.Request, name string, absent int64) (int64, error) {
	return parseNumber(name, r.URL.Query().Get(name), absent)
}

// PathNumber reads a whole number, 1 or more, from the path.
func PathNumber(r *http.Request, name string) (int64, error) {
	n, err := parseNumber(name, r.PathValue(name), 0)
	if err == nil && n == 0 {
		err = fault.New(fault.InvalidRequest, "The %s in the address should be a whole number, 1 or more.", name).About(name)
	}
	return n, err
}

// parseNumber reads a number of the path or the query; absent is the value of "".
func parseNumber(name, text string, absent int64) (int64, error) {
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.New(fault.InvalidRequest, "The %s should be a whole number, 0 or more, and is %.40q.", name,
			text).About(name)
	}
	return n, nil
}

// Cursor packs the sort key of a page's last row into one word. It is not signed: a caller who
// makes one up can only ask for another page of what it may see.
func Cursor(parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\x00")))
}

// ReadCursor unpacks ?cursor= into n parts, empty ones when it is absent.
func ReadCursor(r *http.Request, n int) ([]string, error) {
	return ParseCursor(r.URL.Query().Get("cursor"), n)
}

// ParseCursor unpacks what Cursor has packed into n parts, empty ones for an empty text.
func ParseCursor(text string, n int) ([]string, error) {
	if text == "" {
		return make([]string, n), nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.Split(string(raw), "\x00")
	if err != nil || len(parts) != n || !utf8.Valid(raw) {
		return nil, BadCursor()
	}
	return parts, nil
}

// SeqCursor is the cursor of a listing that is sorted by one number, the newest first.
func SeqCursor(last int64) string { return Cursor(strconv.FormatInt(last, 10)) }

// ReadSeqCursor reads the number that a page begins before, the largest there is when the
// cursor is absent.
func ReadSeqCursor(r *http.Request) (before int64, err error) {
	return ParseSeqCursor(r.URL.Query().Get("cursor"))
}

// ParseSeqCursor reads what SeqCursor has made, the largest number there is for an empty text.
func ParseSeqCursor(text string) (before int64, err error) {
	parts, err := ParseCursor(text, 1)
	if err != nil {
		return 0, err
	}
	return CursorNumber(parts[0])
}

// CursorNumber is a part of a cursor that is a number, the largest there is for "".
func CursorNumber(part string) (int64, error) {
	if part == "" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(part, 10, 64)
	if err != nil {
		return 0, BadCursor()
	}
	return n, nil
}

// BadCursor is the error for a cursor that Cursor has not made.
func BadCursor() error {
	return fault.New(fault.InvalidRequest,
		"The cursor is not one that this listing gave. Use the value of next from the page before, or leave it out.").
		About("cursor")
}

// KnownQuery refuses query parameters that the route does not have, unless it is
// lenient: a misspelt filter would silently select everything. It also refuses paths and
// values with a NUL or invalid UTF-8, which PostgreSQL could not look up.
func KnownQuery(r *http.Request, route *Route) error {
	var query url.Values
	var err error
	if r.URL.RawQuery != "" {
		query, err = url.ParseQuery(r.URL.RawQuery)
	}
	if err != nil {
		return fault.New(fault.InvalidRequest,
			"The query of the address is not well formed. Write & between parameters, and %%25 for a percent sign.")
	}
	if !Storable(r.URL.Path) {
		return fault.New(fault.InvalidRequest, "The address contains a NUL or broken UTF-8.")
	}
	var names []string
	for _, p := range route.Query {
		names = append(names, p.Name)
	}
	for name, values := range query {
		if !Storable(name) || slices.ContainsFunc(values, func(v string) bool { return !Storable(v) }) {
			return fault.New(fault.InvalidRequest, "The query of the address contains a NUL or broken UTF-8.")
		}
		if !route.Lenient && !slices.Contains(names, name) {
			return fault.New(fault.InvalidRequest, "The parameter %.80q is not known here. %s", name,
				fault.DidYouMean(name, names)).About(name)
		}
	}
	return nil
}

// Storable reports whether text can be stored and looked up in every database.
func Storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
