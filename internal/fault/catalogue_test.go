package fault_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"signalbox/internal/fault"
)

func TestEveryRowOfTheCatalogueIsWellFormed(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, m := range fault.Catalogue {
		if !form.MatchString(string(m.Code)) {
			t.Errorf("%q: a code is words of lower-case letters with underscores", m.Code)
		}
		// 499 is nginx's word for a caller that went away; nobody reads the answer.
		if m.Status < 400 || (http.StatusText(m.Status) == "" && m.Status != 499) {
			t.Errorf("%s: %d is no status of an error", m.Code, m.Status)
		}
		if m.Code.Status() != m.Status {
			t.Errorf("%s: Status() is %d, the row says %d", m.Code, m.Code.Status(), m.Status)
		}
		if !strings.HasSuffix(m.Text, ".") || strings.ContainsAny(m.Text, "|\n") {
			t.Errorf("%s: the meaning is sentences without line breaks or bars: %q", m.Code, m.Text)
		}
	}
}
