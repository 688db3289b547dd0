package notes_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"signalbox/internal/ledger/notes"
)

// one is a key pair of a log.
type one struct {
	note.Signer
	text string
}

func newKey(t *testing.T, origin string) one {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	s, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	if own, ok := notes.PublicOf(private); !ok || own != public {
		t.Fatalf("%s is not %s", own, public)
	}
	return one{s, public}
}

func succeed(t *testing.T, from int64, a, b one) notes.Succession {
	t.Helper()
	s, err := notes.Succeed(from, a, b, a.text, b.text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACheckpointIsSignedByTheKeyThatWasInForce(t *testing.T) {
	const origin = "test.example/log"
	a, b, c := newKey(t, origin), newKey(t, origin), newKey(t, origin)
	all := []notes.Succession{succeed(t, 10, a, b), succeed(t, 20, b, c)}
	for _, known := range []one{a, b, c} {
		chain, err := notes.Link(known.text, all)
		if err != nil {
			t.Fatal(err)
		}
		for size, by := range map[int64]one{0: a, 9: a, 10: b, 19: b, 20: c, 1 << 40: c} {
			for _, signer := range []one{a, b, c} {
				is, err := notes.Checkpoint{Origin: origin, Size: size, Root: tlog.Hash{1}}.Sign(signer)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := chain.Open(is.Note); (err == nil) != (signer == by) || err == nil && got.Size != size {
					t.Errorf("over %d entries by another key than its own: %v", size, err)
				}
			}
		}
	}
}

func TestAChainIsLinkedByThoseWhoHadTheKey(t *testing.T) {
	const origin = "test.example/log"
	a, b, c, thief := newKey(t, origin), newKey(t, origin), newKey(t, origin), newKey(t, origin)
	good := succeed(t, 10, a, b)
	text, _, _ := strings.Cut(string(good.Note), "\n\n")
	sign := func(text string, by ...note.Signer) []byte {
		signed, err := note.Sign(&note.Note{Text: text}, by...)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	for name, signed := range map[string][]byte{
		"signed by the new key alone": sign(text+"\n", b),
		"signed by the old key alone": sign(text+"\n", a),
		"a thief's key, not signed by the old one": sign(
			strings.Replace(text, b.text, thief.text, 1)+"\n", thief),
		"for another entry, with the signatures of this one": []byte(strings.Replace(string(good.Note), "\n10\n", "\n11\n", 1)),
		"a number in another spelling":                       sign(strings.Replace(text, "\n10\n", "\n010\n", 1)+"\n", a, b),
		"one line more":                                      sign(text+"\nmore\n", a, b),
		"nothing":                                            nil,
	} {
		if _, err := notes.OpenSuccession(signed); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for name, all := range map[string][]notes.Succession{
		"a link is missing":         {good, succeed(t, 30, c, thief)},
		"the order is another":      {succeed(t, 20, b, c), good},
		"the number is no later":    {good, succeed(t, 10, b, c)},
		"a key comes back":          {good, succeed(t, 20, b, a)},
		"the chain is of strangers": {succeed(t, 10, thief, c)},
	} {
		if _, err := notes.Link(a.text, all); err == nil {
			t.Errorf("%s, and it is linked", name)
		}
	}
	other := newKey(t, "test.example/other")
	if _, err := notes.Succeed(10, a, other, a.text, other.text); err == nil {
		t.Error("a key of another log takes over")
	}
}

func TestACheckpointHasOneSpelling(t *testing.T) {
	const origin = "test.example/log"
	a := newKey(t, origin)
	root := tlog.Hash{1}.String()
	for text, ok := range map[string]bool{
		origin + "\n7\n" + root + "\n":            true,
		origin + "\n7\n" + root + "\nextension\n": true,
		origin + "\n007\n" + root + "\n":          false,
		origin + "\n+7\n" + root + "\n":           false,
		origin + "\n-7\n" + root + "\n":           false,
		origin + "\n7\n" + root[1:] + "\n":        false,
		origin + "\n7\n":                          false,
		"other\n7\n" + root + "\n":                false,
		origin + "\n7\n" + root + "\n\nmore\n":    false,
	} {
		signed, err := note.Sign(&note.Note{Text: text}, a)
		if err != nil {
			t.Fatal(err)
		}
		v, err := notes.Verifier(a.text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := notes.Open(signed, v); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
