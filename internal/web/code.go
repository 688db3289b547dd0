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

	"github.com/signalbox/signalbox/internal/roster"
)

// code is a login code that can be read. It says until when it is good, and that this
// server has made it for one operator: nothing is kept of it until it is used.
type code struct {
	text    string
	expires time.Time
}

// The parts of a code, in bytes: a number that is drawn, seconds, and the proof.
const (
	drawnBytes = 10
	timeBytes  = 8
	proofBytes = 17
)

// newLogin makes a code for the operator.
func (w *Web) newLogin(operator roster.Identity) Login {
	expires := w.Now().Add(codeLife).UTC().Truncate(time.Second)
	raw := make([]byte, drawnBytes, drawnBytes+timeBytes+proofBytes)
	_, _ = rand.Read(raw) // never fails
	raw = binary.BigEndian.AppendUint64(raw, uint64(expires.Unix()))
	text := base32.StdEncoding.EncodeToString(append(raw, w.prove(raw, operator.ID)...))
	return Login{w.BaseURL + "/ui/login?code=" + text, expires}
}

// prove is the proof that the beginning of a code was made here for an operator.
func (w *Web) prove(begin []byte, operator string) []byte {
	mac := hmac.New(sha256.New, append([]byte("signalbox login\x00"), w.Key...))
	mac.Write(begin)
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
	begin, proof := raw[:drawnBytes+timeBytes], raw[drawnBytes+timeBytes:]
	read := code{text, time.Unix(int64(binary.BigEndian.Uint64(begin[drawnBytes:])), 0)} //nolint:gosec // proven below to be ours
	all, err := w.Roster.Operators(ctx, "")
	if err != nil {
		return read, roster.Identity{}, err
	}
	for _, p := range all {
		if hmac.Equal(proof, w.prove(begin, p.ID)) && w.Now().Before(read.expires) {
			return read, p.Identity(), nil
		}
	}
	return read, roster.Identity{}, nil
}
