package secret_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"signalbox/internal/secret"
	"signalbox/internal/secret/secrettest"
)

// command is 200 bytes of what agents run most.
const command = `cd /srv/app && git fetch origin --prune && git log --oneline -n 20 main..feature/report-2 && ` +
	`go test ./internal/report/... -run TestTotals -count=1 -timeout=5m 2>&1 | tail -40 # see docs/how.md`

// prose is ordinary text of n bytes: code, logs and sentences.
func prose(n int) string {
	const page = "func (g *Gates) Open(ctx context.Context, in Input) (Gate, error) {\n" +
		"\tif err := in.check(); err != nil {\n" +
		"\t\treturn Gate{}, fmt.Errorf(\"open %s: %w\", in.Name, err)\n\t}\n\tkey := hash(in.Token, in.Run)\n}\n" +
		"2026-05-04T10:12:33Z INFO gate opened id=gate_01jt4k9q2m8x3v7b5n6c0d1e2f agent=builder tokens=1200\n" +
		"The token is checked before the password is asked for; see https://docs.example/how?page=2 for the reason.\n" +
		"commit 9fceb02d0ae598e95dc970b74767f19372d61af8\n" +
		"{\"name\": \"report\", \"count\": 12, \"secret_name\": \"app\"}\n"
	return strings.Repeat(page, n/len(page)+1)[:n]
}

func BenchmarkFind(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"command of 200 bytes", command},
		{"text of 64 KiB", prose(64 << 10)},
		{"JSON of 64 KiB", quoted(map[string]string{"output": prose(56 << 10)})},
		{"list of 64 KiB", quoted(strings.SplitAfter(prose(56<<10), "\n"))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				if found := secret.Find(c.text); found != nil {
					b.Fatalf("found %v", found)
				}
			}
		})
	}
}

func BenchmarkTextWithATokenIn200Bytes(b *testing.B) {
	r := secret.New([]byte("key"))
	text := command[:160] + " ghp_" + secrettest.Alnum(36)
	b.ReportAllocs()
	for b.Loop() {
		r.Text(text)
	}
}

// hostile are texts of n bytes that make a careless finder read the same bytes again and again.
func hostile(n int) map[string]string {
	texts := map[string]string{}
	for _, s := range []string{
		"sk-", "eyJ.", "eyJ-", "eyJaaaaaaaaaa.", "password=", "password='", `password="\"`, "token=a1", "Cookie:a=", "://a:",
		"-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----a ", "mysql -p", "curl -u ", "[secret:", "\\", "[",
		`["`, `{"a":`, `"`, "%", "~", "1:AA", "<password>", "Bearer ", "login a password ", "\x1b[", "ghp_", "--password ",
		"sk-a1", "Authorization: a ", "password: str = ",
	} {
		texts[s] = strings.Repeat(s, n/len(s)+1)[:n]
	}
	half := n / 2
	texts["many headers, then many cookies"] = strings.Repeat("Cookie:a=", half/9) + strings.Repeat(";c=1", half/4)
	texts["an escape before many tokens"] = `["\u0067` + strings.Repeat("ghp_"+secrettest.Alnum(36)+" ", n/41) + `"]`
	return texts
}

// BenchmarkHostile is read by eye: twice the text must take about twice the time.
func BenchmarkHostile(b *testing.B) {
	for _, size := range []int{256 << 10, 512 << 10, 1 << 20} {
		for name, text := range hostile(size) {
			b.Run(fmt.Sprintf("%s/%d KiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					secret.Find(text)
				}
			})
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range secrettest.Samples() {
		f.Add(s.Text())
	}
	for _, text := range hostile(64) {
		f.Add(text)
	}
	f.Fuzz(check)
}

func FuzzJSON(f *testing.F) {
	for _, s := range secrettest.Samples()[:40] {
		f.Add(quoted(map[string]string{"a": s.Text()}))
		f.Add(`["` + escaped(s.Text()) + `"]`)
	}
	f.Fuzz(check)
}

// check is what holds for any text: findings are in order and inside of it, and a text that was
// cleaned has the same kinds and stays.
func check(t *testing.T, text string) {
	last := 0
	for _, found := range secret.Find(text) {
		if found.Start < last || found.End <= found.Start || found.End > len(text) || found.Kind == "" {
			t.Fatalf("%+v after %d in %d bytes", found, last, len(text))
		}
		last = found.End
	}
	r := secret.New([]byte("key"))
	clean, _ := r.Text(text)
	if again, _ := r.Text(clean); again != clean {
		t.Fatalf("%q\n%q\n%q", text, clean, again)
	}
	if utf8.ValidString(text) && !utf8.ValidString(clean) {
		t.Fatalf("a character was cut: %q\n%q", text, clean)
	}
}
