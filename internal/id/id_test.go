package id_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/id"
)

func TestAnIDIsItsPrefixAndTwentySixDigits(t *testing.T) {
	form := regexp.MustCompile(`^gate_[0-7][0-9abcdefghjkmnpqrstvwxyz]{25}$`)
	for range 1000 {
		if s := id.New("gate"); !form.MatchString(s) || !id.Is("gate", s) {
			t.Fatalf("got %q", s)
		}
	}
}

func TestIDsSortByTheTimeOfMakingAndNeverRepeat(t *testing.T) {
	made := make([]string, 10_000)
	for i := range made {
		made[i] = id.New("agent")
	}
	if !slices.IsSorted(made) {
		t.Error("they are not in order")
	}
	if n := len(slices.Compact(made)); n != 10_000 {
		t.Errorf("%d of 10000 are different", n)
	}
}

func TestIDsMadeTogetherAreDifferent(t *testing.T) {
	var (
		wg   sync.WaitGroup
		made [8][1000]string
	)
	for g := range made {
		wg.Go(func() {
			for i := range made[g] {
				made[g][i] = id.New("key")
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, group := range made {
		for _, s := range group {
			seen[s] = true
		}
	}
	if len(seen) != 8000 {
		t.Errorf("%d of 8000 are different", len(seen))
	}
}

func TestIsTellsIDsFromOtherText(t *testing.T) {
	good := id.New("gate")
	for _, c := range []struct {
		name, prefix, s string
		want            bool
	}{
		{"an id", "gate", good, true},
		{"the smallest", "gate", "gate_" + strings.Repeat("0", 26), true},
		{"the largest", "gate", "gate_7" + strings.Repeat("z", 25), true},
		{"of another kind", "agent", good, false},
		{"of a kind that begins alike", "gat", good, false},
		{"without its prefix", "gate", strings.TrimPrefix(good, "gate_"), false},
		{"a digit short", "gate", good[:len(good)-1], false},
		{"a digit long", "gate", good + "0", false},
		{"in capitals", "gate", strings.ToUpper(good), false},
		{"more than 128 bits", "gate", "gate_8" + strings.Repeat("0", 25), false},
		{
			"a letter that Crockford leaves out", "gate", "gate_0" + strings.Repeat("0", 12) + "u" + strings.Repeat("0", 12),
			false,
		},
		{"a letter of more than one byte", "gate", "gate_0" + strings.Repeat("0", 23) + "ä", false},
		{"nothing", "gate", "", false},
		{"only the prefix", "gate", "gate_", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := id.Is(c.prefix, c.s); got != c.want {
				t.Errorf("Is(%q, %q) is %v", c.prefix, c.s, got)
			}
		})
	}
}
