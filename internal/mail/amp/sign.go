package amp

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/roster"
)

// Signed is a message as its signature covers it. Where clients differ in what they sign, it has
// several values, of which Verify finds the one that fits.
//
// From and To have at least one spelling each.
type Signed struct {
	From, To  []string // spellings, the most likely first
	Subject   string
	Priority  string
	InReplyTo string
	Payload   []byte // byte for byte as sent
	Signature string
	// All returns all spellings, From and To included. It is called only if the first ones do not
	// verify; nil if there are no others.
	All func() (from, to []string)
}

// maxChecks bounds the work for one wrong signature, after the first check (MSG-43).
const maxChecks = 32

// Verify finds the spelling of both addresses that was signed, false if there is none. The
// recipient must be given that spelling, or it could not verify (MSG-42).
func (s Signed) Verify(key ed25519.PublicKey) (from, to string, ok bool) {
	signature, err := base64.StdEncoding.DecodeString(s.Signature)
	if err != nil || len(signature) != ed25519.SignatureSize {
		return "", "", false
	}
	tokens, err := parseTokens(s.Payload)
	if err != nil {
		return "", "", false
	}
	// Nearly every client signs the first form of everything. The others cost a parse, several
	// hashes and up to maxChecks verifications, so they are tried only if it does not fit.
	hashes := []string{payloadHash(tokens.appendTo(nil, styles[0]))}
	if from, to = s.From[0], s.To[0]; ed25519.Verify(key,
		signedText(from, to, s.Subject, s.Priority, s.InReplyTo, hashes[0]), signature) {
		return from, to, true
	}
	if s.All != nil {
		s.From, s.To = s.All()
	}
	for _, form := range tokens.forms()[1:] {
		hashes = append(hashes, payloadHash(form))
	}
	checks := 0
	for _, p := range s.pairs() {
		for _, subject := range subjectForms(s.Subject) {
			for _, hash := range hashes {
				checks++
				if checks > maxChecks {
					return "", "", false
				}
				if ed25519.Verify(key, signedText(p.from, p.to, subject, s.Priority, s.InReplyTo, hash), signature) {
					return p.from, p.to, true
				}
			}
		}
	}
	return "", "", false
}

// pair is one spelling of both addresses.
type pair struct{ from, to string }

// pairs are all combinations of the spellings, those with equal domains first: a client that
// writes an alias in one address writes it in the other.
func (s Signed) pairs() []pair {
	var all []pair
	for _, to := range s.To {
		for _, from := range s.From {
			all = append(all, pair{from, to})
		}
	}
	domain := func(a string) string {
		_, after, _ := strings.Cut(a, "@")
		labels := strings.Split(after, ".")
		return strings.Join(labels[max(len(labels)-2, 0):], ".")
	}
	slices.SortStableFunc(all, func(a, b pair) int {
		same := func(p pair) int {
			if domain(p.from) == domain(p.to) {
				return 0
			}
			return 1
		}
		return same(a) - same(b)
	})
	return all
}

// signedText is the text that is signed (MSG-37). A "|" inside a part is not escaped; positions
// are never parsed, so that is no ambiguity for a verifier.
func signedText(from, to, subject, priority, inReplyTo, payloadHash string) []byte {
	return []byte(strings.Join([]string{from, to, subject, priority, inReplyTo, payloadHash}, "|"))
}

// payloadHash is the hash of a canonical payload as it stands in the signed text.
func payloadHash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// subjectForms are a subject and what the bash clients sign in its place (MSG-41): they read it
// from a line of tab-separated values that jq has escaped, and read cuts blanks off its ends.
func subjectForms(subject string) []string {
	line := strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`).Replace(subject)
	if line = strings.Trim(line, " "); line != subject {
		return []string{subject, line}
	}
	return []string{subject}
}

// Fingerprints are the two fingerprints of a public key that are in use (MSG-23): over its 32
// bytes, which we send, and over its DER form.
func Fingerprints(key ed25519.PublicKey) []string {
	der, _ := x509.MarshalPKIXPublicKey(key) // an Ed25519 key always can
	sum := sha256.Sum256(der)
	return []string{roster.Fingerprint(key), "SHA256:" + base64.StdEncoding.EncodeToString(sum[:])}
}

// Proves reports whether the proof is a signature of the old key over the new one, sent as the
// text sent. MSG-21: clients differ in which form of the new key they sign.
func Proves(old, fresh ed25519.PublicKey, sent, proof string) bool {
	signature, err := base64.StdEncoding.DecodeString(proof)
	if err != nil || len(signature) != ed25519.SignatureSize {
		return false
	}
	der, _ := x509.MarshalPKIXPublicKey(fresh) // an Ed25519 key always can
	trimmed := strings.TrimSpace(sent)
	for _, text := range [][]byte{
		[]byte(sent), []byte(trimmed), []byte(trimmed + "\n"), []byte(hex.EncodeToString(fresh)),
		fresh, der,
	} {
		if ed25519.Verify(old, text, signature) {
			return true
		}
	}
	return false
}

// RegistrationProof is the text that an agent signs to show that it holds the private key of an
// address (MSG-19). at is unix seconds; the provider keeps the proof from being used elsewhere.
func RegistrationProof(provider, address string, at int64) []byte {
	var b bytes.Buffer
	b.WriteString("amp-register\n" + provider + "\n" + address + "\n" + strconv.FormatInt(at, 10))
	return b.Bytes()
}

// SigningProof is the text that an agent signs to demand signatures from itself (MSG-110). at is unix seconds.
func SigningProof(address string, at int64) []byte {
	return []byte("amp-require-signature\n" + strings.ToLower(address) + "\n" + strconv.FormatInt(at, 10))
}

// Sign signs a message with the first spelling of each address, and with its payload as Canonical
// writes it.
func (s Signed) Sign(key ed25519.PrivateKey) (string, error) {
	canonical, err := Canonical(s.Payload)
	if err != nil {
		return "", err
	}
	text := signedText(s.From[0], s.To[0], s.Subject, s.Priority, s.InReplyTo, payloadHash(canonical))
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, text)), nil
}

// KeyText is the PEM text of a public key beside a message, "" for none.
func KeyText(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	return roster.EncodePublicKey(raw)
}
