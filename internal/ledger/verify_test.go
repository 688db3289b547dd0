package ledger_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func export(t testing.TB, n node) string {
	t.Helper()
	var b bytes.Buffer
	if err := n.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func verify(text, key string, against *ledger.Against) (ledger.Verification, error) {
	return ledger.VerifyExport(strings.NewReader(text), key, against, ledger.Watch{})
}

// odd appends entries of every shape a body can have.
func odd(t testing.TB, n node) {
	t.Helper()
	for _, body := range []any{
		[]byte{},
		[]byte(nil), nil, []byte("\n\t\r\x00\xff"), "tab\tand line\n",
		bytes.Repeat([]byte{0xab}, 3<<20),
	} {
		err := n.Write(t.Context(), func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Kind: "thing.seen", Actor: "agent:a\tb\nc", Subject: "line\nand\ttab", Body: body})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnExportVerifies(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())

		t.Run("of an empty ledger", func(t *testing.T) {
			got, err := verify(export(t, n), n.Key(), nil)
			if err != nil || got.Entries != 0 || !bytes.Equal(got.Root[:], rootOf(nil)) {
				t.Errorf("%+v, %v", got, err)
			}
		})

		t.Run("with bodies that are empty, odd, large and erased", func(t *testing.T) {
			odd(t, n)
			erased, err := n.Erase(t.Context(), time.Now().Add(time.Second))
			if err != nil || erased != 6 {
				t.Fatalf("erased %d (%v), want 6", erased, err)
			}
			odd(t, n)
			fill(t, n, 1200) // more than two pages
			text := export(t, n)
			signed, _, err := n.Signed(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got, err := verify(text, readFile(t, n.dir, ledger.PublicKeyFile), &ledger.Against{Signed: signed})
			if err != nil {
				t.Fatal(err)
			}
			want := ledger.Verification{Origin: "test.example/ledger", Entries: 1200, Erased: 6, Checkpoint: 1200}
			copy(want.Root[:], rootOf(leaves(t, n)))
			if len(got.Keys) != 1 || got.Keys[0].Text != n.Key() {
				t.Errorf("the keys are %+v", got.Keys)
			}
			got.Keys, got.Note = nil, nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})

		t.Run("against checkpoints of other sizes", func(t *testing.T) {
			before, size, err := n.Signed(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			old := export(t, n)
			fill(t, n, int(size)+10)
			text := export(t, n)
			after, _, err := n.Signed(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := verify(text, n.Key(), &ledger.Against{Signed: before}); err != nil || got.Later ||
				got.Checkpoint != size {
				t.Errorf("a smaller checkpoint: %+v, %v", got, err)
			}
			if _, err := verify(old, n.Key(), &ledger.Against{Signed: after}); !fault.Is(err, fault.VerificationFailed) {
				t.Errorf("a larger checkpoint: %v", err)
			}
			if got, err := verify(old, n.Key(), &ledger.Against{Signed: after, MayBeLater: true}); err != nil || !got.Later {
				t.Errorf("a checkpoint that may be later: %+v, %v", got, err)
			}
			if _, err := verify(text, n.Key(), &ledger.Against{Signed: before[:len(before)-10]}); !fault.Is(err,
				fault.VerificationFailed) {
				t.Errorf("a damaged checkpoint: %v", err)
			}
		})
	})
}

// parts are the pieces of an export that a tamperer may touch.
type parts struct {
	signed  []string // the lines of the checkpoint
	entries []string
}

func split(text string) parts {
	head, rest, _ := strings.Cut(text, "\n---\n")
	_, signed, _ := strings.Cut(head, "\n")
	return parts{strings.Split(signed, "\n"), strings.Split(strings.TrimSuffix(rest, "\n"), "\n")}
}

func (p parts) String() string {
	return "signalbox ledger export v1\n" + strings.Join(p.signed, "\n") + "\n---\n" + strings.Join(p.entries, "\n") + "\n"
}

// flip changes one bit of byte i; a negative i counts from the end.
func flip(text string, i int) string {
	b := []byte(text)
	if i < 0 {
		i += len(b)
	}
	b[i] ^= 1
	return string(b)
}

// column changes one column of an entry's line.
func column(line string, i int, change func(string) string) string {
	columns := strings.Split(line, "\t")
	columns[i] = change(columns[i])
	return strings.Join(columns, "\t")
}

func TestAnExportThatWasTouchedIsRefused(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := startFilled(t, address, 40)
		whole := export(t, n)
		if diff := cmp.Diff(whole, split(whole).String()); diff != "" {
			t.Fatalf("the test takes the export apart wrongly:\n%s", diff)
		}
		_, strange := otherKey(t)
		for name, change := range map[string]func(p *parts) (key string){
			"a byte of a record":     func(p *parts) string { p.entries[9] = flip(p.entries[9], 30); return "" },
			"the number in a record": func(p *parts) string { p.entries[9] = flip(p.entries[9], len(`{"seq":`)); return "" },
			"the hash in a record": func(p *parts) string {
				p.entries[9] = column(p.entries[9], 0, func(s string) string { return flip(s, -5) })
				return ""
			},
			"a byte of a salt": func(p *parts) string {
				p.entries[9] = column(p.entries[9], 1, func(s string) string { return flip(s, 3) })
				return ""
			},
			"a byte of a body": func(p *parts) string {
				p.entries[9] = column(p.entries[9], 2, func(s string) string { return flip(s, 3) })
				return ""
			},
			"bits of a body that pad": func(p *parts) string { p.entries[9] = column(p.entries[9], 2, padBits); return "" },
			"a return in a body": func(p *parts) string {
				p.entries[9] = column(p.entries[9], 2, func(s string) string { return s[:4] + "\r" + s[4:] })
				return ""
			},
			"a return at a line's end": func(p *parts) string { p.entries[9] += "\r"; return "" },
			"salt to body":             func(p *parts) string { p.entries[9] = moveSalt(p.entries[9]); return "" },
			"a body without its salt": func(p *parts) string {
				p.entries[9] = column(p.entries[9], 1, func(string) string { return "-" })
				return ""
			},
			"a salt without its body": func(p *parts) string {
				p.entries[9] = column(p.entries[9], 2, func(string) string { return "-" })
				return ""
			},
			"a fourth column":         func(p *parts) string { p.entries[9] += "\tx"; return "" },
			"two columns":             func(p *parts) string { p.entries[9], _, _ = strings.Cut(p.entries[9], "\t"); return "" },
			"the checkpoint's origin": func(p *parts) string { p.signed[0] = flip(p.signed[0], 0); return "" },
			"the checkpoint's size":   func(p *parts) string { p.signed[1] = "39"; p.entries = p.entries[:39]; return "" },
			"the checkpoint's root":   func(p *parts) string { p.signed[2] = flip(p.signed[2], 5); return "" },
			"the signature":           func(p *parts) string { p.signed[4] = flip(p.signed[4], -20); return "" },
			"the signature's name":    func(p *parts) string { p.signed[4] = flip(p.signed[4], 5); return "" },
			"no signature":            func(p *parts) string { p.signed = p.signed[:4]; return "" },
			"no checkpoint":           func(p *parts) string { p.signed = nil; return "" },
			"the last line gone":      func(p *parts) string { p.entries = p.entries[:39]; return "" },
			"the first line gone":     func(p *parts) string { p.entries = p.entries[1:]; return "" },
			"a middle line gone":      func(p *parts) string { p.entries = slices.Delete(p.entries, 19, 20); return "" },
			"all lines gone":          func(p *parts) string { p.entries = nil; return "" },
			"two lines swapped": func(p *parts) string {
				p.entries[3], p.entries[4] = p.entries[4], p.entries[3]
				return ""
			},
			"two bodies swapped": func(p *parts) string { swapBodies(p, 3, 4); return "" },
			"a line twice": func(p *parts) string {
				p.entries = slices.Insert(p.entries, 5, p.entries[4])
				return ""
			},
			"the last line twice":       func(p *parts) string { p.entries = append(p.entries, p.entries[39]); return "" },
			"an empty line":             func(p *parts) string { p.entries = slices.Insert(p.entries, 5, ""); return "" },
			"an empty line at the end":  func(p *parts) string { p.entries = append(p.entries, ""); return "" },
			"a checkpoint of another":   func(*parts) string { return strange },
			"a key that is none":        func(*parts) string { return "nonsense" },
			"an entry made up":          func(p *parts) string { p.entries = append(p.entries, madeUp(41)); return "" },
			"an entry put in its place": func(p *parts) string { p.entries[39] = madeUp(40); return "" },
		} {
			p := split(whole)
			key := change(&p)
			if key == "" {
				key = n.Key()
			}
			if _, err := verify(p.String(), key, nil); !fault.Is(err, fault.VerificationFailed) &&
				!fault.Is(err, fault.InvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, text := range map[string]string{
			"nothing":               "",
			"no header":             strings.TrimPrefix(whole, "signalbox ledger export v1\n"),
			"another version":       strings.Replace(whole, "v1", "v2", 1),
			"an end within a line":  whole[:len(whole)-20],
			"no newline at the end": whole[:len(whole)-1],
			"Windows line ends":     strings.ReplaceAll(whole, "\n", "\r\n"),
		} {
			if _, err := verify(text, n.Key(), nil); !fault.Is(err, fault.VerificationFailed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// padBits changes the bits at the end of base64 that say nothing.
func padBits(text string) string {
	if i := strings.IndexByte(text, '='); i > 0 {
		return flip(text, i-1)
	}
	return text + "===="
}

// moveSalt takes a byte from the salt to the body: their hash together is the same.
func moveSalt(line string) string {
	columns := strings.Split(line, "\t")
	salt, _ := base64.StdEncoding.DecodeString(columns[1])
	body, _ := base64.StdEncoding.DecodeString(columns[2])
	body = append(salt[len(salt)-1:], body...)
	return columns[0] + "\t" + base64.StdEncoding.EncodeToString(salt[:len(salt)-1]) + "\t" +
		base64.StdEncoding.EncodeToString(body)
}

func swapBodies(p *parts, i, j int) {
	a, b := strings.SplitN(p.entries[i], "\t", 2), strings.SplitN(p.entries[j], "\t", 2)
	p.entries[i], p.entries[j] = a[0]+"\t"+b[1], b[0]+"\t"+a[1]
}

// madeUp is an entry that is right in itself: the hash of no salt and no body.
func madeUp(seq int) string {
	return fmt.Sprintf(
		`{"seq":%d,"at":1,"workspace":"","kind":"a.b","actor":"","subject":"","trace":"",`+
			`"body":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`, seq,
	) + "\t\t"
}

func TestTwoHistoriesUnderOneKeyAreToldApart(t *testing.T) {
	t.Parallel()
	one := start(t, storetest.SQLite(t), t.TempDir())
	dir := t.TempDir()
	// As in a first start that was killed: a key that has its name begins no second history.
	testbed.Write(t, filepath.Join(dir, ledger.KeyFile+".new"), readFile(t, one.dir, ledger.KeyFile))
	two := start(t, storetest.SQLite(t), dir)
	for size := 20; size <= 30; size += 10 {
		fill(t, one, 20)
		fill(t, two, size)
		mine, theirs := export(t, one), export(t, two)
		for _, text := range []string{mine, theirs} {
			if _, err := verify(text, one.Key(), nil); err != nil {
				t.Errorf("each history is whole in itself: %v", err)
			}
		}
		signed, _, err := one.Signed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verify(theirs, one.Key(), &ledger.Against{Signed: signed}); !fault.Is(err, fault.VerificationFailed) {
			t.Errorf("a history of %d entries against a checkpoint of the other: %v", size, err)
		}
	}
}
