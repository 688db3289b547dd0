package access_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/roster/key"
	"signalbox/internal/server/access"
	"signalbox/internal/show/showtest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// serve answers a request the way the server does, and writes its line.
func serve(l *access.Log, r *http.Request, answer http.HandlerFunc) {
	var w http.ResponseWriter = httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "req1")
	defer l.Begin(&w, &r)()
	answer(w, r)
}

func request(path string) *http.Request {
	return &http.Request{Method: "GET", URL: &url.URL{Path: path, RawQuery: "key=rs-amp-" + strings.Repeat("a", 32)},
		Header: http.Header{}, RemoteAddr: "192.0.2.7:4711"}
}

func TestALineSaysWhoWhatFromWhereAndHowLong(t *testing.T) {
	var out bytes.Buffer
	l := access.New(&out, "json")
	serve(l, request("/ops/agents/tailor"), func(w http.ResponseWriter, r *http.Request) {
		wire.NoteCaller(r.Context(), "opr_1", "operator:ines", "acme")
		r.Pattern = "GET /ops/agents/{name}"
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("hello"))
	})
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err, out.String())
	}
	for key, want := range map[string]any{
		"request": "req1", "from": "192.0.2.7", "who": "opr_1", "name": "operator:ines", "workspace": "acme",
		"method": "GET", "route": "GET /ops/agents/{name}", "path": "/ops/agents/tailor", "status": 418.0, "bytes": 5.0,
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	if line["time"] == nil || line["seconds"] == nil || strings.Contains(out.String(), "rs-amp-") {
		t.Error(out.String())
	}
}

func TestNoTextOfACallerForgesALineOrHidesInOne(t *testing.T) {
	drawn := ""
	for _, kind := range []string{"signal", "mail", "operator", "owner"} {
		drawn += "/" + key.Draw(kind)
	}
	texts := append(showtest.All(t), showtest.Hostile{Name: "a line", Text: "x\n" + `{"who":"admin"}`},
		showtest.Hostile{Name: "fields", Text: `x" who="admin" status=200 y`},
		showtest.Hostile{Name: "a key", Text: "/v1" + drawn},
		showtest.Hostile{Name: "long", Text: strings.Repeat("ä", 100_000)})
	for _, form := range access.Forms {
		for _, hostile := range texts {
			var out bytes.Buffer
			r := request("/" + hostile.Text)
			r.Method, r.RemoteAddr = hostile.Text, hostile.Text
			serve(access.New(&out, form), r, func(_ http.ResponseWriter, r *http.Request) {
				wire.NoteCaller(r.Context(), "agt_1", "agent:"+hostile.Text, hostile.Text)
			})
			text := out.String()
			if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
				t.Errorf("%s, %s: %q is not one line", form, hostile.Name, text)
			}
			if strings.ContainsAny(strings.TrimSuffix(text, "\n"), "\x1b\r\x00\x7f\u202e\u2028\u200b\u2066") {
				t.Errorf("%s, %s: %q has characters that nobody sees", form, hostile.Name, text)
			}
			if key.In(text) || len(text) > 40_000 {
				t.Errorf("%s, %s: %.2000q", form, hostile.Name, text)
			}
			if form == "json" {
				var line map[string]any
				if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["who"] != "agt_1" || line["status"] != 200.0 {
					t.Errorf("%s: %v %q", hostile.Name, err, text)
				}
			} else if strings.Count(text, " who=") != 1+strings.Count(text, `\" who=`) {
				t.Errorf("%s: %q", hostile.Name, text)
			}
		}
	}
}

func TestAFileThatWasMovedAwayIsMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	testbed.Write(t, path, "from before\n")
	l, err := access.Open(path, "text")
	if err != nil {
		t.Fatal(err)
	}
	serve(l, request("/before"), func(http.ResponseWriter, *http.Request) {})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	lines := 0
	testbed.Until(t, "a new file", func() bool {
		serve(l, request("/after"), func(http.ResponseWriter, *http.Request) {})
		lines++
		return strings.Contains(testbed.ReadAny(path), "/after")
	})
	old := testbed.ReadAny(path + ".1")
	if !strings.HasPrefix(old, "from before\n") || !strings.Contains(old, "path=/before") {
		t.Errorf("%q", old)
	}
	if got := strings.Count(old+testbed.ReadAny(path), "/after"); got != lines {
		t.Errorf("%d of %d lines", got, lines)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("everybody may read it: %v %v", info.Mode(), err)
	}
}

func TestALogThatCannotBeOpenedSaysWhereAndOneThatIsOffWritesNothing(t *testing.T) {
	_, err := access.Open(filepath.Join(t.TempDir(), "no", "folder"), "json")
	if err == nil || !strings.Contains(err.Error(), "no/folder") {
		t.Error(err)
	}
	off, err := access.Open(access.Off, "json")
	if err != nil || off.Lost() != 0 {
		t.Error(err)
	}
	serve(off, request("/"), func(http.ResponseWriter, *http.Request) {})
}

func TestLinesThatCannotBeWrittenAreCountedAndTheCallIsAnswered(t *testing.T) {
	l := access.New(full{}, "json")
	answered := false
	serve(l, request("/"), func(http.ResponseWriter, *http.Request) { answered = true })
	if !answered || l.Lost() != 1 {
		t.Error(answered, l.Lost())
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrClosed }
