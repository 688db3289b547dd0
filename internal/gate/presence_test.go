package gate_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/passkey/passkeytest"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// enrol gives an operator a first passkey.
func (n *node) enrol(who roster.Identity) *passkeytest.Device {
	n.T.Helper()
	keys := passkey.New(n.DB, n.Ledger, "http://localhost:7446")
	c, err := keys.Create(n.T.Context(), who)
	n.Must(err)
	d := passkeytest.New(c.RPID, c.Origin)
	_, err = keys.Add(n.T.Context(), who, "laptop", d.Create(c.Challenge), nil)
	n.Must(err)
	return d
}

// signed is a vote with what the server asks for, nil if it asks for nothing.
func (n *node) signed(who roster.Identity, d *passkeytest.Device, id string, b gate.Ballot) gate.Ballot {
	n.T.Helper()
	ask, err := n.gates.Ask(n.T.Context(), who, id, b)
	n.Must(err)
	if ask != nil {
		b.Assertion = d.Sign(ask.Challenge)
	}
	return b
}

func (n *node) openRisk(risk string, rules gate.Rules) string {
	n.T.Helper()
	return n.openAs("default", gate.Opening{
		Project: "default", Agent: "agent_x", AgentName: "x", Requester: "agent:x", Risk: risk,
		Origin: gate.Origin{Protocol: "test", Reference: "run-1"},
		Shown:  gate.Shown{Title: "Send it", ProposedAction: "send"}, Rules: rules,
	})
}

// want casts a vote and wants this code of an error, "" for none.
func (n *node) want(name string, code fault.Code, who roster.Identity, id string, b gate.Ballot) {
	n.T.Helper()
	head := n.Head()
	_, err := n.gates.Vote(n.T.Context(), who, id, b)
	if code == "" && err != nil || code != "" && !fault.Is(err, code) {
		n.T.Errorf("%s: %v", name, err)
	}
	if code != "" && n.Head() != head {
		n.T.Errorf("%s wrote %d entries", name, n.Head()-head)
	}
}

func TestAVoteIsSignedWhereTheRuleOrTheRiskAsksForIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.gates.LinkTo("http://localhost:7446")
		ann, ben, zoe := n.operator("ann", "operator"), n.operator("ben", "operator"), n.operator("zoe", "operator")
		laptop, bens := n.enrol(ann), n.enrol(ben)
		asks := gate.Rules{Presence: gate.Passkey, Quorum: 2}
		first, other := n.open(asks), n.open(asks)

		n.want("a token alone", fault.PresenceRequired, ann, first, approve(""))
		n.want("a rejection, too", fault.PresenceRequired, ann, first, gate.Ballot{Note: "no"})
		n.want("no key", fault.PresenceRequired, zoe, first, approve(""))
		for who, says := range map[*roster.Identity]string{&ann: "/ui/inbox/" + first, &zoe: "/ui/account"} {
			if _, err := n.gates.Vote(t.Context(), *who, first, approve("")); !strings.Contains(fault.From(err).Message,
				"http://localhost:7446"+says) {
				t.Error(err)
			}
		}
		if _, err := n.gates.Ask(t.Context(), zoe, first, approve("")); !fault.Is(err, fault.PresenceRequired) {
			t.Error(err)
		}
		if g := n.shown(zoe, first); g.Presence != gate.Passkey {
			t.Errorf("presence %q", g.Presence)
		}

		good := n.signed(ann, laptop, first, approve("fine"))
		for name, bad := range map[string]func(b *gate.Ballot){
			"another decision": func(b *gate.Ballot) { b.Approve = false },
			"another note":     func(b *gate.Ballot) { b.Note = "fine, and delete the rest" },
			"a change":         func(b *gate.Ballot) { b.Modified = wire.Raw(`{"amount":99}`) },
			"another key":      func(b *gate.Ballot) { b.Assertion = bens.Sign(passkey.NewChallenge("vote").String()) },
			"nothing":          func(b *gate.Ballot) { b.Assertion = &passkey.Assertion{} },
		} {
			changed := good
			bad(&changed)
			n.want(name, fault.PresenceInvalid, ann, first, changed)
		}
		n.want("another gate", fault.PresenceInvalid, ann, other, good)
		n.want("somebody else", fault.PresenceInvalid, ben, first, good)
		n.want("it itself", "", ann, first, good)
		n.want("once more", fault.Conflict, ann, first, good)

		// A change that a colleague votes with changes what the next one signs.
		before := n.signed(ann, laptop, other, approve(""))
		change := approve("")
		change.Modified = wire.Raw(`{ "amount": 10 }`)
		n.want("with a change", "", ben, other, n.signed(ben, bens, other, change))
		n.want("signed before the change", fault.PresenceInvalid, ann, other, before)
		n.want("signed after it", "", ann, other, n.signed(ann, laptop, other, approve("")))
		if g := n.get(other); g.Status != gate.Approved || string(g.Modified) != `{"amount":10}` ||
			g.Votes[1].Passkey != laptop.Credential || len(g.Votes[1].Digest) != 64 {
			t.Errorf("%+v", g)
		}

		// A high risk asks those who have a key.
		high := n.openRisk("high", gate.Rules{Quorum: 3})
		if n.shown(ann, high).Presence != gate.Passkey || n.shown(zoe, high).Presence != "" ||
			n.shown(ann, n.open(gate.Rules{})).Presence != "" {
			t.Error("presence is not what holds for who looks")
		}
		n.want("high risk", fault.PresenceRequired, ann, high, approve(""))
		n.Must(n.gates.Delegate(t.Context(), ann, "zoe", time.Now().Add(time.Hour)))
		n.Must(n.gates.Delegate(t.Context(), zoe, "ben", time.Now().Add(time.Hour)))
		forAnn := gate.Ballot{Approve: true, For: "ann"}
		n.want("for who has one, by who has none", fault.PresenceRequired, zoe, high, forAnn)
		forZoe := gate.Ballot{Approve: true, For: "zoe"}
		n.want("for who has none, by who has one", fault.PresenceRequired, ben, high, forZoe)
		own := n.signed(ben, bens, high, approve(""))
		own.For = "zoe"
		n.want("one's own as that of another", fault.PresenceInvalid, ben, high, own)
		n.want("who has none", "", zoe, high, approve(""))
		n.want("who has one", "", ann, high, n.signed(ann, laptop, high, approve("")))
		n.want("and the other", "", ben, high, n.signed(ben, bens, high, approve("")))

		// A medium risk asks nobody, and takes a signature all the same.
		n.want("medium risk", "", ann, n.openRisk("medium", gate.Rules{}), approve(""))
		n.WantClean()
	})
}

func TestACopyOfAPasskeyDoesNotVote(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ann := n.operator("ann", "operator")
		laptop := n.enrol(ann)
		copied := *laptop
		asks := gate.Rules{Presence: gate.Passkey}
		first, second := n.open(asks), n.open(asks)
		n.want("the passkey", "", ann, first, n.signed(ann, laptop, first, approve("")))
		b := n.signed(ann, &copied, second, approve(""))
		if _, err := n.gates.Vote(t.Context(), ann, second, b); !fault.Is(err, fault.PresenceInvalid) ||
			!strings.Contains(err.Error(), "there is a copy") {
			t.Error(err)
		}
		if all := n.Entries("passkey.cloned"); len(all) != 1 || n.get(second).Status != gate.Pending ||
			!strings.Contains(string(all[0].Body), second) || len(n.Entries("alarm.raised")) != 2 {
			t.Error(all)
		}
		n.WantClean()
	})
}

// What whoever can write to the database could put into the table of passkeys.
func TestARowOfATableIsNoPasskey(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ann, zoe := n.operator("ann", "operator"), n.operator("zoe", "operator")
		laptop, other := n.enrol(ann), n.enrol(zoe)
		asked, high := n.open(gate.Rules{Presence: gate.Passkey}), n.openRisk("high", gate.Rules{})
		forge := func(statement string) {
			t.Helper()
			n.Must(n.DB.Bookkeep(t.Context(), "ledger_head", func(tx *store.Tx) error { tx.Exec(statement); return nil }))
		}
		row := `'` + laptop.Credential + `'`
		good := n.signed(ann, laptop, asked, approve(""))
		for name, c := range map[string]struct{ statement, back string }{
			"a key that was taken out": {
				"UPDATE passkey SET removed_at = 1 WHERE credential = " + row,
				"UPDATE passkey SET removed_at = 0 WHERE credential = " + row,
			},
			"another public key": {
				"UPDATE passkey SET rp_id = 'example.com' WHERE credential = " + row,
				"UPDATE passkey SET rp_id = 'localhost' WHERE credential = " + row,
			},
			"somebody else's key": {
				"UPDATE passkey SET operator = '" + ann.ID + "' WHERE credential = '" + other.Credential + "'",
				"UPDATE passkey SET operator = '" + zoe.ID + "' WHERE credential = '" + other.Credential + "'",
			},
		} {
			forge(c.statement)
			for _, b := range []gate.Ballot{approve(""), good} {
				for _, id := range []string{asked, high} {
					if _, err := n.gates.Vote(t.Context(), ann, id, b); !fault.Is(err, fault.StateMismatch) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			forge(c.back)
		}
		n.want("as it was", "", ann, asked, good)
		n.WantClean()
	})
}

// export is the ledger as a file, and the key that verifies it.
func (n *node) export(dir string) (file []byte, key string) {
	n.T.Helper()
	var out bytes.Buffer
	n.Must(n.Ledger.Export(n.T.Context(), &out))
	return out.Bytes(), string(testbed.Read(n.T, filepath.Join(dir, ledger.PublicKeyFile)))
}

func TestAnExportShowsWhoSignedWhat(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		n := start(t, address, dir)
		ann, ben := n.operator("ann", "operator"), n.operator("ben", "operator")
		n.want("before anybody has one", "", ann, n.openRisk("high", gate.Rules{}), approve(""))
		laptop := n.enrol(ann)
		asked := n.openRisk("low", gate.Rules{Presence: gate.Passkey})
		high := n.openRisk("high", gate.Rules{Quorum: 2})
		change := approve("x\ny")
		change.Modified = wire.Raw(`{"b":1, "a":"ü"}`)
		n.want("signed", "", ann, asked, n.signed(ann, laptop, asked, change))
		n.want("signed", "", ann, high, n.signed(ann, laptop, high, approve("")))
		n.want("not asked for", "", ben, high, approve(""))
		file, key := n.export(dir)
		s := gate.NewSignatures(high)
		if _, err := ledger.VerifyExport(bytes.NewReader(file), key, nil, ledger.Watch{Entry: s.Entry}); err != nil {
			t.Fatal(err)
		}
		if s.Verified != 2 || s.Unsigned != 2 || s.Erased != 0 || len(s.Votes) != 2 || s.Votes[0].Result != "verified" ||
			s.Votes[1].Result != "unsigned" || s.Votes[1].Operator != "ben" {
			t.Errorf("%+v", s)
		}
		// With another byte somewhere in a signed vote, the ledger does not hold; that is TestVerify of the
		// ledger. Here whoever changes it can sign the ledger, too.
		forged := func(name, kind string, change func(body string) string, says string) {
			t.Helper()
			s, found := gate.NewSignatures(""), false
			var err error
			for _, e := range n.Entries() {
				if e.Kind == kind && !found {
					if body := change(string(e.Body)); body != string(e.Body) {
						e, found = ledger.Entry{
							Seq: e.Seq, At: e.At, Kind: e.Kind, Workspace: e.Workspace, Subject: e.Subject,
							Actor: e.Actor, Trace: e.Trace, Body: []byte(body),
						}, true
						if body == "" {
							e.Body = nil
						}
					}
				}
				if err = s.Entry(&e); err != nil {
					break
				}
			}
			if !found || says == "" && err != nil || says != "" && (err == nil || !strings.Contains(fmt.Sprint(err), says)) {
				t.Errorf("%s: %v", name, err)
			}
			if says == "" && s.Erased == 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		replace := func(was, is string) func(string) string {
			return func(body string) string { return strings.Replace(body, was, is, 1) }
		}
		unsigned := func(body string) string {
			if before, _, ok := strings.Cut(body, `,"assertion"`); ok {
				return before + "}"
			}
			return body
		}
		forged("another decision", "gate.voted", replace(`"approve":true,"note":"x`, `"approve":false,"note":"x`),
			"does not hold")
		forged("another note", "gate.voted", replace(`"note":"x`, `"note":"z`), "does not hold")
		forged("another change", "gate.voted", replace(`"b":1`, `"b":2`), "does not hold")
		forged("no signature", "gate.voted", unsigned, "had to be signed")
		forged("another caster", "gate.voted", replace(`"cast_by":"ann","approve":true,"note":"x`,
			`"cast_by":"ben","approve":true,"note":"x`), "not enrolled")
		forged("another gate under the same vote", "gate.opened", func(body string) string {
			if !strings.Contains(body, `"presence":"passkey"`) {
				return body
			}
			return strings.Replace(body, `"title":"Send it"`, `"title":"Send ten"`, 1)
		}, "something else than the ledger shows")
		forged("another key", "passkey.added", replace(`"credential":"`, `"credential":"AA`), "not enrolled")
		forged("an erased vote", "gate.voted", func(string) string { return "" }, "")
		forged("an erased gate", "gate.opened", func(string) string { return "" }, "")
		for _, kind := range []string{"passkey.removed", "passkey.forgotten", "operator.removed"} {
			s := gate.NewSignatures("")
			for _, e := range n.Entries() {
				if e.Kind == "gate.opened" && e.Subject == asked {
					gone := ledger.Entry{Seq: e.Seq, Kind: kind, Subject: ann.ID, Body: []byte(`{"operator":"ann"}`)}
					if err := s.Entry(&gone); err != nil && kind != "passkey.removed" {
						t.Error(err)
					} else if err != nil {
						break // not signed
					}
				}
				if err := s.Entry(&e); err != nil {
					if e.Kind != "gate.voted" || !strings.Contains(err.Error(), "not enrolled") {
						t.Errorf("%s: %v", kind, err)
					}
					break
				}
			}
			if s.Verified > 0 {
				t.Errorf("%s: a key that is gone has signed %d votes", kind, s.Verified)
			}
		}
	})
}
