package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/testbed"
)

func TestHostsAreReadAsPeopleListThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"api.example.com": "api.example.com:443", "API.Example.com.": "api.example.com:443", "localhost:4000": "localhost:4000",
		"127.0.0.1:4000": "127.0.0.1:4000", "::1": "[::1]:443", "[::1]:80": "[::1]:80", "example.com:0443": "example.com:443",
		"": "", "https://example.com": "", "example.com:": "", "example.com:0": "", "example.com:https": "", "a b": "", "*.example.com": "",
		"example.com:70000": "", "user@example.com": "", "exämple.com": "", "example.com/path": "", "a\nb": "",
	} {
		got, err := Target(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestOnlyAddressesOfTheInternetArePublic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"1.1.1.1": true, "93.184.216.34": true, "2606:4700::1111": true,
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false, "10.1.2.3": false,
		"172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "fe80::1": false, "fd00::1": false, "100.64.0.1": false,
		"224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false,
		"::ffff:10.0.0.1": false, "198.18.0.1": false,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is public: %v", text, got)
		}
	}
}

// TestTheDoorOpensOnlyWhatIsListed, and says once what it has refused.
func TestTheDoorOpensOnlyWhatIsListed(t *testing.T) {
	t.Parallel()
	l := testbed.Serve(t, "tcp", "127.0.0.1:0", func(c net.Conn) { _, _ = io.WriteString(c, "hello"); _ = c.Close() })
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	var mu sync.Mutex
	var told []string
	path := filepath.Join(t.TempDir(), "door.sock")
	d, err := openDoor(path, []string{at}, []string{"rebound.example:" + port, "mixed.example:" + port, "gone.example"}, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	d.lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
		switch name {
		case "rebound.example":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		case "mixed.example": // one that is good does not make the other one so
			return []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("::ffff:127.0.0.1")}, nil
		}
		return nil, errors.New("no such host")
	}
	in := Inside{Door: path}
	for target, says := range map[string]string{
		at: "", "rebound.example:" + port: "leads to 127.0.0.1", "mixed.example:" + port: "leads to 127.0.0.1",
		"gone.example:443": "cannot be found", "localhost:" + port: "not among its hosts", "rebound.example:1": "not among its hosts",
		"": "no host", strings.Repeat("a", 1000): "the run is over",
	} {
		for range 2 {
			conn, err := in.dial(target)
			if err == nil {
				text, _ := io.ReadAll(conn)
				_ = conn.Close()
				if says != "" || string(text) != "hello" {
					t.Errorf("%q was opened: %s", target, text)
				}
				continue
			}
			if says == "" || !strings.Contains(err.Error(), says) && says != "the run is over" {
				t.Errorf("%q: %v", target, err)
			}
		}
	}
	for i := range 100 {
		_, _ = in.dial(fmt.Sprintf("host%d.example", i))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != maxTold {
		t.Errorf("%d refusals were told: %q", len(told), told)
	}
}

// TestNothingButDataIsCarriedBack: some CLIs take a text in a file of logins for a command.
func TestNothingButDataIsCarriedBack(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"claudeAiOauth":{"accessToken":"a","scopes":["b"],"expiresAt":1}}`: true, `{}`: true,
		`{"anthropic":{"type":"api_key","key":"!touch owned"}}`: false, `{"a":[{"b":" \u0021x"}]}`: false,
		`{"https://evil.example":{"type":"wellknown","key":"K","token":"T"}}`: false,
		`{"a":"b","a":"!x"}`: false, `[]`: false, `"!x"`: false, `not JSON`: false, ``: false,
	} {
		if got := isData([]byte(text)); got != want {
			t.Errorf("%s is data: %v", text, got)
		}
	}
}
