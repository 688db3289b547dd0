package wire_test

import (
	"testing"

	"signalbox/internal/wire"
	"signalbox/internal/wire/wiretest"
)

func TestAnAnswerIsReadAsEveryReaderOfOursReadsIt(t *testing.T) {
	for _, a := range wiretest.Answers(wiretest.Words{Name: "decision", Yes: `"allow"`, No: `"block"`}) {
		members, err := wire.Members([]byte(a.Text))
		if got := err == nil && string(members["decision"]) == `"allow"`; got != a.Good {
			t.Errorf("%s: Members takes %q for an approval: %v (%v)", a.Name, a.Text, got, err)
		}
		var part struct {
			Decision string `json:"decision"`
		}
		err = wire.UnmarshalPart([]byte(a.Text), &part)
		if got := err == nil && part.Decision == "allow"; got != a.Good {
			t.Errorf("%s: UnmarshalPart takes %q for an approval: %v (%v)", a.Name, a.Text, got, err)
		}
	}
}
