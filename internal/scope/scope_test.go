package scope_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/scope"
)

func TestScopesAreNarrowed(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"*", "email.send", "email.send"},
		{"*", "*", "*"},
		{"*", "", ""},
		{"email.*", "email.send", "email.send"},
		{"email.*", "email.send.*", "email.send.*"},
		{"email.*", "email", ""},
		{"email.*", "email2.send", ""},
		{"email.send", "email.send.now", ""},
		{"email.send email.read", "email.read tools.write", "email.read"},
		{"email.* tools.read", "email.send tools.*", "email.send tools.read"},
	} {
		for _, both := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			got := strings.Join(scope.Narrow(strings.Fields(both[0]), strings.Fields(both[1])), " ")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%q and %q (-want +got):\n%s", both[0], both[1], diff)
			}
		}
	}
}

// Whatever is narrowed has exactly what both lists have, in any order and any number of times.
func TestNarrowingNeverWidens(t *testing.T) {
	words := []string{"*", "a", "a.*", "a.b", "a.b.*", "a.b.c", "ab", "b", "b.*", "b.c"}
	asked := []string{"a", "a.b", "a.b.c", "a.x", "ab", "b", "b.c", "c"}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.SampledFrom(words), 0, 4)
		a, b, c := list.Draw(t, "a"), list.Draw(t, "b"), list.Draw(t, "c")
		got := scope.Narrow(scope.Narrow(a, b), c)
		for _, s := range asked {
			if want := scope.Has(a, s) && scope.Has(b, s) && scope.Has(c, s); scope.Has(got, s) != want {
				t.Fatalf("%v, %v and %v give %v, which has %s: %v", a, b, c, got, s, !want)
			}
		}
	})
}

func TestTheFormOfScopes(t *testing.T) {
	for _, right := range []string{"*", "email", "email.send", "email.*", "mcp:github.issues", "a-b.c_d"} {
		if err := scope.Check([]string{right}); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
	for _, wrong := range []string{"", "Email", "email.", ".email", "em*il", "email*", "*.send", "a b", "a..b"} {
		if err := scope.Check([]string{wrong}); err == nil {
			t.Errorf("%q is taken for a scope", wrong)
		}
	}
	if err := scope.Check(slices.Repeat([]string{"a"}, 300)); err == nil {
		t.Error("300 scopes are taken")
	}
}
