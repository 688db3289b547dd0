package passkey

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/go-webauthn/webauthn/protocol"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Key is a passkey of an operator, as it was enrolled. The private half never leaves the
// authenticator.
type Key struct {
	Credential string    `json:"credential"` // its id, in base64url
	OperatorID string    `json:"-"`
	Operator   string    `json:"operator"` // the name
	Label      string    `json:"label"`    // what its owner calls it
	PublicKey  []byte    `json:"public_key"`
	RPID       string    `json:"rp_id"`
	Origin     string    `json:"origin"`
	Count      int64     `json:"sign_count"` // of the last signature; 0 if the authenticator does not count
	AAGUID     string    `json:"aaguid"`     // the model of the authenticator, as it says itself
	AddedAt    time.Time `json:"added_at"`
}

// Assertion is a signature with a passkey, in base64url as browsers have it.
type Assertion struct {
	Credential        string `json:"credential"`
	AuthenticatorData string `json:"authenticator_data"`
	ClientData        string `json:"client_data"`
	Signature         string `json:"signature"`
}

// Challenge is the hash of what is signed.
type Challenge [sha256.Size]byte

// Part is a named part of what is signed.
type Part struct{ Name, Value string }

// NewChallenge is the hash of a text that says what is signed: a line of its own for the purpose and
// for each part, whose value is a JSON string. So no two lists of parts have the same text, and what is
// signed for one purpose is worth nothing for another.
func NewChallenge(purpose string, parts ...Part) Challenge {
	text := []byte("signalbox " + purpose + "\n")
	for _, p := range parts {
		text = append(wire.AppendText(append(text, p.Name+": "...), p.Value), '\n')
	}
	return sha256.Sum256(text)
}

// String is the challenge as browsers get it and sign it.
func (c Challenge) String() string { return base64.RawURLEncoding.EncodeToString(c[:]) }

// Site is where passkeys are used: browsers let a page use only those of its own site.
type Site struct{ RPID, Origin string }

// SiteOf is the site of the address at which people reach the server, without a name if browsers have
// no passkeys there: they want a name, and TLS unless it is localhost.
func SiteOf(base string) Site {
	u, err := url.Parse(base)
	if err != nil || net.ParseIP(u.Hostname()) != nil || u.Scheme != "https" && u.Hostname() != "localhost" {
		return Site{}
	}
	return Site{u.Hostname(), u.Scheme + "://" + u.Host}
}

// Request is what a browser needs to have a challenge signed.
type Request struct {
	Challenge   string   `json:"challenge"`
	RPID        string   `json:"rp_id"`
	Origin      string   `json:"origin"`
	Credentials []string `json:"credentials"`
}

// Ask asks for a signature by one of the keys, of which there is at least one.
func Ask(keys []Key, c Challenge) *Request {
	r := &Request{Challenge: c.String(), RPID: keys[0].RPID, Origin: keys[0].Origin}
	for _, k := range keys {
		r.Credentials = append(r.Credentials, k.Credential)
	}
	return r
}

// Verify checks that one of the keys has signed the challenge, and returns that key with the counter
// that the signature has. It depends on nothing but its arguments.
func Verify(keys []Key, c Challenge, a *Assertion) (Key, error) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Credential == a.Credential })
	if i < 0 {
		return Key{}, fault.New(fault.PresenceInvalid,
			"This was signed with a passkey that is not enrolled, was removed, or belongs to somebody else. "+
				"Nothing was changed.")
	}
	k := keys[i]
	count, err := k.check(c, a)
	if err != nil {
		return k, fault.Wrap(err, fault.PresenceInvalid,
			"The signature is not one of this passkey over exactly this, made at %s by somebody whom it recognised. "+
				"Nothing was changed; try again.", k.Origin)
	}
	if (k.Count != 0 || count != 0) && count <= k.Count {
		return k, fault.New(fault.PresenceInvalid,
			"The passkey %q counts its signatures, and counted %d before this one, which is number %d: there is a copy of "+
				"it. Nothing was changed. Remove it on your page, and enrol another.", k.Label, k.Count, count).
			With(clonedDetail, k.Credential)
	}
	k.Count = count
	return k, nil
}

// clonedDetail is the detail of an error that names the credential of which there is a copy.
const clonedDetail = "cloned"

// check verifies a signature as WebAuthn says (Level 3, 7.2), with what was stored at enrolment.
func (k *Key) check(c Challenge, a *Assertion) (count int64, err error) {
	var raw [4][]byte
	for i, text := range []string{a.Credential, a.AuthenticatorData, a.ClientData, a.Signature} {
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(text); err != nil {
			return 0, err
		}
	}
	var response protocol.CredentialAssertionResponse
	response.ID, response.Type, response.RawID = a.Credential, string(protocol.PublicKeyCredentialType), raw[0]
	response.AssertionResponse.AuthenticatorData, response.AssertionResponse.ClientDataJSON = raw[1], raw[2]
	response.AssertionResponse.Signature = raw[3]
	parsed, err := response.Parse()
	if err != nil {
		return 0, err
	}
	err = parsed.Verify(c.String(), k.RPID, "", []string{k.Origin}, nil, nil, protocol.TopOriginExplicitVerificationMode,
		false, true, true, k.PublicKey, protocol.SignaturePolicy{})
	return a.count(), err
}

// count is the counter in the authenticator's data (WebAuthn Level 3, 6.1), 0 if that is too short for
// one.
func (a *Assertion) count() int64 {
	const at = 33 // after the hash of the relying party's id, and the flags
	raw, err := base64.RawURLEncoding.DecodeString(a.AuthenticatorData)
	if err != nil || len(raw) < at+4 {
		return 0
	}
	return int64(binary.BigEndian.Uint32(raw[at:]))
}
