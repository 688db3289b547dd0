package amp

import (
	"crypto/ed25519"
	"slices"
)

// Rotation is a proof that the holder of a key has replaced it: a signature of the old key over the new one as it was
// sent (MSG-21). Whoever knows the old key can check it, and has to believe nobody.
type Rotation struct {
	Old   []byte `json:"old_public_key"`
	New   []byte `json:"new_public_key"`
	Sent  string `json:"sent"` // the text of the new key that was signed, in one of the forms of Proves
	Proof string `json:"proof"`
}

// MaxRotations is how many rotations are looked at.
const MaxRotations = 32

// Rotated reports whether rotations lead from the key with a fingerprint to another key.
func Rotated(from string, to ed25519.PublicKey, all []Rotation) bool {
	for _, r := range all[:min(len(all), MaxRotations)] {
		if len(r.Old) != ed25519.PublicKeySize || len(r.New) != ed25519.PublicKeySize ||
			!slices.Contains(Fingerprints(r.Old), from) {
			continue
		}
		if !Proves(r.Old, r.New, r.Sent, r.Proof) {
			return false
		}
		if to.Equal(ed25519.PublicKey(r.New)) {
			return true
		}
		from = Fingerprints(r.New)[0]
	}
	return false
}
