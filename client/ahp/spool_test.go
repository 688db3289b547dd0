package ahp

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/testbed"
)

// spoolOf is a spool with a list of the tools, and the key of the server that signed it.
func spoolOf(t *testing.T, tools ...string) (*Spool, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenSpool(filepath.Join(t.TempDir(), "spool"), base64.RawURLEncoding.EncodeToString(public))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.keepList(listOf(t, s, private, time.Now(), tools)); err != nil {
		t.Fatal(err)
	}
	return s, private
}

func listOf(t *testing.T, s *Spool, server ed25519.PrivateKey, from time.Time, tools []string) string {
	t.Helper()
	key, err := s.key()
	if err != nil {
		t.Fatal(err)
	}
	return string(sealed(server, listPurpose, offlineList{
		Spool: nameOf(key), Tools: tools, Policy: 1, From: from.UTC().Format(time.RFC3339),
		Until: from.Add(24 * time.Hour).UTC().Format(time.RFC3339),
	}))
}

func using(tool string) Event {
	return Event{Type: PreAction, SessionID: "s", AgentID: "a", Payload: map[string]any{"tool_name": tool}}
}

var errAway = Lost(errors.New("nobody listens"))

// kept are the steps in a spool, without the line that begins it.
func kept(t *testing.T, s *Spool) (all []spooled) {
	t.Helper()
	text := testbed.Read(t, s.file(linesFile))
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[1:] {
		var one spooled
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

func TestASpoolAllowsWhatTheListNamesUntilItEnds(t *testing.T) {
	s, server := spoolOf(t, "Read")
	old := testbed.Read(t, s.file(listFile))
	allowed := func() bool { d, _ := s.Answer(using("Read"), errAway); return d.Allowed() } // refused with an error
	if !allowed() {
		t.Error("the list names Read")
	}
	s.now = func() time.Time { return time.Now().Add(24*time.Hour + time.Second) }
	if allowed() {
		t.Error("the list has ended")
	}
	// A newer list that names nothing takes its place, and the older one brings nothing back once it has ended.
	if err := s.keepList(listOf(t, s, server, s.now(), []string{})); err != nil {
		t.Fatal(err)
	}
	testbed.Write(t, s.file(listFile), old)
	if allowed() {
		t.Error("a list that has ended was used again")
	}
	s.now = func() time.Time { return time.Now().Add(-time.Hour) }
	if allowed() {
		t.Error("the list does not hold yet")
	}
}

func TestASpoolRefusesAndKeepsWhatNobodyAllowed(t *testing.T) {
	s, _ := spoolOf(t, "Read")
	for _, c := range []struct {
		name string
		e    Event
		why  error
		kept bool
	}{
		{"another tool", using("Bash"), errAway, true},
		{"a prompt", Event{Type: PrePrompt, Payload: map[string]any{"prompt": "p"}}, errAway, true},
		{"an answer that cannot be read", using("Read"), &ProtocolError{0, "no object"}, true},
		{"somebody else who listens there", using("Read"), errors.New("what listens there was started by this agent"), true},
		{"no tool", Event{Type: PreAction, Payload: map[string]any{}}, errAway, true},
		{"two tools", Event{Type: PreAction, Payload: json.RawMessage(`{"tool_name":"Read","tool_name":"Bash"}`)}, errAway, true},
		{"a tool that is no text", Event{Type: PreAction, Payload: json.RawMessage(`{"tool_name":["Read"]}`)}, errAway, true},
		{"too much", Event{Type: PreAction, Payload: map[string]any{"tool_name": "Read", "x": strings.Repeat("x", 1<<20)}}, errAway, true},
		{"too deep", Event{Type: PreAction, Payload: json.RawMessage(`{"tool_name":"Read","x":` + strings.Repeat("[", 200) +
			strings.Repeat("]", 200) + `}`)}, errAway, true},
		{"a refusal of the server", using("Read"), &ProtocolError{-32004, "unauthorized"}, false},
		{"a status of the server", using("Read"), &answeredError{errors.New("429")}, false},
	} {
		before := len(kept(t, s))
		d, err := s.Answer(c.e, c.why)
		if d.Allowed() || err == nil {
			t.Errorf("%s is allowed: %+v", c.name, d)
		}
		after := kept(t, s)
		if is := len(after) > before; is != c.kept || is && after[before].Decision != "refused" {
			t.Errorf("%s is kept: %v", c.name, is)
		}
	}
	if d, err := s.Answer(using("Read"), errAway); !d.Allowed() || err != nil {
		t.Errorf("the spool allows nothing any more: %+v %v", d, err)
	}
}

func TestASpoolThatCannotBeWrittenAllowsNothing(t *testing.T) {
	for name, spoil := range map[string]func(*Spool) error{
		"full": func(s *Spool) error { return os.Truncate(s.file(linesFile), maxSpool) },
		"gone": func(s *Spool) error { return os.Remove(s.file(linesFile)) },
		"a folder": func(s *Spool) error {
			return errors.Join(os.Remove(s.file(linesFile)), os.Mkdir(s.file(linesFile), 0o700))
		},
		"open":      func(s *Spool) error { return os.Chmod(s.file(linesFile), 0o666) },
		"two names": func(s *Spool) error { return os.Link(s.file(linesFile), s.file("other")) },
		"a link": func(s *Spool) error {
			return errors.Join(os.Rename(s.file(linesFile), s.file("other")), os.Symlink("other", s.file(linesFile)))
		},
		"a key by a link": func(s *Spool) error {
			return errors.Join(os.Rename(s.file(keyFile), s.file("other")), os.Symlink("other", s.file(keyFile)))
		},
		"a list by a link": func(s *Spool) error {
			return errors.Join(os.Rename(s.file(listFile), s.file("other")), os.Symlink("other", s.file(listFile)))
		},
		"no lines": func(s *Spool) error { return os.Truncate(s.file(linesFile), 0) },
		"garbage":  func(s *Spool) error { return os.WriteFile(s.file(linesFile), []byte("x\n"), 0o600) },
	} {
		s, _ := spoolOf(t, "Read")
		if err := spoil(s); err != nil {
			t.Fatal(err)
		}
		if d, err := s.Answer(using("Read"), errAway); d.Allowed() || err == nil {
			t.Errorf("%s: it is allowed", name)
		}
	}
	// What stands after the last line break was answered to nobody.
	s, _ := spoolOf(t, "Read")
	f, err := os.OpenFile(s.file(linesFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"spool":"half`); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if d, err := s.Answer(using("Read"), errAway); !d.Allowed() || err != nil || len(kept(t, s)) != 1 {
		t.Errorf("%+v %v", d, err)
	}
	for _, folder := range []func(string) error{
		func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		dir := filepath.Join(t.TempDir(), "spool")
		if err := folder(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSpool(dir, ""); err == nil {
			t.Errorf("a folder that is not ours was taken")
		}
	}
}

// A step that waits for a person is not allowed because the harness goes away meanwhile, and neither is one that a harness
// refuses with a status of its own.
func TestWhatTheHarnessHasSaidIsNotOverruledByTheSpool(t *testing.T) {
	s, _ := spoolOf(t, "Read")
	answers := []string{`"result":{"decision":"defer","retry_after_ms":1,"reason":"a person decides"}`, "503"}
	harness := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ ID, Method string }
		_ = json.NewDecoder(r.Body).Decode(&in) // it is ours
		answer := `"result":{"protocol_version":"2.4","harness_info":{"name":"n","version":"1","capabilities":[]}}`
		if in.Method == "ahp/event" {
			answer = answers[0]
			answers = append(answers[1:], answers[0])
		}
		if len(answer) == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%q,%s}`, in.ID, answer)
	}))
	c, err := Dial(t.Context(), harness, WithSpool(s))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Decide(t.Context(), using("Read")); d.Word != "defer" || err != nil {
		t.Fatalf("%+v %v", d, err)
	}
	if d, err := c.Decide(t.Context(), using("Read")); d.Allowed() || err == nil {
		t.Errorf("what waits for a person was allowed: %+v", d)
	}
	answers = []string{"503"}
	other := using("Read")
	other.Payload = map[string]any{"tool_name": "Read", "arguments": map[string]any{"file_path": "/other"}}
	if d, err := c.Decide(t.Context(), other); !d.Allowed() || err != nil {
		t.Errorf("with a 503 the list does not hold: %+v %v", d, err)
	}
	// Somebody who wants no answer any more gets none.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := c.Decide(gone, other); d.Allowed() || err == nil {
		t.Errorf("%+v %v", d, err)
	}
}
