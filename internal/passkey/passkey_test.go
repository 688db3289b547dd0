package passkey_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"signalbox/internal/alarm"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/passkey"
	"signalbox/internal/passkey/passkeytest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

const origin = "http://localhost:7446"

// node is a process with operators who have passkeys.
type node struct {
	*ledgertest.Node
	roster *roster.Roster
	keys   *passkey.Keys
}

func start(t *testing.T, address string) *node {
	t.Helper()
	n := &node{Node: ledgertest.Open(t, address, nil, []ledgertest.Part{
		{Migrations: clock.Migrations, Projection: clock.Projection()},
		{Migrations: roster.Migrations, Projection: roster.Projection()},
		{Migrations: alarm.Migrations, Projection: alarm.Projection()},
		{Migrations: passkey.Migrations, Projection: passkey.Projection()},
	})}
	n.roster = roster.New(roster.Options{
		DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: slog.New(slog.DiscardHandler), Provider: "signalbox.local",
	})
	n.keys = passkey.New(n.DB, n.Ledger, origin)
	n.Run()
	n.Must(n.roster.Bootstrap(t.Context()))
	return n
}

func (n *node) operator(name, role, workspace string) roster.Identity {
	n.T.Helper()
	p, _, err := n.roster.AddOperator(n.T.Context(), roster.Identity{Role: roster.Admin}, name, role, workspace)
	n.Must(err)
	return p.Identity()
}

// create makes a passkey in a browser for who is signed in.
func (n *node) create(who roster.Identity) (*passkeytest.Device, passkey.Created) {
	n.T.Helper()
	c, err := n.keys.Create(n.T.Context(), who)
	n.Must(err)
	d := passkeytest.New(c.RPID, c.Origin)
	return d, d.Create(c.Challenge)
}

// enrol enrols a first passkey.
func (n *node) enrol(who roster.Identity) *passkeytest.Device {
	n.T.Helper()
	d, made := n.create(who)
	if ask, err := n.keys.Add(n.T.Context(), who, "laptop", made, nil); err != nil || ask != nil {
		n.T.Fatal(ask, err)
	}
	return d
}

func (n *node) labels(who roster.Identity) string {
	n.T.Helper()
	all, err := n.keys.List(n.T.Context(), who)
	n.Must(err)
	var labels []string
	for _, k := range all {
		labels = append(labels, k.Operator+"/"+k.Label)
	}
	return strings.Join(labels, " ")
}

// register is what somebody finds who has nothing but the entries.
func (n *node) register() (*passkey.Register, error) {
	r := passkey.NewRegister()
	for _, e := range n.Entries() {
		if err := r.Entry(&e); err != nil {
			return r, err
		}
	}
	return r, nil
}

func TestWhoHasAPasskeySignsForTheNextOne(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		ctx, n := t.Context(), start(t, address)
		ann, ben := n.operator("ann", "operator", ""), n.operator("ben", "operator", "")
		laptop, bens := n.enrol(ann), n.enrol(ben)

		// Who has the session and no key gets no further.
		phone, made := n.create(ann)
		head := n.Head()
		ask, err := n.keys.Add(ctx, ann, "phone", made, nil)
		if err != nil || ask == nil || len(ask.Credentials) != 1 || ask.Credentials[0] != laptop.Credential {
			t.Fatal(ask, err)
		}
		other, otherMade := n.create(ann)
		for _, c := range []struct {
			name  string
			who   roster.Identity
			label string
			made  passkey.Created
			signs *passkeytest.Device
		}{
			{"its own signature", ann, "phone", made, phone},
			{"somebody else's", ann, "phone", made, bens},
			{"one for another key", ann, "phone", otherMade, laptop},
			{"one for another label", ann, "tablet", made, laptop},
			{"a key made for somebody else", ben, "phone", made, bens},
		} {
			_, err := n.keys.Add(ctx, c.who, c.label, c.made, c.signs.Sign(ask.Challenge))
			if !fault.Is(err, fault.PresenceInvalid) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		_, err = n.keys.Remove(ctx, ann, laptop.Credential, laptop.Sign(ask.Challenge))
		if !fault.Is(err, fault.PresenceInvalid) {
			t.Errorf("a signature for another key removes one: %v", err)
		}
		if n.Head() != head || n.labels(ann) != "ann/laptop" {
			t.Fatalf("%d entries more: %s", n.Head()-head, n.labels(ann))
		}
		if ask, err := n.keys.Add(ctx, ann, "phone", made, laptop.Sign(ask.Challenge)); ask != nil || err != nil {
			t.Fatal(ask, err)
		}
		if _, err := n.keys.Add(ctx, ann, "phone", made, nil); !fault.Is(err, fault.AlreadyExists) {
			t.Error(err)
		}

		// Removing takes a signature too, and a key that was removed does not come back.
		ask, err = n.keys.Remove(ctx, ann, laptop.Credential, nil)
		if err != nil || ask == nil || len(ask.Credentials) != 2 {
			t.Fatal(ask, err)
		}
		if _, err := n.keys.Remove(ctx, ben, laptop.Credential, bens.Sign(ask.Challenge)); !fault.Is(err, fault.NotFound) {
			t.Error("another operator:", err)
		}
		if _, err := n.keys.Remove(ctx, ann, laptop.Credential, phone.Sign(ask.Challenge)); err != nil {
			t.Fatal(err)
		}
		again := laptop.Create(mustCreate(ctx, t, n, ann).Challenge)
		if _, err := n.keys.Add(ctx, ann, "laptop", again, nil); !fault.Is(err, fault.AlreadyExists) {
			t.Error("it came back:", err)
		}
		ask, err = n.keys.Add(ctx, ann, "other", otherMade, nil)
		n.Must(err)
		_, err = n.keys.Add(ctx, ann, "other", otherMade, laptop.Sign(ask.Challenge))
		if !fault.Is(err, fault.PresenceInvalid) {
			t.Error("a removed key signs:", err)
		}
		if n.labels(ann) != "ann/phone" || other == nil {
			t.Error(n.labels(ann))
		}
		if _, err := n.register(); err != nil {
			t.Error(err)
		}
		n.WantClean()
	})
}

func mustCreate(ctx context.Context, t *testing.T, n *node, who roster.Identity) *passkey.Creation {
	t.Helper()
	c, err := n.keys.Create(ctx, who)
	n.Must(err)
	return c
}

func TestAnAdminRemovesTheKeysOfOthersWithTheirOwn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		ctx, n := t.Context(), start(t, address)
		ann, root := n.operator("ann", "operator", ""), n.operator("root", "admin", "")
		away := n.operator("away", "admin", "default")
		laptop := n.enrol(ann)
		if _, err := n.keys.Remove(ctx, root, laptop.Credential, nil); !fault.Is(err, fault.PresenceRequired) {
			t.Error("without a passkey:", err)
		}
		admins, aways := n.enrol(root), n.enrol(away)
		if n.labels(root) != "root/laptop ann/laptop away/laptop" || n.labels(away) != "away/laptop" {
			t.Error(n.labels(root), n.labels(away))
		}
		ask, err := n.keys.Remove(ctx, root, laptop.Credential, nil)
		n.Must(err)
		if _, err := n.keys.Remove(ctx, away, laptop.Credential, aways.Sign(ask.Challenge)); !fault.Is(err, fault.NotFound) {
			t.Error("an admin of a workspace:", err)
		}
		if _, err := n.keys.Remove(ctx, root, laptop.Credential, admins.Sign(ask.Challenge)); err != nil {
			t.Fatal(err)
		}
		// Who is removed has no keys, and neither has the next one of that name.
		n.enrol(ann)
		n.Must(n.roster.RemoveOperator(ctx, root, "ann"))
		if next := n.operator("ann", "operator", ""); n.labels(next) != "" {
			t.Error(n.labels(next))
		}
		r, err := n.register()
		if err != nil || len(r.Of("ann")) != 0 || len(r.Of("root")) != 1 {
			t.Error(r.Of("ann"), err)
		}
		n.WantClean()
	})
}

func TestLostKeysAreForgottenOffline(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		ctx, n := t.Context(), start(t, address)
		ann := n.operator("ann", "operator", "")
		n.enrol(ann)
		n.Must(n.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			count, err := passkey.Forget(tx, "ann")
			if count != 1 {
				t.Error(count)
			}
			return err
		}))
		if n.Count("SELECT count(*) FROM alarm WHERE kind IN ('passkey_forgotten', 'passkey_first')") != 2 {
			t.Error("nobody is told")
		}
		n.enrol(ann) // the first again
		if r, err := n.register(); err != nil || len(r.Of("ann")) != 1 {
			t.Error(err)
		}
		n.WantClean()
	})
}

// What an authenticator or a page that is not ours can send.
func TestASignatureIsOneOfAPersonAtOurOriginOverThisChallenge(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t))
	ann := n.operator("ann", "operator", "")
	n.enrol(ann) // a second one is signed for
	d := n.enrol(n.operator("ben", "operator", ""))
	keys, err := n.keys.List(t.Context(), n.operator("root", "admin", ""))
	n.Must(err)
	challenge := passkey.NewChallenge("vote", passkey.Part{Name: "gate", Value: "gate_1"})
	for name, change := range map[string]func(d *passkeytest.Device){
		"a page of another port":     func(d *passkeytest.Device) { d.Origin = "http://localhost:9999" },
		"a page of another scheme":   func(d *passkeytest.Device) { d.Origin = "https://localhost:7446" },
		"another relying party":      func(d *passkeytest.Device) { d.RPID = "example.com" },
		"nobody was recognised":      func(d *passkeytest.Device) { d.Flags = passkeytest.Present },
		"nobody was there":           func(d *passkeytest.Device) { d.Flags = passkeytest.Verified },
		"the making of a passkey":    func(d *passkeytest.Device) { d.Type = "webauthn.create" },
		"a copy with an old counter": func(d *passkeytest.Device) { d.Count = 0 },
		"a counter that went away":   func(d *passkeytest.Device) { d.Count = ^uint32(0) },
	} {
		bad := *d
		change(&bad)
		if _, err := passkey.Verify(keys, challenge, bad.Sign(challenge.String())); !fault.Is(err, fault.PresenceInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := d.Sign(challenge.String())
	if k, err := passkey.Verify(keys, challenge, good); err != nil || k.Operator != "ben" || k.Count != 2 {
		t.Error(k, err)
	}
	for _, other := range []passkey.Challenge{
		passkey.NewChallenge("vote", passkey.Part{Name: "gate", Value: "gate_2"}),
		passkey.NewChallenge("passkey removal", passkey.Part{Name: "gate", Value: "gate_1"}),
		passkey.NewChallenge("vote", passkey.Part{Name: "gate", Value: "gate_1"}, passkey.Part{}),
	} {
		if _, err := passkey.Verify(keys, other, good); !fault.Is(err, fault.PresenceInvalid) {
			t.Error("it was signed for something else:", err)
		}
	}
	// No byte can be changed.
	for name, field := range map[string]*string{
		"authenticator": &good.AuthenticatorData, "client": &good.ClientData, "signature": &good.Signature,
		"credential": &good.Credential,
	} {
		was := *field
		for i := range was {
			flipped := []byte(was)
			flipped[i]++
			if bytes.ContainsAny(flipped[i:i+1], "`{[@:.") {
				flipped[i] = 'A'
			}
			*field = string(flipped)
			if _, err := passkey.Verify(keys, challenge, good); *field != was && err == nil {
				t.Errorf("%s with another byte %d", name, i)
			}
		}
		*field = was
	}
}

func TestACopyIsRecorded(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t))
	ann := n.operator("ann", "operator", "")
	laptop := n.enrol(ann)
	copied := *laptop
	for i, d := range []*passkeytest.Device{laptop, &copied} {
		_, made := n.create(ann)
		ask, err := n.keys.Add(t.Context(), ann, "more", made, nil)
		n.Must(err)
		_, err = n.keys.Add(t.Context(), ann, "more", made, d.Sign(ask.Challenge))
		if (i == 1) != fault.Is(err, fault.PresenceInvalid) || i == 1 && !strings.Contains(err.Error(), "there is a copy") {
			t.Error(i, err)
		}
	}
	if n.Count("SELECT count(*) FROM alarm WHERE kind = 'passkey_cloned' AND closed_at = 0") != 1 {
		t.Error("nobody is told of the copy")
	}
	if all := n.Entries("passkey.cloned"); len(all) != 1 || !strings.Contains(string(all[0].Body), laptop.Credential) {
		t.Error(all)
	}
}

// A ledger in which somebody changed keys without a signature does not verify.
func TestTheRegisterWantsTheSignatureOfEveryChange(t *testing.T) {
	t.Parallel()
	n := start(t, storetest.SQLite(t))
	ann := n.operator("ann", "operator", "")
	laptop := n.enrol(ann)
	added := n.Entries("passkey.added")[0]
	forged := func(kind, body string) error {
		r, err := n.register()
		n.Must(err)
		return r.Entry(&ledger.Entry{Seq: 99, Kind: kind, Subject: ann.ID, Body: []byte(body)})
	}
	second := strings.Replace(string(added.Body), laptop.Credential, "AAAA", 1)
	for name, err := range map[string]error{
		"a second key":          forged("passkey.added", second),
		"the same key":          forged("passkey.added", string(added.Body)),
		"a removal":             forged("passkey.removed", `{"operator":"ann","credential":"`+laptop.Credential+`"}`),
		"a removal of nothing":  forged("passkey.removed", `{"operator":"ann","credential":"AAAA"}`),
		"a body that is erased": passkey.NewRegister().Entry(&ledger.Entry{Kind: "passkey.added"}),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestASiteIsANameThatBrowsersTrust(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]passkey.Site{
		"http://localhost:7446":         {RPID: "localhost", Origin: "http://localhost:7446"},
		"https://box.example.com":       {RPID: "box.example.com", Origin: "https://box.example.com"},
		"https://box.example.com:8443/": {RPID: "box.example.com", Origin: "https://box.example.com:8443"},
		"http://box.example.com":        {},
		"http://127.0.0.1:7446":         {},
		"https://[::1]:7446":            {},
		"https://192.0.2.1":             {},
		"":                              {},
	} {
		if got := passkey.SiteOf(base); got != want {
			t.Errorf("%s: %+v", base, got)
		}
	}
}
