package roster_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

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
