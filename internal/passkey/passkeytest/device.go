// Package passkeytest is an authenticator in memory, and the browser in front of it, for tests: it makes
// passkeys and signs with them, also as no honest one would. It knows the bytes of WebAuthn and nothing of
// what is signed. Only tests import it.
package passkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"signalbox/internal/passkey"
)

// Device holds one passkey. Its fields are what a test may change: an honest authenticator counts up, is
// touched by somebody whom it recognised, and signs what the browser says of the page's origin.
type Device struct {
	Credential string
	Origin     string
	RPID       string
	Count      uint32
	Flags      byte   // user present and verified
	Type       string // of the ceremony; that of an assertion when empty

	key *ecdsa.PrivateKey
}

// The flags of authenticator data.
const (
	Present  = 1
	Verified = 4
	attested = 64
)

// New makes a device without a passkey, as a page at the origin sees it.
func New(rpID, origin string) *Device {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // only without random numbers
	}
	return &Device{
		Credential: encode([]byte(rand.Text())), Origin: origin, RPID: rpID, Flags: Present | Verified, key: key,
	}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// clientData is what the browser says of the page that asks.
func (d *Device) clientData(kind, challenge string) []byte {
	return fmt.Appendf(nil, `{"type":%q,"challenge":%q,"origin":%q,"crossOrigin":false}`, kind, challenge, d.Origin)
}

// data is what the authenticator says of itself, and counts.
func (d *Device) data(flags byte) []byte {
	hash := sha256.Sum256([]byte(d.RPID))
	d.Count++
	return binary.BigEndian.AppendUint32(append(hash[:], flags), d.Count)
}

// Create makes the passkey that a page asks for, without attestation.
func (d *Device) Create(challenge string) passkey.Created {
	id, err := base64.RawURLEncoding.DecodeString(d.Credential)
	point, err2 := d.key.PublicKey.Bytes() // 4, x, y
	if err != nil || err2 != nil {
		panic(fmt.Sprint(err, err2))
	}
	// A COSE key in CBOR: {1: 2, 3: -7, -1: 1, -2: x, -3: y}.
	cose := slices.Concat([]byte{0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32}, point[1:33],
		[]byte{0x22, 0x58, 32}, point[33:])
	data := slices.Concat(d.data(d.Flags|attested), make([]byte, 16), binary.BigEndian.AppendUint16(nil, uint16(len(id))),
		id, cose)
	object := slices.Concat([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59"),
		binary.BigEndian.AppendUint16(nil, uint16(len(data))), data)
	return passkey.Created{
		Credential: d.Credential, ClientData: encode(d.clientData("webauthn.create", challenge)), Attestation: encode(object),
	}
}

// Sign signs a challenge.
func (d *Device) Sign(challenge string) *passkey.Assertion {
	kind := d.Type
	if kind == "" {
		kind = "webauthn.get"
	}
	client, data := d.clientData(kind, challenge), d.data(d.Flags)
	hash := sha256.Sum256(client)
	signed := sha256.Sum256(append(slices.Clone(data), hash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, d.key, signed[:])
	if err != nil {
		panic(err)
	}
	return &passkey.Assertion{
		Credential: d.Credential, AuthenticatorData: encode(data), ClientData: encode(client), Signature: encode(signature),
	}
}
