package passkey

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// Keys enrols and removes passkeys. It keeps no state: challenges follow from what is signed.
type Keys struct {
	db     *store.DB
	ledger *ledger.Ledger
	base   string
	site   Site
}

// New makes the passkeys of a ledger that has Projection. base is the address at which people reach
// the server.
func New(db *store.DB, l *ledger.Ledger, base string) *Keys {
	return &Keys{db: db, ledger: l, base: base, site: SiteOf(base)}
}

// maxKeys is how many passkeys an operator has at most, maxLabel how long their names are.
const (
	maxKeys  = 20
	maxLabel = 60 // characters
)

// List are the keys of the operators whom the caller looks after: their own first, and for an admin
// those of the others whom they may see.
func (k *Keys) List(ctx context.Context, by roster.Identity) ([]Key, error) {
	if !by.Role.Allows(roster.Admin) {
		return Of(k.ledger.Prover(ctx), by.ID)
	}
	all, err := store.All(k.db.Reading(ctx), scanKey, selectKey+
		"AND operator IN (SELECT id FROM operator WHERE workspace = $1 OR $1 = '') ORDER BY name, added_at, credential",
		by.Workspace)
	slices.SortStableFunc(all, func(a, b Key) int {
		switch {
		case (a.OperatorID == by.ID) == (b.OperatorID == by.ID):
			return 0
		case a.OperatorID == by.ID:
			return -1
		}
		return 1
	})
	return all, err
}

// Problem says why browsers have no passkeys at the server's address, "" if they have.
func (k *Keys) Problem() string {
	if k.site.RPID != "" {
		return ""
	}
	return "Browsers have passkeys only at a name with TLS, or at localhost, and this server is reached at " + k.base +
		". Set public_url to an address such as https://signalbox.example.com."
}

// Creation is what a browser needs to make a passkey.
type Creation struct {
	Request           // Credentials are those that the operator has
	UserID     string `json:"user_id"`
	User       string `json:"user"`
	Algorithms []int  `json:"algorithms"`
}

// algorithms are the kinds of keys, the best first. All authenticators have one of them.
var algorithms = []protocol.CredentialParameter{
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgEdDSA},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgES256},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgRS256},
}

// creation is the challenge of making a passkey. Its answer proves nothing, since attestation is not
// asked for; what protects an operator's keys is that the next one needs a signature of those before.
func (k *Keys) creation(by roster.Identity) Challenge {
	return NewChallenge("passkey creation", Part{"operator", by.ID}, Part{"origin", k.site.Origin})
}

// Create asks the caller's browser for a new passkey.
func (k *Keys) Create(ctx context.Context, by roster.Identity) (*Creation, error) {
	if why := k.Problem(); why != "" {
		return nil, fault.New(fault.Conflict, "%s", why)
	}
	own, err := Of(k.ledger.Prover(ctx), by.ID)
	if err != nil {
		return nil, err
	}
	c := &Creation{
		Request: Request{
			Challenge: k.creation(by).String(), RPID: k.site.RPID, Origin: k.site.Origin, Credentials: []string{},
		},
		UserID: base64.RawURLEncoding.EncodeToString([]byte(by.ID)), User: by.Name,
	}
	for _, key := range own {
		c.Credentials = append(c.Credentials, key.Credential)
	}
	for _, a := range algorithms {
		c.Algorithms = append(c.Algorithms, int(a.Algorithm))
	}
	return c, nil
}

// Created is a passkey as a browser has made it, in base64url.
type Created struct {
	Credential  string `json:"credential"`
	ClientData  string `json:"client_data"`
	Attestation string `json:"attestation"`
}

// verify reads a new key, and checks that a browser made it for this operator at our origin, with an
// authenticator that has recognised its user.
func (k *Keys) verify(by roster.Identity, label string, made Created) (Key, error) {
	label = strings.TrimSpace(label)
	if n := utf8.RuneCountInString(label); n < 1 || n > maxLabel {
		return Key{}, fault.New(fault.InvalidPayload, "The passkey needs a name of 1 to %d characters, such as %q.", maxLabel,
			"laptop").About("label")
	}
	if why := k.Problem(); why != "" {
		return Key{}, fault.New(fault.Conflict, "%s", why)
	}
	parsed, err := made.parse()
	if err == nil {
		_, err = parsed.Verify(k.creation(by).String(), k.site.RPID, []string{k.site.Origin}, nil, nil,
			protocol.TopOriginExplicitVerificationMode, false, true, true, nil, algorithms, protocol.AttestationPolicy{},
			protocol.SignaturePolicy{})
	}
	if err != nil {
		return Key{}, fault.Wrap(err, fault.PresenceInvalid,
			"This is not a passkey that was made here, at %s, for %s. Nothing was changed; try again.", k.site.Origin, by.Name)
	}
	data := parsed.Response.AttestationObject.AuthData
	return Key{
		Credential: made.Credential, OperatorID: by.ID, Operator: by.Name, Label: label,
		PublicKey: data.AttData.CredentialPublicKey, RPID: k.site.RPID, Origin: k.site.Origin, Count: int64(data.Counter),
		AAGUID: base64.RawURLEncoding.EncodeToString(data.AttData.AAGUID),
	}, nil
}

// parse reads what a browser has made.
func (made Created) parse() (*protocol.ParsedCredentialCreationData, error) {
	var raw [3][]byte
	for i, text := range []string{made.Credential, made.ClientData, made.Attestation} {
		var err error
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(text); err != nil {
			return nil, err
		}
	}
	var response protocol.CredentialCreationResponse
	response.ID, response.Type, response.RawID = made.Credential, string(protocol.PublicKeyCredentialType), raw[0]
	response.AttestationResponse.ClientDataJSON, response.AttestationResponse.AttestationObject = raw[1], raw[2]
	return response.Parse()
}

// addition is the challenge by which an older key allows a new one.
func (k *Key) addition() Challenge {
	return NewChallenge("passkey addition", Part{"operator", k.OperatorID}, Part{"label", k.Label},
		Part{"credential", k.Credential}, Part{"public key", base64.RawURLEncoding.EncodeToString(k.PublicKey)},
		Part{"origin", k.Origin})
}

// removal is the challenge by which a key is removed.
func (k *Key) removal() Challenge {
	return NewChallenge("passkey removal", Part{"operator", k.OperatorID}, Part{"credential", k.Credential})
}

// Add enrols a passkey for the caller. Who has one already signs for the next: without a signature,
// Add changes nothing and returns what to sign.
func (k *Keys) Add(ctx context.Context, by roster.Identity, label string, made Created, signed *Assertion,
) (ask *Request, err error) {
	fresh, err := k.verify(by, label, made)
	if err != nil {
		return nil, err
	}
	err = k.write(ctx, by, "a new passkey", func(tx *ledger.Tx) error {
		ask = nil
		if before, err := known(tx, fresh); err != nil {
			return err
		} else if before {
			return fault.New(fault.AlreadyExists, "This passkey is enrolled, or was removed. Make a new one.")
		}
		own, err := Of(tx.Prover(), by.ID)
		switch {
		case err != nil:
			return err
		case len(own) >= maxKeys:
			return fault.New(fault.Conflict, "You have %d passkeys, which is the most. Remove one first.", len(own))
		case len(own) > 0 && signed == nil:
			ask = Ask(own, fresh.addition())
			return nil
		case len(own) > 0:
			if _, err := Verify(own, fresh.addition(), signed); err != nil {
				return err
			}
		default:
			signed = nil
		}
		if len(own) == 0 {
			err = alarm.Raise(tx, alarm.Alarm{
				Workspace: by.Workspace, Kind: "passkey_first", Title: "A first passkey was enrolled for " + by.Name,
				Detail: "It needed no signature, since there was none before. If it was not " + by.Name + " who did this, stop " +
					"the server, run `signalbox operators forget-passkeys " + by.Name + "`, and revoke the keys that " +
					"`signalbox keys ls` lists for them.",
			})
		}
		if err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: by.Workspace, Kind: kindAdded, Actor: by.Actor(), Subject: by.ID,
			Body: added{
				fresh.Operator, fresh.Label, fresh.Credential, fresh.PublicKey, fresh.RPID, fresh.Origin, fresh.Count, fresh.AAGUID,
				signed,
			},
		})
		return nil
	})
	return ask, err
}

// known reports whether a credential was ever enrolled. What its own operator signed for is looked for in the ledger
// too, where nobody can take it out.
func known(tx *ledger.Tx, fresh Key) (bool, error) {
	var rows int
	err := tx.QueryRow("SELECT count(*) FROM passkey WHERE credential = $1", []any{fresh.Credential}, &rows)
	if err != nil || rows > 0 {
		return true, err
	}
	entries, err := tx.Prover().Entries(ledger.Query{Subject: fresh.OperatorID, Kinds: []string{kindAdded}})
	for _, e := range entries {
		before, _, err := enrolled(&e)
		if err != nil || before.Credential == fresh.Credential {
			return true, err
		}
	}
	return false, err
}

// Remove removes a passkey, with a signature by one of its owner, or by one of the caller who is an
// admin. Without a signature, it changes nothing and returns what to sign.
func (k *Keys) Remove(ctx context.Context, by roster.Identity, credential string, signed *Assertion,
) (ask *Request, err error) {
	err = k.write(ctx, by, "the removal of a passkey", func(tx *ledger.Tx) error {
		ask = nil
		found, err := store.All(tx.Query, scanKey, selectKey+"AND credential = $1", credential)
		if err != nil {
			return err
		}
		if len(found) == 0 || found[0].OperatorID != by.ID && !by.Role.Allows(roster.Admin) {
			return fault.New(fault.NotFound, "There is no such passkey any more. Your page lists those there are.")
		}
		key := &found[0]
		owner, err := roster.OperatorFor(tx, by, key.Operator)
		if err != nil {
			return err
		}
		own, err := Of(tx.Prover(), by.ID)
		switch {
		case err != nil:
			return err
		case len(own) == 0:
			return fault.New(fault.PresenceRequired, "Removing a passkey takes the signature of one of yours, and you have "+
				"none. Enrol one first, at %s.", k.base)
		case signed == nil:
			ask = Ask(own, key.removal())
			return nil
		}
		if _, err := Verify(own, key.removal(), signed); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: owner.Workspace, Kind: kindRemoved, Actor: by.Actor(), Subject: key.OperatorID,
			Body: removed{key.Operator, key.Credential, signed},
		})
		return nil
	})
	return ask, err
}

// write changes keys, and records if a copy of one was used for it.
func (k *Keys) write(ctx context.Context, by roster.Identity, what string, fn func(*ledger.Tx) error) error {
	return Recorded(ctx, k.ledger, by, what, k.ledger.Write(ctx, fn))
}

// Recorded returns the error of a write in which a signature was checked. If there is a copy of the
// passkey, that is recorded first: the write itself has left nothing in the ledger.
func Recorded(ctx context.Context, l *ledger.Ledger, by roster.Identity, what string, err error) error {
	if !fault.Is(err, fault.PresenceInvalid) {
		return err
	}
	credential, copied := fault.From(err).Details[clonedDetail].(string)
	if !copied {
		return err
	}
	failed := l.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: by.Workspace, Kind: kindCloned, Actor: by.Actor(), Subject: by.ID,
			Body: cloned{by.Name, credential, what},
		})
		return alarm.Raise(tx, alarm.Alarm{
			Workspace: by.Workspace, Kind: "passkey_cloned", Title: "There is a copy of a passkey of " + by.Name,
			Detail: "It was used for " + what + ", and its counter had not grown since the last signature. That was refused. " +
				"Remove the passkey on the page of " + by.Name + ", and enrol another.",
		})
	})
	return cmp.Or(failed, err)
}

// Forget removes all passkeys of an operator who has lost them. It takes no signature, so only a
// command on the machine of a server that is stopped may call it.
func Forget(tx *ledger.Tx, name string) (count int, err error) {
	p, err := roster.FindOperator(tx, name)
	if err != nil {
		return 0, err
	}
	keys, err := Of(tx.Prover(), p.ID)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	tx.Append(ledger.Event{
		Workspace: p.Workspace, Kind: kindForgotten, Actor: "system", Subject: p.ID, Body: forgotten{p.Name},
	})
	return len(keys), alarm.Raise(tx, alarm.Alarm{
		Workspace: p.Workspace, Kind: "passkey_forgotten", Title: "The passkeys of " + p.Name + " were forgotten",
		Detail: "Somebody did this on the machine of the server, while that was stopped. " + p.Name +
			" can enrol the next one without a signature.",
	})
}
