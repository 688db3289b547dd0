package gate

import (
	"context"
	"strconv"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Passkey is the presence that a gate can ask for: each vote is signed by a passkey of who casts it.
const Passkey = policy.PresencePasskey

// needsSignature reports whether a vote has to be signed: if the rule says so, or if the risk is high
// and whose vote it is, or who casts it, has a passkey. So nobody who has one can be outvoted at a gate of
// high risk by a program that has their token.
func (o *Opening) needsSignature(enrolled bool) bool {
	return o.Rules.Presence != "" || o.mayNeedSignature() && enrolled
}

// mayNeedSignature is whether it matters who has passkeys.
func (o *Opening) mayNeedSignature() bool {
	return o.Rules.Presence != "" || o.Risk == Risks[len(Risks)-1]
}

// challenge is what a vote signs: this gate, exactly as it was seen, and all of what is said about it.
func (b *voted) challenge(gateID string) passkey.Challenge {
	decision := "reject"
	if b.Approve {
		decision = "approve"
	}
	return passkey.NewChallenge("vote",
		passkey.Part{Name: "gate", Value: gateID}, passkey.Part{Name: "digest", Value: b.Digest},
		passkey.Part{Name: "decision", Value: decision}, passkey.Part{Name: "operator", Value: b.Operator},
		passkey.Part{Name: "unseen", Value: strconv.FormatInt(b.Unseen, 10)}, passkey.Part{Name: "note", Value: b.Note},
		passkey.Part{Name: "modified", Value: string(wire.Canonical(b.Modified))})
}

// signers are the keys of who casts a vote, and whether a vote at the gate has to be signed.
func signers(p ledger.Prover, o *Opening, caster, operator string) (keys []passkey.Key, needed bool, err error) {
	if keys, err = passkey.Of(p, caster); err != nil {
		return nil, false, err
	}
	enrolled := len(keys) > 0
	if operator != caster && !enrolled {
		others, err := passkey.Of(p, operator)
		if err != nil {
			return nil, false, err
		}
		enrolled = len(others) > 0
	}
	return keys, o.needsSignature(enrolled), nil
}

// checkPresence refuses a vote without the signature that the gate asks for. A signature that nobody
// asked for is checked all the same. A signed vote names the whole digest, so that what was signed can be
// computed from its entry.
func (g *Gates) checkPresence(tx *ledger.Tx, found *Gate, by roster.Identity, operator roster.Person, v *voted) error {
	if v.Assertion == nil && !found.opening.mayNeedSignature() {
		return nil
	}
	keys, needed, err := signers(tx.Prover(), &found.opening, by.ID, operator.ID)
	switch {
	case err != nil:
		return err
	case v.Assertion == nil && needed:
		return g.presenceRequired(found, by, len(keys) > 0)
	case v.Assertion == nil:
		return nil
	}
	v.Digest = found.ShownDigest()
	_, err = passkey.Verify(keys, v.challenge(found.ID), v.Assertion)
	return err
}

// presenceRequired sends somebody to the page where they can sign, or first to the one where they enrol.
func (g *Gates) presenceRequired(found *Gate, by roster.Identity, enrolled bool) error {
	if !enrolled {
		return fault.New(fault.PresenceRequired, "This gate takes votes that are signed with a passkey, and %s has none. "+
			"Enrol one in a browser, at %s, and vote there. Nothing was changed.", by.Name, g.base+address.Account.At())
	}
	return fault.New(fault.PresenceRequired, "This gate takes votes that are signed with a passkey. Decide it in a "+
		"browser, at %s. Nothing was changed.", g.base+address.Gate.At(found.ID)).
		With("url", g.base+address.Gate.At(found.ID))
}

// addPresence says whether a vote by who looks would have to be signed.
func (g *Gates) addPresence(ctx context.Context, found *Gate) error {
	who := roster.From(ctx)
	if found.Presence != "" || !found.opening.mayNeedSignature() {
		return nil
	}
	_, needed, err := signers(g.ledger.Prover(ctx), &found.opening, who.ID, who.ID)
	if needed {
		found.Presence = Passkey
	}
	return err
}

// CheckPresence says why a vote without a signature would be refused, nil if it would be accepted. It is
// for who has another way to vote than a browser; Vote checks again.
func (g *Gates) CheckPresence(ctx context.Context, by roster.Identity, found *Gate) error {
	if !found.opening.mayNeedSignature() {
		return nil
	}
	keys, needed, err := signers(g.ledger.Prover(ctx), &found.opening, by.ID, by.ID)
	if err == nil && needed {
		err = g.presenceRequired(found, by, len(keys) > 0)
	}
	return err
}

// Ask is what a browser needs to sign a vote that it is about to send, nil if it need not be signed. It
// refuses what Vote would refuse, so that nobody signs in vain.
func (g *Gates) Ask(ctx context.Context, by roster.Identity, gateID string, b Ballot,
) (ask *passkey.Request, err error) {
	err = g.ledger.Write(ctx, func(tx *ledger.Tx) error {
		ask = nil
		found, operator, v, err := g.read(tx, by, gateID, b)
		if err != nil || !found.opening.mayNeedSignature() {
			return err
		}
		keys, needed, err := signers(tx.Prover(), &found.opening, by.ID, operator.ID)
		if err != nil || !needed {
			return err
		}
		if len(keys) == 0 {
			return g.presenceRequired(&found, by, false)
		}
		v.Digest = found.ShownDigest()
		ask = passkey.Ask(keys, v.challenge(found.ID))
		return nil
	})
	return ask, err
}
