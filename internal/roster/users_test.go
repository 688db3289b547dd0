package roster_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// addUser adds a user to the first workspace.
func addUser(t testing.TB, r *roster.Roster, admin roster.Identity, n roster.NewUser) roster.User {
	t.Helper()
	u, _, err := r.AddUser(t.Context(), admin, n)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestForWhomAnAgentActs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		alice := addUser(t, r, admin, roster.NewUser{Name: "alice", Email: "Alice@example.com"})
		bob := addUser(t, r, admin, roster.NewUser{Name: "bob"})
		carol := addUser(t, r, admin, roster.NewUser{Name: "carol"})
		if err := r.AddWorkspace(t.Context(), admin, "other"); err != nil {
			t.Fatal(err)
		}
		addUser(t, r, admin, roster.NewUser{Name: "dave", Workspace: "other"})
		agents := map[string]roster.NewAgent{
			"nobody's": {Name: "free"},
			"alice's":  {Name: "hers", Owner: "alice"},
			"a list":   {Name: "list", Owner: "alice", ActsFor: []string{"owner", "bob"}},
			"anybody":  {Name: "desk", ActsFor: []string{"anybody"}},
		}
		keys := map[string]string{}
		for name, n := range agents {
			_, keys[name] = add(t, r, admin, n)
		}
		for _, c := range []struct {
			agent, named string
			user         string // an id
			proof        roster.Proof
			claimed      string
		}{
			{"nobody's", "", "", "", ""},
			{"nobody's", "alice", "", "", "alice"},
			{"alice's", "", alice.ID, roster.ProofOwner, ""},
			{"alice's", "alice", alice.ID, roster.ProofOwner, ""},
			{"alice's", alice.ID, alice.ID, roster.ProofOwner, ""},
			{"alice's", "ALICE@example.com", alice.ID, roster.ProofOwner, ""},
			{"alice's", "bob", alice.ID, roster.ProofOwner, "bob"}, // bound to its owner all the same
			{"alice's", "nobody-at-all", alice.ID, roster.ProofOwner, "nobody-at-all"},
			{"a list", "bob", bob.ID, roster.ProofKey, ""},
			{"a list", "carol", alice.ID, roster.ProofOwner, "carol"},
			{"anybody", "carol", carol.ID, roster.ProofKey, ""},
			{"anybody", "dave", "", "", "dave"}, // of another workspace
			{"anybody", "", "", "", ""},
		} {
			b, err := r.For(t.Context(), identify(t, r, keys[c.agent]), c.named)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if b.User != nil {
				got = b.User.ID
			}
			if got != c.user || b.Proof != c.proof || b.Claimed != c.claimed {
				t.Errorf("%s names %q: %q %q %q, want %+v", c.agent, c.named, got, b.Proof, b.Claimed, c)
			}
		}

		// What an operator changes holds for the next call.
		none := []string{}
		a, err := r.ChangeAgent(t.Context(), admin, "default", "list", roster.AgentChange{ActsFor: &none})
		if err != nil || len(a.ActsFor) != 0 {
			t.Fatal(a, err)
		}
		if b, err := r.For(t.Context(), identify(t, r, keys["a list"]), "bob"); err != nil || b.Claimed != "bob" {
			t.Errorf("%+v %v", b, err)
		}
		if err := r.RemoveUser(t.Context(), admin, "default", "alice"); err != nil {
			t.Fatal(err)
		}
		if b, err := r.For(t.Context(), identify(t, r, keys["alice's"]), ""); err != nil || b.User != nil {
			t.Errorf("an agent acts for somebody who was removed: %+v %v", b, err)
		}
		// Somebody else with the same name is another user.
		addUser(t, r, admin, roster.NewUser{Name: "alice"})
		if b, err := r.For(t.Context(), identify(t, r, keys["alice's"]), "alice"); err != nil || b.User != nil {
			t.Errorf("an agent acts for another alice: %+v %v", b, err)
		}
	})
}

func TestAUserIsChanged(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		scopes := []string{"email.read"}
		want := addUser(t, r, admin, roster.NewUser{
			Name: "alice", Email: "alice@example.com", Scopes: &scopes, Limits: map[string]int64{"actions_per_minute": 60},
		})
		read := func() roster.User {
			u, err := r.User(t.Context(), "default", "alice")
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		if diff := cmp.Diff(want, read()); diff != "" || want.Limits["actions_per_minute"] != 60 {
			t.Error(diff)
		}
		none, yes, no := []string{}, true, false
		change := func(c roster.UserChange) {
			t.Helper()
			got, err := r.ChangeUser(t.Context(), admin, "default", "alice", c)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		want.Scopes = none
		change(roster.UserChange{Scopes: &none}) // nothing, and not everything
		want.Suspended = true
		change(roster.UserChange{Suspended: &yes})
		want.Suspended = false
		change(roster.UserChange{Suspended: &no})
		all, err := r.Users(t.Context(), "")
		if diff := cmp.Diff([]roster.User{want}, all); diff != "" || err != nil {
			t.Error(err, diff)
		}
		wrong := "no address"
		for field, c := range map[string]roster.UserChange{
			"email":  {Email: &wrong},
			"scopes": {Scopes: &[]string{"Every thing"}},
			"limits": {Limits: &map[string]int64{"Per Minute": 1}},
		} {
			if _, err := r.ChangeUser(t.Context(), admin, "default", "alice", c); !fault.Is(err, fault.InvalidPayload) ||
				fault.From(err).Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		addUser(t, r, admin, roster.NewUser{Name: "bob"})
		taken := "ALICE@example.com"
		if _, err := r.ChangeUser(t.Context(), admin, "default", "bob", roster.UserChange{Email: &taken}); !fault.Is(err,
			fault.AlreadyExists) {
			t.Errorf("two users with one e-mail: %v", err)
		}
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Error(diff)
		}
	})
}

// What agents may do for a user is read from entries: a row of a table gives nobody power.
func TestARowOfATableIsNoUser(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		o, _ := options(t, address)
		r, admin := begin(t, o)
		_, key := add(t, r, admin, roster.NewAgent{Name: "desk", ActsFor: []string{"anybody"}})
		forge := func(statement string) {
			t.Helper()
			if err := o.DB.Bookkeep(t.Context(), "ledger_tree", func(tx *store.Tx) error {
				tx.Exec(statement)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		forge("INSERT INTO owner (id, workspace, name, added_at) VALUES ('usr_m', 'default', 'mallory', 0)")
		if b, err := r.For(t.Context(), identify(t, r, key), "mallory"); !fault.Is(err, fault.StateMismatch) {
			t.Errorf("%+v %v", b, err)
		}
		if _, err := r.Users(t.Context(), ""); !fault.Is(err, fault.StateMismatch) {
			t.Errorf("%v", err)
		}
	})
}

// An owner of version 0.1 is a user for whom agents may do everything, as before.
func TestAnOwnerOfVersion01IsAUser(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		o, _ := options(t, address)
		r, admin := begin(t, o)
		err := r.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{
				Workspace: "default", Kind: "owner.added", Actor: "operator:admin", Subject: "usr_old",
				Body: map[string]string{"name": "finance"},
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, key := add(t, r, admin, roster.NewAgent{Name: "billing", Owner: "finance"})
		b, err := r.For(t.Context(), identify(t, r, key), "")
		if err != nil || b.User == nil || b.User.ID != "usr_old" || !cmp.Equal(b.User.Scopes, []string{"*"}) {
			t.Errorf("%+v %v", b, err)
		}
	})
}

func TestAnIdentityCarriesWhatDecisionsNeed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		a, secret := add(t, r, admin,
			roster.NewAgent{Name: "billing", Trust: "trusted", Labels: map[string]string{"team": "finance"}})
		if a.Address != "billing@default.signalbox.local" {
			t.Errorf("the address is %s", a.Address)
		}
		limit := int64(7)
		if _, err := r.ChangeAgent(t.Context(), admin, "default", "billing",
			roster.AgentChange{RateLimit: wire.Raw("7")}); err != nil {
			t.Fatal(err)
		}
		who := identify(t, r, secret)
		want := roster.Identity{
			KeyID: who.KeyID, Kind: roster.HolderAgent, ID: a.ID, Name: "billing", Workspace: "default",
			Address: a.Address, Trust: "trusted", Labels: map[string]string{"team": "finance"}, RateLimit: &limit,
		}
		if diff := cmp.Diff(want, who); diff != "" {
			t.Error(diff)
		}
		o, key, err := r.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"})
		if err != nil {
			t.Fatal(err)
		}
		who = identify(t, r, key.Secret)
		want = roster.Identity{KeyID: key.Key.ID, Kind: roster.HolderOwner, ID: o.ID, Name: "finance", Workspace: "default"}
		if diff := cmp.Diff(want, who); diff != "" || who.Actor() != "owner:finance" {
			t.Error(who.Actor(), diff)
		}
		if admin.Kind != roster.HolderOperator || admin.Actor() != "operator:admin" {
			t.Errorf("%+v", admin)
		}
	})
}

func TestAnAgentOutlivesItsOwner(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		_, key, err := r.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"}); !fault.Is(err, fault.AlreadyExists) {
			t.Errorf("the name again: %v", err)
		}
		if _, _, err := r.AddAgent(t.Context(), admin, roster.NewAgent{Name: "billing", Owner: "nobody"}); !fault.Is(err,
			fault.NotFound) {
			t.Errorf("an owner who is not there: %v", err)
		}
		a, secret := add(t, r, admin, roster.NewAgent{Name: "billing", Owner: "finance"})
		if a.Owner != "finance" {
			t.Errorf("%+v", a)
		}
		if err := r.RemoveUser(t.Context(), admin, "default", "finance"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Authenticate(t.Context(), key.Secret); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("the key of an owner who has gone: %v", err)
		}
		_ = identify(t, r, secret)
		if a, err := r.Agent(t.Context(), "default", "billing"); err != nil || a.Owner != "" {
			t.Errorf("%+v %v", a, err)
		}
		if _, _, err := r.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"}); err != nil {
			t.Fatal(err)
		}
		if a, err := r.Agent(t.Context(), "default", "billing"); err != nil || a.Owner != "" {
			t.Errorf("who has the name now is somebody else: %+v %v", a, err)
		}
	})
}

func TestTheKeysOfOwnersAreLookedAfterAsThoseOfAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		if _, _, err := r.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"}); err != nil {
			t.Fatal(err)
		}
		further, err := r.IssueUserKey(t.Context(), admin, "default", "finance")
		if err != nil {
			t.Fatal(err)
		}
		rotated, err := r.RotateKey(t.Context(), admin, further.Key.ID)
		if err != nil || rotated.Key.Owner != "finance" || rotated.Key.Workspace != "default" ||
			identify(t, r, rotated.Secret).Name != "finance" {
			t.Errorf("%+v %v", rotated, err)
		}
		if k, err := r.RevokeKey(t.Context(), admin, rotated.Key.ID); err != nil || k.Owner != "finance" {
			t.Errorf("%+v %v", k, err)
		}
		if _, err := r.Authenticate(t.Context(), rotated.Secret); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("a revoked key: %v", err)
		}
		keys, err := r.Keys(t.Context(), "default", "", "", 100)
		if err != nil || len(keys) != 3 || keys[0].Owner != "finance" || keys[0].Kind != roster.OwnerKey {
			t.Errorf("%+v %v", keys, err)
		}
	})
}

func TestEverythingButPresenceFollowsFromTheLedger(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		o, _ := options(t, address)
		r, admin := begin(t, o)
		for name := range everyChange(admin, "") {
			if _, _, err := r.AddUser(t.Context(), admin, roster.NewUser{Name: "finance"}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.AddOperator(t.Context(), admin, "ines", "", "default"); err != nil {
				t.Fatal(err)
			}
			_, keys, err := r.AddAgent(t.Context(), admin,
				roster.NewAgent{Name: "subject", Owner: "finance", PublicKey: newKey(t)})
			if err != nil {
				t.Fatal(err)
			}
			_ = identify(t, r, keys[0].Secret)
			another := newKey(t)
			if _, err := r.ChangeAgent(t.Context(), admin, "default", "subject",
				roster.AgentChange{PublicKey: &another}); err != nil {
				t.Fatal(err)
			}
			if err := everyChange(admin, keys[0].Key.ID)[name](t, r); err != nil {
				t.Fatal(err)
			}
			check, err := ledger.CheckRebuild(t.Context(), o.DB, []store.Migrations{ledger.Migrations, roster.Migrations},
				[]ledger.Projection{roster.Projection()}, nil)
			if err != nil || len(check.Differences) > 0 {
				t.Errorf("%s: %+v %v", name, check, err)
			}
			_ = r.RemoveAgent(t.Context(), admin, "default", "subject")
			_ = r.RemoveUser(t.Context(), admin, "default", "finance")
			_ = r.RemoveOperator(t.Context(), admin, "ines")
		}
	})
}

func TestAContactIsOnePersons(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r, admin, _ := start(t, address)
		ctx := t.Context()
		set := func(name string, contacts map[string]string) (roster.Person, error) {
			return r.ChangeOperator(ctx, admin, name, roster.OperatorChange{Contacts: contacts})
		}
		for _, name := range []string{"ann", "bob"} {
			if _, _, err := r.AddOperator(ctx, admin, name, "operator", ""); err != nil {
				t.Fatal(err)
			}
		}
		p, err := set("ann", map[string]string{"slack": "U0ANN", "telegram": "4711", "email": "Ann@Example.com"})
		if diff := cmp.Diff(map[string]string{"slack": "U0ANN", "telegram": "4711", "email": "ann@example.com"},
			p.Contacts); err != nil || diff != "" {
			t.Error(err, diff)
		}
		who, err := r.ByContact(ctx, "telegram", "4711")
		if want := (roster.Identity{Kind: roster.HolderOperator, ID: p.ID, Name: "ann", Role: roster.Operator}); err != nil ||
			cmp.Diff(want, who) != "" {
			t.Errorf("%+v %v", who, err)
		}
		if who.Actor() != "operator:ann" {
			t.Error(who.Actor())
		}
		if _, err := r.ByContact(ctx, "slack", "4711"); !fault.Is(err, fault.NotFound) {
			t.Errorf("the same contact in another channel: %v", err)
		}
		if _, err := set("bob", map[string]string{"slack": "U0ANN"}); !fault.Is(err, fault.AlreadyExists) ||
			!strings.Contains(err.Error(), "ann") {
			t.Errorf("a contact of another: %v", err)
		}
		if _, err := set("nobody", map[string]string{"slack": "U0XYZ"}); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		for channel, bad := range map[string]string{
			"slack": "ann", "telegram": "@ann", "email": "Ann <ann@example.com>",
			"pigeon": "x",
		} {
			if _, err := set("bob", map[string]string{channel: bad}); !fault.Is(err, fault.InvalidPayload) {
				t.Errorf("%s %s: %v", channel, bad, err)
			}
		}
		// What is not named stays; what is empty goes, and is free for others.
		if p, err = set("ann", map[string]string{"slack": ""}); err != nil || len(p.Contacts) != 2 {
			t.Errorf("%+v %v", p, err)
		}
		if _, err := set("bob", map[string]string{"slack": "U0ANN"}); err != nil {
			t.Error(err)
		}
		if err := r.RemoveOperator(ctx, admin, "bob"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ByContact(ctx, "slack", "U0ANN"); !fault.Is(err, fault.NotFound) {
			t.Errorf("somebody who is gone: %v", err)
		}
	})
}
