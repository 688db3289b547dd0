package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/roster"
)

// code is a login code that was read. It carries its own proof: until when it is good, and that
// this server made it for one operator. So nothing is stored until it is used, and a start can
// print one without writing.
type code struct {
	text    string
	expires time.Time
}

// The parts of a code, in bytes: a random number, the expiry, and the proof. Together they are 32
// characters of base32.
const (
	drawnBytes = 3
	timeBytes  = 1
	proofBytes = 16
)

// codeStep is the resolution of a code's expiry. The code holds the last byte of the count of
// steps; the proof covers all of it.
const codeStep = 10 * time.Second

// newLogin makes a code for the operator.
func (w *Web) newLogin(operator roster.Identity) Login {
	// Truncating loses up to ten seconds of the five minutes, and makes the expiry fit one byte.
	expires := w.Now().Add(codeLife).UTC().Truncate(codeStep)
	raw := make([]byte, drawnBytes, drawnBytes+timeBytes+proofBytes)
	_, _ = rand.Read(raw) // never fails
	proof := w.prove(raw, expires, operator.ID)
	raw = append(raw, byte(stepOf(expires))) //nolint:gosec // the last byte is meant
	text := base32.StdEncoding.EncodeToString(append(raw, proof...))
	return Login{w.BaseURL + address.Login.At() + "?code=" + text, expires}
}

// stepOf is a moment in steps.
func stepOf(t time.Time) int64 { return t.Unix() / int64(codeStep.Seconds()) }

// prove is the proof that a code with this number and this expiry was made here for an operator.
func (w *Web) prove(drawn []byte, expires time.Time, operator string) []byte {
	mac := hmac.New(sha256.New, append([]byte("signalbox login\x00"), w.Key...))
	mac.Write(drawn)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(stepOf(expires)))) //nolint:gosec // years after 1970
	mac.Write([]byte(operator))
	return mac.Sum(nil)[:proofBytes]
}

// readCode finds the operator for whom a code was made; the identity is empty if it was made up or
// is too old. The code does not name the operator, so the proof is tried for each of them.
func (w *Web) readCode(ctx context.Context, text string) (code, roster.Identity, error) {
	text = strings.ToUpper(strings.TrimSpace(text))
	raw, err := base32.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != drawnBytes+timeBytes+proofBytes {
		return code{}, roster.Identity{}, nil //nolint:nilerr // it is no code
	}
	// Everything in a code is public but the key; only the proof says anything.
	drawn, proof := raw[:drawnBytes], raw[drawnBytes+timeBytes:]
	// The end is the next moment whose count ends in that byte. A code that is older was
	// proven for another moment.
	now := stepOf(w.Now())
	ahead := int64(raw[drawnBytes] - byte(now)) //nolint:gosec // of the last bytes
	read := code{text, time.Unix((now+ahead)*int64(codeStep.Seconds()), 0)}
	all, err := w.Roster.Operators(ctx, "")
	if err != nil {
		return read, roster.Identity{}, err
	}
	// There are few operators, and an HMAC takes a microsecond.
	for _, p := range all {
		if hmac.Equal(proof, w.prove(drawn, read.expires, p.ID)) && w.Now().Before(read.expires) {
			return read, p.Identity(), nil
		}
	}
	return read, roster.Identity{}, nil
}
