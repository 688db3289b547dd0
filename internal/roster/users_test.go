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
