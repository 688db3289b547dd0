package amp

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vectorKey is the key of the published vectors: the seed is 00 … 1f.
func vectorKey() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	return ed25519.NewKeyFromSeed(seed)
}

const vectorPayload = `{"type":"request","message":"héllo ☕ 😀","context":{"z":1,"a":{"y":2.5,"b":[1,"é"]}}}`

// vectors are signatures over vectorPayload in each of its forms.
var vectors = []struct{ form, hash, signature string }{
	{
		"sorted raw UTF-8", "RM3y4/+rWItY5nw3O5WfCBuiw4RZyDaQl5FiWsC/YH4=",
		"1yUYPUpFNhcvTAc8EiACxjLDt/OqPCHxaAnTJRy/RhzWaoCmVh+Juo4dvpdeR8uGoHirp3NL7rgjuqIAgce4DA==",
	},
	{
		"sorted ASCII", "D25t1yXbeR5gR196o8vBoMrnsB8GNzbZRjNGSMjPfUQ=",
		"/2Xns5Qs9NNEQN/n52UlwGxYjUWsT26WgcQoq18cKB/tlNFi635kqwh8XXL2nrr35jvkwvF305vJekgiddjPAQ==",
	},
	{
		"as it is, raw UTF-8", "xlbjV3oglUCxdFm7Gu0FvgZR16ptSTVYHIRSmM2rNqE=",
		"EnUQfQlfW4+NmD1Kha0/HUo2DoyAypt6Eg/w4Ef168EOZYdiCLyY8G3AD/dO99BxlrFKMZM9LLrs/7bvhmCcCQ==",
	},
	{
		"as it is, ASCII", "PFs707nyCxmGq4pS/fvO95xgKvpMiIBEWUqfbS1yNyM=",
		"zSDYrgk1TpsS6tXqjzPMFn/oS3Dzhtre81CZdyPyVOUsrfqn79ty5oXAPgB6t6BzhCbOHVBMjMXPWls0CV9+BQ==",
	},
}

func vectorClaim(signature string) Signed {
	return Signed{
		From: []string{"alice@acme.aimaestro.local"}, To: []string{"bob@acme.aimaestro.local"}, Subject: "Hello",
		Priority: "normal",
		Payload:  []byte(vectorPayload), Signature: signature,
	}
}

func TestEveryVectorVerifiesAndNoneWithAnyBitFlipped(t *testing.T) {
	t.Parallel()
	key := vectorKey().Public().(ed25519.PublicKey)
	if got := hex.EncodeToString(key); got != "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8" {
		t.Fatal(got)
	}
	tokens, err := parseTokens([]byte(vectorPayload))
	if err != nil {
		t.Fatal(err)
	}
	forms := tokens.forms()
	for _, v := range vectors {
		var hashes []string
		for _, form := range forms {
			hashes = append(hashes, payloadHash(form))
		}
		if !strings.Contains(strings.Join(hashes, " "), v.hash) {
			t.Errorf("%s: no form has the hash %s", v.form, v.hash)
		}
		if _, _, ok := vectorClaim(v.signature).Verify(key); !ok {
			t.Errorf("%s does not verify", v.form)
		}
		raw, _ := base64.StdEncoding.DecodeString(v.signature)
		for i := range raw {
			raw[i] ^= 1
			if _, _, ok := vectorClaim(base64.StdEncoding.EncodeToString(raw)).Verify(key); ok {
				t.Errorf("%s verifies with byte %d flipped", v.form, i)
			}
			raw[i] ^= 1
		}
	}
	for _, change := range []func(*Signed){
		func(s *Signed) { s.From = []string{"alicf@acme.aimaestro.local"} },
		func(s *Signed) { s.To = []string{"bob@acme.aimaestro.locak"} },
		func(s *Signed) { s.Subject = "hello" },
		func(s *Signed) { s.Priority = "high" },
		func(s *Signed) { s.InReplyTo = "msg_1_a" },
		func(s *Signed) { s.Payload = []byte(strings.Replace(vectorPayload, "2.5", "2.6", 1)) },
		func(s *Signed) { s.Payload = []byte(strings.Replace(vectorPayload, "é", "e", 1)) },
		func(s *Signed) { s.Signature = "" },
		func(s *Signed) { s.Signature = "AAAA" },
		func(s *Signed) { s.Payload = []byte("{") },
	} {
		s := vectorClaim(vectors[0].signature)
		change(&s)
		if _, _, ok := s.Verify(key); ok {
			t.Errorf("%+v verifies", s)
		}
	}
}

func TestPublishedHashesAndFingerprints(t *testing.T) {
	t.Parallel()
	form, err := Canonical([]byte(`{"type":"notification","message":"Hello"}`))
	if err != nil || payloadHash(form) != "4Z/XSV1AZKYKorrN9OyxY5kTmYXHIZY37sGUfOrHkdg=" {
		t.Errorf("%s %v", form, err)
	}
	want := []string{
		"SHA256:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw=",
		"SHA256:oFCDfYUHBYLM9zlLCYiEfMMSy4glm4lImfbyOc8XkaU=",
	}
	if d := cmp.Diff(want, Fingerprints(vectorKey().Public().(ed25519.PublicKey))); d != "" {
		t.Error(d)
	}
}

// TestWhatShellClientsSign: they sign another spelling of the subject than they send.
func TestWhatShellClientsSign(t *testing.T) {
	t.Parallel()
	private := vectorKey()
	key := private.Public().(ed25519.PublicKey)
	payload := []byte(`{"message":"m","type":"request"}`)
	for sent, line := range map[string]string{
		`back\slash`: `back\\slash`, "  lead trail  ": "lead trail", "a\ttab": `a\ttab`, "two\nlines\r": `two\nlines\r`,
		"a | b": "a | b", "😀": "😀",
	} {
		text := signedText("a@t.p.x", "b@t.p.x", line, "normal", "", payloadHash(payload))
		s := Signed{
			From: []string{"a@t.p.x"}, To: []string{"b", "b@t.p.x"}, Subject: sent, Priority: "normal", Payload: payload,
			Signature: base64.StdEncoding.EncodeToString(ed25519.Sign(private, text)),
		}
		from, to, ok := s.Verify(key)
		if !ok || from != "a@t.p.x" || to != "b@t.p.x" {
			t.Errorf("%q: %s %s %v", sent, from, to, ok)
		}
	}
}

func TestRotationProofsInEveryForm(t *testing.T) {
	t.Parallel()
	old := vectorKey()
	_, stranger, _ := ed25519.GenerateKey(nil)
	fresh, _, _ := ed25519.GenerateKey(nil)
	der, _ := x509.MarshalPKIXPublicKey(fresh)
	pem := fmt.Sprintf("-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----", base64.StdEncoding.EncodeToString(der))
	for name, text := range map[string]string{
		"as sent": pem + "\n\n", "trimmed": pem, "with one line end": pem + "\n", "hex": hex.EncodeToString(fresh),
		"raw": string(fresh), "DER": string(der),
	} {
		sign := func(k ed25519.PrivateKey) string {
			return base64.StdEncoding.EncodeToString(ed25519.Sign(k, []byte(text)))
		}
		if !Proves(old.Public().(ed25519.PublicKey), fresh, pem+"\n\n", sign(old)) {
			t.Errorf("%s is not taken", name)
		}
		if Proves(old.Public().(ed25519.PublicKey), fresh, pem+"\n\n", sign(stranger)) {
			t.Errorf("%s is taken from a stranger", name)
		}
	}
}
