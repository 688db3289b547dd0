package amp

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var testDomains = Domains{Own: "agents.big.example", Aliases: []string{"aimaestro.local"}}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want Address // zero for what is refused
	}{
		{"bob@acme.crabmail.ai", Address{"bob", "", "acme", "crabmail.ai"}},
		{"Bob@Acme.CrabMail.ai", Address{"bob", "", "acme", "crabmail.ai"}},
		{"bob@team.acme.crabmail.ai", Address{"bob", "team", "acme", "crabmail.ai"}},
		{"bob@repo.github.acme.aimaestro.local", Address{"bob", "repo.github", "acme", "aimaestro.local"}},
		{"bob@acme.agents.big.example", Address{"bob", "", "acme", "agents.big.example"}},
		{"bob@r.p.acme.agents.big.example", Address{"bob", "r.p", "acme", "agents.big.example"}},
		{"bob@acme.local", Address{"bob", "", "acme", "local"}},
		{"bob@acme", Address{"bob", "", "acme", "agents.big.example"}},
		{"bob", Address{"bob", "", "home", "agents.big.example"}},
		{"_b-0@t.a.b", Address{"_b-0", "", "t", "a.b"}},
		{"", Address{}},
		{"@acme.a.b", Address{}},
		{"bob@", Address{}},
		{"bob@@acme.a.b", Address{}},
		{"bob@acme..b", Address{}},
		{"bob@.acme.a.b", Address{}},
		{"bob@agents.big.example", Address{}},
		{"bob smith@acme.a.b", Address{}},
		{"böb@acme.a.b", Address{}},
		{"bоb@acme.a.b", Address{}}, // Cyrillic
		{"../x@acme.a.b", Address{}},
		{"bob@acme.a.b\n", Address{}},
		{strings.Repeat("a", 64) + "@acme.a.b", Address{}},
		{"a@" + strings.Repeat("a.", 130) + "b", Address{}},
	} {
		got, err := testDomains.Expand(c.in, "home")
		if (err != nil) != (c.want == Address{}) {
			t.Errorf("%q: %+v %v", c.in, got, err)
		}
		if d := cmp.Diff(c.want, got); err == nil && d != "" {
			t.Errorf("%q: %s", c.in, d)
		}
	}
	if _, err := testDomains.Parse("bob"); err == nil {
		t.Error("a bare name is an address without a tenant")
	}
}

func TestSpellingsOfALocalAddress(t *testing.T) {
	t.Parallel()
	a := Address{"bob", "r.p", "acme", "agents.big.example"}
	want := []string{
		"bob@r.p.acme.agents.big.example", "bob@acme.agents.big.example", "bob@r.p.acme.aimaestro.local",
		"bob@acme.aimaestro.local",
	}
	if d := cmp.Diff(want, testDomains.Spellings(a)); d != "" {
		t.Error(d)
	}
	for _, s := range want {
		parsed, err := testDomains.Parse(s)
		if err != nil || testDomains.Home(parsed).Short() != a.Short() {
			t.Errorf("%s: %+v %v", s, parsed, err)
		}
	}
}

// FuzzAddress: what is taken is clean, and means the same when it is written out.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{
		"bob", "bob@acme", "a@b.c.d", "A@B.agents.big.example", "x@y.z", "@", "a@b@c", "a@.",
		"é@x.y.z",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := testDomains.Expand(text, "home")
		if err != nil {
			return
		}
		full := a.String()
		if strings.ToLower(full) != full || strings.ContainsAny(full, "/\\\x00 %") || a.Tenant == "" || a.Provider == "" ||
			a.Name == "" {
			t.Fatalf("%q: %+v", text, a)
		}
		again, err := testDomains.Expand(full, "other")
		if err != nil || again != a {
			t.Fatalf("%q: %+v, then %+v %v", text, a, again, err)
		}
	})
}

func TestLabelsAreWhatTheirFormSays(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9_-]{0,70}`)).Draw(t, "text")
		if isLabel(text, true) != name.MatchString(text) || isLabel(text, false) != LabelForm.MatchString(text) {
			t.Errorf("%q: %v %v", text, isLabel(text, true), isLabel(text, false))
		}
	})
}
