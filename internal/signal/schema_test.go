package signal

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What /openapi.json says of a document is what is read.
func TestTheDescribedDocumentsAreTheFormsThatAreRead(t *testing.T) {
	t.Parallel()
	for kind, form := range forms {
		described := map[string]bool{}
		for f := range reflect.TypeOf(documents[kind]).Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			described[name] = options == ""
		}
		if diff := cmp.Diff(form.fields, described); diff != "" {
			t.Errorf("%s (- read, + described):\n%s", kind, diff)
		}
	}
}
