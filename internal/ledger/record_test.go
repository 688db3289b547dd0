package ledger

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/wire"
)

// A record by hand is what the encoder makes of it, and is read back as it was.
func TestARecordIsItsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// seal refuses it
		text := func(name string) string { return strings.ReplaceAll(rapid.String().Draw(t, name), "\x00", "") }
		r := record{
			rapid.Int64().Draw(t, "seq"), rapid.Int64().Draw(t, "at"), text("workspace"), text("kind"), text("actor"),
			text("subject"), text("trace"), text("body"),
		}
		want, err := wire.Marshal(r)
		got := r.encode()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s\nshould be\n%s (%v)", got, want, err)
		}
		if back, err := parseRecord(got); back != r || err != nil {
			t.Fatalf("%s is read as %+v (%v)", got, back, err)
		}
	})
}
