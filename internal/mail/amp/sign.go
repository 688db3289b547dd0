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

// Signed is what a signature may cover: for some parts clients differ in what they sign.
type Signed struct {
	From, To  []string // spellings, the most likely first
	Subject   string
	Priority  string
	InReplyTo string
	Payload   []byte // as it came
	Signature string
	// All makes the other spellings too, which are seldom needed; nil when there are none.
	All func() (from, to []string)
}

// maxChecks bounds the work that one wrong signature makes.
const maxChecks = 32

// Verify finds the spelling that was signed. What a recipient is given must have that
// spelling too, so that it can verify.
func (s Signed) Verify(key ed25519.PublicKey) (from, to string, ok bool) {
	signature, err := base64.StdEncoding.DecodeString(s.Signature)
	if err != nil || len(signature) != ed25519.SignatureSize {
		return "", "", false
	}
	tokens, err := parseTokens(s.Payload)
	if err != nil {
		return "", "", false
	}
	// Nearly all sign the first form of everything, so the others are made when needed.
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

type pair struct{ from, to string }

// pairs are the spellings of both addresses, those first that are alike: a client that
// writes one domain in one writes it in the other.
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

// signedText is the canonical string of the protocol (3.5).
func signedText(from, to, subject, priority, inReplyTo, payloadHash string) []byte {
	return []byte(strings.Join([]string{from, to, subject, priority, inReplyTo, payloadHash}, "|"))
}

// payloadHash is the hash of a payload as it stands in the canonical string.
func payloadHash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// subjectForms are a subject, and what shell clients sign in its place: they pass it
// through a line of tab-separated values, and read cuts blanks off its ends.
func subjectForms(subject string) []string {
	line := strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`).Replace(subject)
	if line = strings.Trim(line, " "); line != subject {
		return []string{subject, line}
	}
	return []string{subject}
}

// Fingerprints are the forms in which a public key's fingerprint is written: over its 32
// bytes, which we send, and over its DER form.
func Fingerprints(key ed25519.PublicKey) []string {
	der, _ := x509.MarshalPKIXPublicKey(key) // an Ed25519 key always can
	sum := sha256.Sum256(der)
	return []string{roster.Fingerprint(key), "SHA256:" + base64.StdEncoding.EncodeToString(sum[:])}
}

// Proves reports whether the proof shows that the holder of the old key wants the new
// one. What exactly is signed differs from client to client.
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

// RegistrationProof is what an agent signs to show that an address is its own.
func RegistrationProof(provider, address string, at int64) []byte {
	var b bytes.Buffer
	b.WriteString("amp-register\n" + provider + "\n" + address + "\n" + strconv.FormatInt(at, 10))
	return b.Bytes()
}

// Sign signs a message as its recipients verify it, its payload as Canonical writes it.
// Only the first spelling of each address counts.
func (s Signed) Sign(key ed25519.PrivateKey) (string, error) {
	canonical, err := Canonical(s.Payload)
	if err != nil {
		return "", err
	}
	text := signedText(s.From[0], s.To[0], s.Subject, s.Priority, s.InReplyTo, payloadHash(canonical))
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, text)), nil
}

// KeyText is a public key as it stands beside a message, "" for none.
func KeyText(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	return roster.EncodePublicKey(raw)
}
