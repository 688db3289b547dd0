package secret

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// The parts of a mark: [secret:github-token:3f9c1a2b7d4e].
const (
	markStart    = "[secret:"
	digestDigits = 12
)

// Redactor replaces credentials by marks. It is made by New and does not change.
type Redactor struct{ key []byte }

// Hide replaces the credentials in a text by their kinds, as [secret:github-token], where there is no
// key: in logs, and in tests of rules. Marks stay as they are.
func Hide(text string) string {
	var out strings.Builder
	last := 0
	for _, h := range find(text, 0) {
		if h.rank == isMark || h.Start < last {
			continue
		}
		out.WriteString(text[last:h.Start] + markStart + h.Kind + "]")
		last = h.End
	}
	if last == 0 {
		return text
	}
	return out.String() + text[last:]
}

// New makes a Redactor. The key should be random and belong to one server: whoever has it can test
// guesses of a password against the digest in a mark. With another key, the same credential gives
// another mark.
func New(key []byte) *Redactor { return &Redactor{slices.Clone(key)} }

// Text replaces the credentials in a text by marks. kinds are the kinds of the marks that are in it
// now, each once and sorted, also of marks that it had before; nil if there are none. Text without a
// credential comes back as it is, and text that was cleaned before stays the same.
func (r *Redactor) Text(s string) (clean string, kinds []string) {
	clean = s
	// Replacing can uncover something: what was no JSON becomes some, say. So it is looked for again
	// until there are only marks. More than two rounds take text that was made for it.
	for range 4 {
		hits := find(clean, 0)
		if hits == nil {
			return clean, nil
		}
		kinds = kinds[:0]
		for _, h := range hits {
			kinds = append(kinds, h.Kind)
		}
		next, changed := r.replace(clean, hits)
		if !changed {
			break
		}
		clean = next
	}
	slices.Sort(kinds)
	return clean, slices.Compact(kinds)
}

// JSON is Text for a document of JSON. Strings that hold a credential are changed, as they read once
// decoded; every other byte stays as it is. A document that is not JSON is treated as text.
func (r *Redactor) JSON(raw []byte) (clean []byte, kinds []string) {
	text := string(raw)
	cleaned, kinds := r.Text(text)
	if cleaned == text {
		return raw, kinds
	}
	return []byte(cleaned), kinds
}

// Body is JSON for a document that is kept. If something was replaced, the keyed digest of the whole
// document as it was is added as the last member, under the given name: who has the original can show
// that it is the one. It is keyed because the rest of the document is known, so that a plain hash would
// give away a short password.
func (r *Redactor) Body(raw []byte, member string) (clean []byte, changed bool) {
	clean, _ = r.JSON(raw)
	if bytes.Equal(clean, raw) {
		return raw, false
	}
	end := len(clean) - 1
	if end < 1 || clean[0] != '{' || clean[end] != '}' {
		return clean, true
	}
	mac := hmac.New(sha256.New, r.key)
	mac.Write(raw)
	separator := ","
	if end == 1 {
		separator = ""
	}
	digest := separator + `"` + member + `":"` + hex.EncodeToString(mac.Sum(nil)) + `"}`
	return append(clean[:end:end], digest...), true
}

// replace puts marks in the place of credentials, and reports whether there were any.
func (r *Redactor) replace(text string, hits []hit) (clean string, changed bool) {
	var b strings.Builder
	last := 0
	for _, h := range hits {
		if h.rank == isMark || h.Start < last {
			continue
		}
		b.WriteString(text[last:h.Start])
		b.WriteString(r.mark(h))
		last, changed = h.End, true
	}
	if !changed {
		return text, false
	}
	b.WriteString(text[last:])
	return b.String(), true
}

// mark is what stands in the place of a credential.
func (r *Redactor) mark(h hit) string {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(h.secret))
	return markStart + h.Kind + ":" + hex.EncodeToString(mac.Sum(nil))[:digestDigits] + "]"
}

// knownKinds are the kinds that a mark can have.
var knownKinds = func() map[string]string {
	known := map[string]string{}
	for _, kind := range []string{
		kindPrivateKey, kindJWT, kindBearer, kindBasic, kindURL, kindPassword, kindTelegram, kindDiscord, kindAzure,
		kindTerraform, kindMailchimp,
	} {
		known[kind] = kind
	}
	for _, s := range shapes {
		known[s.kind] = s.kind
	}
	for _, n := range names {
		known[n.kind] = n.kind
	}
	delete(known, "")
	return known
}()

// atBracket finds a mark. Only a kind of ours makes one, so that a text cannot bring others in.
func (s *scan) atBracket(i int) int {
	rest, ok := strings.CutPrefix(s.text[i:], markStart)
	if !ok {
		return i + 1
	}
	kind, rest, ok := strings.Cut(rest[:min(len(rest), 64)], ":")
	if kind = knownKinds[kind]; !ok || kind == "" || len(rest) <= digestDigits || rest[digestDigits] != ']' ||
		strings.Trim(rest[:digestDigits], "0123456789abcdef") != "" {
		return i + 1
	}
	end := i + len(markStart) + len(kind) + 1 + digestDigits + 1
	return s.add(kind, i, end, isMark, end)
}
