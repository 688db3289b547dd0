// Package id makes typed, sortable ids: gate_01jt4k… is a gate, and ids made
// later sort later. The part after the prefix is a version 7 UUID written like a
// ULID: 26 characters of Crockford's base32 in lower case, so that a double click
// selects the whole id. Ids are not secrets: knowing one authorises nothing.
package id

import (
	"encoding/base32"
	"math/big"
	"strings"

	"github.com/google/uuid"
)

// crockford has no i, l, o and u, which are easily misread.
var crockford = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New makes an id with the prefix, such as "gate" or "agent".
func New(prefix string) string {
	return prefix + "_" + encode(uuid.Must(uuid.NewV7()))
}

// encode writes 128 bits as 26 digits of five bits, the first holding only three.
// base32 fills the last digit instead, so the bits are moved right by two.
func encode(u uuid.UUID) string {
	var wide [17]byte
	new(big.Int).Lsh(new(big.Int).SetBytes(u[:]), 6).FillBytes(wide[:])
	return crockford.EncodeToString(wide[:])[:26]
}

// Is reports whether s has the form of an id with the prefix.
func Is(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || len(rest) != 26 || rest[0] > '7' {
		return false
	}
	return strings.Trim(rest, "0123456789abcdefghjkmnpqrstvwxyz") == ""
}
