package deliver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// secretPrefix is how Standard Webhooks marks a secret.
const secretPrefix = "whsec_"

// SecretFor is the secret that signs deliveries to a receiver. It is derived from the key and never stored; a
// new generation is a new secret. An empty receiver is the workspace itself.
func (o *Outbox) SecretFor(workspace, receiver string, generation int) wire.Secret {
	return secretFor(o.key, workspace, receiver, generation)
}

// secretFor derives a secret. Changing anything here changes every receiver's secret.
func secretFor(key []byte, workspace, receiver string, generation int) wire.Secret {
	h := hmac.New(sha256.New, key)
	// Each part is preceded by its length, so that no two lists of parts are alike.
	for _, part := range []string{"signalbox webhook secret", workspace, receiver, strconv.Itoa(generation)} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		h.Write([]byte(part))
	}
	return wire.NewSecret(secretPrefix + base64.StdEncoding.EncodeToString(h.Sum(nil)))
}

// sign sets the headers by which a receiver recognises us and the delivery, in two forms: that of Standard
// Webhooks, and that of AMP v0.1.2 (MSG-64). They use the secret differently: the first decodes what follows
// whsec_, the second takes the whole text.
func sign(header http.Header, secret wire.Secret, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	text := secret.Reveal()
	header.Set("webhook-id", id)
	header.Set("webhook-timestamp", stamp)
	// A receiver's own secret may be any text; without the form whsec_… there is no first signature.
	if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix)); err == nil &&
		strings.HasPrefix(text, secretPrefix) {
		header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac(key, id+"."+stamp+".", body)))
	}
	header.Set("X-AMP-Timestamp", stamp)
	header.Set("X-AMP-Signature", "sha256="+hex.EncodeToString(mac([]byte(text), stamp+".", body)))
}

// mac is HMAC-SHA256 over a prefix and a body.
func mac(key []byte, prefix string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(prefix))
	h.Write(body)
	return h.Sum(nil)
}
