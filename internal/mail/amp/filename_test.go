package amp_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/mail/amp"
)

func TestAFilenameIsSafeOnEverySystem(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 300)
	for name, want := range map[string]string{
		"report.pdf": "report.pdf", "my log.txt": "my_log.txt", "..": "_", "": "_", ".bashrc": "bashrc",
		"../../etc/passwd": "_.._etc_passwd", `..\..\a.exe`: "_.._a.exe", "-rf": "_rf", "--": "_-",
		"CON": "_CON", "nul.txt": "_nul.txt", "com1.tar.gz": "_com1.tar.gz", "console": "console",
		"a\u202egnp.exe": "a_gnp.exe", "a\x00b\r\nc": "a_b__c", `a"; filename="b`: "a___filename__b",
		"trailing. . ": "trailing._._", "trailing..": "trailing", "報告.pdf": "__.pdf",
		long + ".pdf": strings.Repeat("a", 251) + ".pdf", long: long[:255], "con." + long: "_con." + long[:250],
	} {
		if got := amp.SafeFilename(name); got != want {
			t.Errorf("%.60q becomes %q, want %q", name, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		long := rapid.StringMatching(`[.a-cA-C/-]{240,270}[.x]{0,40}`)
		name := amp.SafeFilename(rapid.OneOf(rapid.String(), long).Draw(t, "name"))
		if amp.SafeFilename(name) != name {
			t.Fatalf("%q is not safe to itself: %q", name, amp.SafeFilename(name))
		}
		if !amp.ShownFilename(name) {
			t.Fatalf("%q is safe and cannot be shown", name)
		}
	})
}

func TestWhichNamesOfFilesAreShown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"report.pdf", "my log (2).txt", "報告.pdf", "Größe.csv", "été, 2.md"} {
		if !amp.ShownFilename(name) {
			t.Errorf("%q is not shown", name)
		}
	}
	for _, name := range []string{
		"", ".", "..", ".bashrc", "a.", "a ", " a", "-rf", "../a", `a\b`, "a%2Fb", "a%5cb", "a%00b", "a:b", "a\"b", "a<b>",
		"a\nb", "a\x00", "a\x1b[2K", "a\u202egnp.exe", "a\u200bb", "a\u3164b", "a\ufe0fb", "a\xff", "NUL", "com1.txt",
		"a\u2028b", "a\u00a0b", strings.Repeat("a", 256),
	} {
		if amp.ShownFilename(name) {
			t.Errorf("%q is shown", name)
		}
	}
}
