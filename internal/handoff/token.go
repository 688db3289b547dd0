package handoff

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"signalbox/internal/id"
)

// prefix is that of the ids of handoffs, and tokenPrefix that of tokens, which have the id and a code behind it. They
// differ, so that what replaces credentials in stored texts leaves ids alone.
const (
	prefix      = "handoff"
	tokenPrefix = "hof"
)

// codeLength is how many hexadecimal digits the code of a token has: 160 bits.
const codeLength = 40

// Token is the secret that shows that a handoff was given to whoever has it. Every node derives the same one.
func (h *Handoffs) Token(handoffID string) string {
	mac := hmac.New(sha256.New, h.key)
	mac.Write([]byte(handoffID))
	return tokenPrefix + strings.TrimPrefix(handoffID, prefix) + "_" + hex.EncodeToString(mac.Sum(nil))[:codeLength]
}

// idIn is the id of the handoff whose token this is, "" if it is none of this server.
func (h *Handoffs) idIn(token string) string {
	rest, _ := strings.CutPrefix(token, tokenPrefix)
	handoffID := prefix + rest[:max(0, strings.LastIndexByte(rest, '_'))]
	if !id.Is(prefix, handoffID) || !hmac.Equal([]byte(h.Token(handoffID)), []byte(token)) {
		return ""
	}
	return handoffID
}
