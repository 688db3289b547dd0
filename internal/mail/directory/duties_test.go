package directory_test

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"signalbox/internal/mail/mailtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// plain is a message without a signature.
func plain(to, message string) string {
	return fmt.Sprintf(`{"to":%q,"subject":"s","payload":{"type":"request","message":%q}}`, to, message)
}

func TestAStolenKeyAloneCannotSendAsAnAgentThatDemandsSignatures(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address)
		alice, bob := n.Register("alice", "acme"), n.Register("bob", "acme")
		operator, _ := n.Operator("op")
		_, stranger, _ := ed25519.GenerateKey(nil)
		send := func(want int, body string) string {
			t.Helper()
			status, answer := n.Call(alice.APIKey, "POST /v1/route", body, nil)
			if status != want {
				t.Errorf("%d, want %d: %s", status, want, answer)
			}
			return answer
		}
		change := func(want int, key, line, body string) {
			t.Helper()
			if status, answer := n.Call(key, line, body, nil); status != want {
				t.Errorf("%s: %d, want %d: %s", body, status, want, answer)
			}
		}
		// Agents of other clients need not sign, and may send the same signature again.
		send(200, plain("bob", "unsigned"))
		send(200, string(alice.Letter(bob.Address, "s", "twice", "")))
		send(200, string(alice.Letter(bob.Address, "s", "twice", "")))

		// The demand takes the key of the agent, and nothing that an agent has lifts it.
		const me = "PATCH /v1/agents/me"
		before := head(n)
		change(403, alice.APIKey, me, `{"require_signature":true}`)
		change(403, alice.APIKey, me, alice.Demand(stranger))
		change(400, alice.APIKey, me, `{"require_signature":"yes"}`)
		if head(n) != before {
			t.Error("a refused demand has changed something")
		}
		change(200, alice.APIKey, me, alice.Demand(alice.Private))
		change(403, alice.APIKey, me, `{"require_signature":false}`)
		change(403, alice.APIKey, me, `{"require_signature":null}`)
		change(200, alice.APIKey, me, `{"alias":"Alice","metadata":null,"capabilities":null,"communication_policy":null}`)
		again := mailtest.Registration("alice", "acme", alice.Private, `,"require_signature":false`)
		n.Want(200, alice.APIKey, "POST /v1/register", again, nil)
		var shown struct {
			RequireSignature bool `json:"require_signature"`
		}
		n.Want(200, alice.APIKey, "GET /v1/agents/me", "", &shown)
		if answer := send(422, plain("bob", "stolen")); !shown.RequireSignature || !strings.Contains(answer, "signature_missing") {
			t.Errorf("%+v %s", shown, answer)
		}
		send(403, strings.Replace(string(alice.Letter(bob.Address, "s", "changed", "")), "changed", "stolen", 1))

		// What its recipients have is no use to a thief: a signature is good once, in every spelling of it.
		letter := string(alice.Letter(bob.Address, "s", "once", ""))
		send(200, letter)
		send(409, letter)
		send(409, strings.Replace(letter, `"signature":"`, `"idempotency_key":"other","signature":"`, 1))
		spelt := strings.LastIndex(letter, `=="`)
		send(409, letter[:spelt]+`\n`+letter[spelt:])
		n.WantClean()

		// Another process of the same server knows it from the database.
		change(200, operator, "PATCH /v1/agents/"+alice.AgentID, `{"require_signature":false}`)
		send(200, plain("bob", "unsigned again"))
		change(200, operator, "PATCH /v1/agents/"+alice.AgentID, `{"require_signature":true}`)
		send(422, plain("bob", "unsigned"))
	})
}

// Of many copies at once one is delivered, and each other sender is told why not. What others send meanwhile, in the same
// transactions, is not held back.
func TestCopiesOfASignedMessageThatComeAtOnceAreDeliveredOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address)
		bob := n.Register("bob", "acme")
		alice := &mailtest.Agent{Node: n}
		_, alice.Private, _ = ed25519.GenerateKey(nil)
		n.Want(201, "", "POST /v1/register", mailtest.Registration("alice", "acme", alice.Private, `,"require_signature":true`),
			&alice.Registered)
		if !alice.RequireSignature {
			t.Error("the registration does not say that signatures are demanded")
		}
		letter := string(alice.Letter(bob.Address, "s", "once", ""))
		var taken, refused, others atomic.Int64
		testbed.AtOnce(40, func(i int) {
			if i%2 == 1 {
				n.Want(200, alice.APIKey, "POST /v1/route", string(alice.Letter(bob.Address, "s", fmt.Sprint("other ", i), "")), nil)
				others.Add(1)
				return
			}
			switch status, answer := n.Call(alice.APIKey, "POST /v1/route", letter, nil); {
			case status == 200:
				taken.Add(1)
			case status == 409 && strings.Contains(answer, "duplicate_message"):
				refused.Add(1)
			default:
				t.Errorf("a copy: %d %s", status, answer)
			}
		})
		if taken.Load() != 1 || refused.Load() != 19 || others.Load() != 20 {
			t.Errorf("%d copies were taken, %d refused; %d others were taken", taken.Load(), refused.Load(), others.Load())
		}
		if waiting := bob.Inbox(); len(waiting) != 21 {
			t.Errorf("%d were delivered", len(waiting))
		}
		n.WantClean()
	})
}

func TestAnAgentCannotLiftWhatAnOperatorRestricts(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address)
		alice, bob := n.Register("alice", "acme"), n.Register("bob", "acme")
		n.Register("carol", "acme")
		operator, _ := n.Operator("op")
		to := func(want int, name string) {
			t.Helper()
			if status, answer := n.Call(alice.APIKey, "POST /v1/route", plain(name, "m"), nil); status != want {
				t.Errorf("to %s: %d, want %d: %s", name, status, want, answer)
			}
		}
		line := "PATCH /v1/agents/" + alice.Address
		policy := fmt.Sprintf(`{"communication_policy":{"mode":"restricted","allowed_recipients":[%q]}}`, bob.Address)
		n.Want(400, operator, line, `{"communication_policy":{"mode":"shut"}}`, nil)
		n.Want(400, operator, line, `{}`, nil)
		n.Want(200, operator, line, policy, nil)
		for _, lift := range []string{`{"communication_policy":null}`, `{"communication_policy":{"mode":"open"}}`} {
			n.Want(200, alice.APIKey, "PATCH /v1/agents/me", lift, nil)
			to(403, "carol")
			to(200, "bob")
		}
		// Both count: the agent may restrict itself further.
		n.Want(200, alice.APIKey, "PATCH /v1/agents/me", `{"communication_policy":{"mode":"restricted","allowed_recipients":[]}}`, nil)
		to(403, "bob")
		n.Want(200, alice.APIKey, "PATCH /v1/agents/me", `{"communication_policy":null}`, nil)
		n.Want(200, operator, line, `{"communication_policy":null}`, nil)
		to(200, "carol")
		n.WantClean()
	})
}
