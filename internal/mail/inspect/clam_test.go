package inspect_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/mail/inspect"
	"signalbox/internal/mail/inspect/inspecttest"
)

func TestClamAVFindsItsSignatures(t *testing.T) {
	t.Parallel()
	c := inspecttest.Start(t, "StreamMaxLength 1M\n")
	for name, want := range map[string]struct {
		text, found string
		fails       bool
	}{
		"an innocent text":   {text: "hello"},
		"nothing":            {text: ""},
		"many chunks":        {text: strings.Repeat("harmless ", 90_000)},
		"a virus":            {text: inspecttest.Virus, found: "Own.Test.UNOFFICIAL"},
		"a virus in the end": {text: strings.Repeat("harmless ", 50_000) + inspecttest.Virus, found: "Own.Test.UNOFFICIAL"},
		"too much for it":    {text: strings.Repeat("harmless ", 300_000), fails: true},
	} {
		found, err := c.Scan(t.Context(), strings.NewReader(want.text))
		if found != want.found || want.fails != (err != nil) {
			t.Errorf("%s: %q %v", name, found, err)
		}
	}
}

func TestAScannerThatIsNotThereFindsNothingClean(t *testing.T) {
	t.Parallel()
	if _, err := inspect.Clam(filepath.Join(t.TempDir(), "none")).Scan(t.Context(), strings.NewReader("x")); err == nil {
		t.Error("a file was scanned by nobody")
	}
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	go func() {
		for conn, err := silent.Accept(); err == nil; conn, err = silent.Accept() {
			_ = conn.Close()
		}
	}()
	if _, err := inspect.Clam(silent.Addr().String()).Scan(t.Context(), strings.NewReader("x")); err == nil {
		t.Error("silence was taken for an answer")
	}
}
