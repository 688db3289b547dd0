package roster_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

// options are those of a roster over a ledger that runs until the test ends.
func options(t testing.TB, address string) (roster.Options, *ledgertest.Clock) {
	t.Helper()
	n := ledgertest.Open(t, address, nil,
		[]ledgertest.Part{{Migrations: roster.Migrations, Projection: roster.Projection()}})
	n.Run()
	return roster.Options{
		DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: slog.New(slog.DiscardHandler),
		Provider: "signalbox.local",
	}, n.Clock
}

// start makes a roster with its first operator, who is returned as the caller.
func start(t testing.TB, address string) (*roster.Roster, roster.Identity, *ledgertest.Clock) {
	t.Helper()
	o, c := options(t, address)
	r, admin := begin(t, o)
	return r, admin, c
}

func begin(t testing.TB, o roster.Options) (*roster.Roster, roster.Identity) {
	t.Helper()
	r := roster.New(o)
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	token, err := r.LocalToken(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := r.Authenticate(t.Context(), token.Secret)
	if err != nil {
		t.Fatal(err)
	}
	return r, admin
}

// add adds an agent to the first workspace and returns it with its signal key.
func add(t testing.TB, r *roster.Roster, admin roster.Identity, n roster.NewAgent) (roster.Agent, string) {
	t.Helper()
	a, keys := addWithKeys(t, r, admin, n)
	return a, keys[0].Secret
}

// addWithKeys adds an agent and returns all its keys.
func addWithKeys(
	t testing.TB, r *roster.Roster, admin roster.Identity, n roster.NewAgent,
) (roster.Agent, []roster.Issued) {
	t.Helper()
	a, keys, err := r.AddAgent(t.Context(), admin, n)
	if err != nil {
		t.Fatal(err)
	}
	return a, keys
}

// identify finds out who holds the key.
func identify(t testing.TB, r *roster.Roster, secret string) roster.Identity {
	t.Helper()
	who, err := r.Authenticate(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func TestKeysHaveTheFormsTheirProtocolsGiveThem(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		_, keys := addWithKeys(t, r, admin, roster.NewAgent{Name: "forms"})
		_, token, err := r.AddOperator(t.Context(), admin, "ines", "viewer", "")
		if err != nil {
			t.Fatal(err)
		}
		_, owned, err := r.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"})
		if err != nil {
			t.Fatal(err)
		}
		forms := map[roster.KeyKind]string{
			roster.SignalKey: `^rs-amp-[0-9a-z]{32}$`, roster.MailKey: `^amp_live_sk_[0-9a-f]{64}$`,
			roster.OperatorKey: `^sbx_op_[0-9a-z]{40}$`, roster.OwnerKey: `^uk_[0-9a-z]{40}$`,
		}
		for _, k := range append(keys, token, owned) {
			if !regexp.MustCompile(forms[k.Key.Kind]).MatchString(k.Secret) {
				t.Errorf("a %s key is %s", k.Key.Kind, k.Secret)
			}
			prefix, last, _ := strings.Cut(k.Key.Hint, "…")
			if !strings.HasPrefix(k.Secret, prefix) || !strings.HasSuffix(k.Secret, last) || len(last) != 4 ||
				strings.Contains(forms[k.Key.Kind], prefix+"…") {
				t.Errorf("the hint of a %s key is %s", k.Key.Kind, k.Key.Hint)
			}
		}
	})
}

func TestAnyKeyOfAnAgentIsTheSameAgent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		agent, keys, err := r.AddAgent(t.Context(), admin,
			roster.NewAgent{Name: "one", Labels: map[string]string{"team": "finance"}})
		if err != nil {
			t.Fatal(err)
		}
		further, err := r.IssueAgentKey(t.Context(), admin, roster.IssueKey{Agent: "one", Workspace: "default", Kind: "mail"})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range append(keys, further) {
			who, err := r.Authenticate(t.Context(), k.Secret)
			if err != nil || who.ID != agent.ID || who.Name != "one" || who.Workspace != "default" || who.Role != "" ||
				who.Actor() != "agent:one" {
				t.Errorf("%s: %+v %v", k.Key.Kind, who, err)
			}
		}
		if found, err := r.Agent(t.Context(), "default", agent.ID); err != nil || found.Labels["team"] != "finance" {
			t.Errorf("by its id: %+v %v", found, err)
		}
	})
}

func TestARotatedKeyWorksForADayMore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, c := start(t, address)
		_, keys := addWithKeys(t, r, admin, roster.NewAgent{Name: "rotating"})
		old := keys[0]
		replaced, err := r.RotateKey(t.Context(), admin, old.Key.ID)
		if err != nil {
			t.Fatal(err)
		}
		works := func(secret string) bool {
			_, err := r.Authenticate(t.Context(), secret)
			if err != nil && !fault.Is(err, fault.Unauthenticated) {
				t.Error(err)
			}
			return err == nil
		}
		if replaced.Key.Kind != old.Key.Kind || replaced.Secret == old.Secret || !works(old.Secret) ||
			!works(replaced.Secret) {
			t.Error("right after a rotation both keys work")
		}
		c.Move(23*time.Hour + 59*time.Minute)
		if !works(old.Secret) {
			t.Error("the old key is refused before its day is over")
		}
		c.Move(2 * time.Minute)
		if works(old.Secret) || !works(replaced.Secret) {
			t.Error("after a day only the new key works")
		}
		if _, err := r.RevokeKey(t.Context(), admin, replaced.Key.ID); err != nil || works(replaced.Secret) {
			t.Errorf("a revoked key still works: %v", err)
		}
	})
}

// A clock that was set back, or that of another node, must not bring a key to life.
func TestARevokedKeyIsRefusedWhateverTheClockSays(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, c := start(t, address)
		_, keys := addWithKeys(t, r, admin, roster.NewAgent{Name: "leaver"})
		if _, err := r.RevokeKey(t.Context(), admin, keys[0].Key.ID); err != nil {
			t.Fatal(err)
		}
		c.Move(-time.Hour)
		if _, err := r.Authenticate(t.Context(), keys[0].Secret); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("an hour earlier: %v", err)
		}
	})
}

func TestAnOperatorIsNotCalledLikeARole(t *testing.T) {
	t.Parallel()
	r, admin, _ := start(t, storetest.SQLite(t))
	for _, c := range []struct{ name, role string }{
		{"operator", "viewer"},
		{"operator", "admin"},
		{"viewer", "operator"},
	} {
		if _, _, err := r.AddOperator(t.Context(), admin, c.name, c.role, ""); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, _, err := r.AddOperator(t.Context(), admin, "operator", "operator", ""); err != nil {
		t.Error(err)
	}
}

func TestANameIsGivenOnceHoweverManyAsk(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		var given, taken atomic.Int32
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				switch _, _, err := r.AddAgent(context.Background(), admin, roster.NewAgent{Name: "wanted"}); {
				case err == nil:
					given.Add(1)
				case fault.Is(err, fault.AlreadyExists):
					taken.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if given.Load() != 1 || taken.Load() != 39 {
			t.Errorf("given %d times, refused %d times", given.Load(), taken.Load())
		}
	})
}

func TestANameThatIsGivenAgainIsSomebodyElse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		_, old := addWithKeys(t, r, admin, roster.NewAgent{Name: "again"})
		if err := r.RemoveAgent(t.Context(), admin, "default", "again"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.AddAgent(t.Context(), admin, roster.NewAgent{Name: "again"}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Authenticate(t.Context(), old[0].Secret); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("a key of the one before: %v", err)
		}
	})
}

func TestRolesContainOneAnother(t *testing.T) {
	t.Parallel()
	for i, a := range roster.Roles {
		for j, b := range roster.Roles {
			if got := roster.Role(a).Allows(roster.Role(b)); got != (i >= j) {
				t.Errorf("%s may do what a %s may: %v", a, b, got)
			}
		}
		if roster.Role("").Allows(roster.Role(a)) {
			t.Errorf("somebody without a role may do what a %s may", a)
		}
		if roster.Role(a).Allows("owner") {
			t.Errorf("a %s may do what takes a role that there is not", a)
		}
	}
}

func TestBadNamesAndLabelsAreRefused(t *testing.T) {
	t.Parallel()
	r, admin, _ := start(t, storetest.SQLite(t))
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	for _, n := range []roster.NewAgent{
		{Name: ""},
		{Name: "-a"},
		{Name: "a-"},
		{Name: "a--b"},
		{Name: "A"},
		{Name: "ä"},
		{Name: "a b"},
		{Name: strings.Repeat("a", 64)},
		{Name: "a", Labels: map[string]string{"": "x"}},
		{Name: "a", Labels: many},
		{Name: "a", Labels: map[string]string{"x": strings.Repeat("x", 256)}},
		{Name: "a", Trust: "blind"},
	} {
		if _, _, err := r.AddAgent(t.Context(), admin, n); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if _, _, err := r.AddAgent(t.Context(), admin, roster.NewAgent{Name: strings.Repeat("a", 63)}); err != nil {
		t.Error(err)
	}
}

// An agent that is known by where it calls from goes on when its suspension is over.
func TestASuspensionOfANamedAgentEnds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, c := start(t, address)
		add(t, r, admin, roster.NewAgent{Name: "coder"})
		if _, err := r.Suspend(t.Context(), admin, "default", "coder", "", c.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{true, true, false} {
			if who, err := r.Named(t.Context(), "default", "coder"); err != nil || who.Suspended != want {
				t.Errorf("suspended is %v (%v), want %v", who.Suspended, err, want)
			}
			c.Move(40 * time.Minute)
		}
	})
}
