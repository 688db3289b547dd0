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

// code is a login code that can be read. It says until when it is good, and that this
// server has made it for one operator: nothing is kept of it until it is used.
type code struct {
	text    string
	expires time.Time
}

// The parts of a code, in bytes: a number that is drawn, when it expires, and the proof.
// They are 32 letters.
const (
	drawnBytes = 3
	timeBytes  = 1
	proofBytes = 16
)

// codeStep is what a code counts its time in. It holds the last byte of that count, and
// its proof is over all of it.
const codeStep = 10 * time.Second

// newLogin makes a code for the operator.
func (w *Web) newLogin(operator roster.Identity) Login {
	expires := w.Now().Add(codeLife).UTC().Truncate(codeStep)
	raw := make([]byte, drawnBytes, drawnBytes+timeBytes+proofBytes)
	_, _ = rand.Read(raw) // never fails
	proof := w.prove(raw, expires, operator.ID)
	raw = append(raw, byte(stepOf(expires))) //nolint:gosec // the last byte is meant
	text := base32.StdEncoding.EncodeToString(append(raw, proof...))
	return Login{w.BaseURL + address.Login.At() + "?code=" + text, expires}
}

func stepOf(t time.Time) int64 { return t.Unix() / int64(codeStep.Seconds()) }

// prove is the proof that a code with that number and that end was made here for an
// operator.
func (w *Web) prove(drawn []byte, expires time.Time, operator string) []byte {
	mac := hmac.New(sha256.New, append([]byte("signalbox login\x00"), w.Key...))
	mac.Write(drawn)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(stepOf(expires)))) //nolint:gosec // years after 1970
	mac.Write([]byte(operator))
	return mac.Sum(nil)[:proofBytes]
}

// readCode finds the operator for whom a code was made; nobody when it was made up, or is
// too old.
func (w *Web) readCode(ctx context.Context, text string) (code, roster.Identity, error) {
	text = strings.ToUpper(strings.TrimSpace(text))
	raw, err := base32.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != drawnBytes+timeBytes+proofBytes {
		return code{}, roster.Identity{}, nil //nolint:nilerr // it is no code
	}
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
	for _, p := range all {
		if hmac.Equal(proof, w.prove(drawn, read.expires, p.ID)) && w.Now().Before(read.expires) {
			return read, p.Identity(), nil
		}
	}
	return read, roster.Identity{}, nil
}
