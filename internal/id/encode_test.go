package id

import (
	"testing"

	"github.com/google/uuid"
)

func TestADigitHoldsFiveBitsAndTheFirstThree(t *testing.T) {
	for _, c := range []struct{ uuid, want string }{
		{"00000000-0000-0000-0000-000000000000", "00000000000000000000000000"},
		{"00000000-0000-0000-0000-000000000001", "00000000000000000000000001"},
		{"00000000-0000-0000-0000-000000000020", "00000000000000000000000010"},
		{"ffffffff-ffff-ffff-ffff-ffffffffffff", "7zzzzzzzzzzzzzzzzzzzzzzzzz"},
		{"20000000-0000-0000-0000-000000000000", "10000000000000000000000000"},
		{"01563e3a-b5d3-d676-4c61-efb99302bd5b", "01arz3ndektsv4rrffq69g5fav"}, // the example of the ULID specification
	} {
		if got := encode(uuid.MustParse(c.uuid)); got != c.want {
			t.Errorf("%s is %s, and should be %s", c.uuid, got, c.want)
		}
	}
}
