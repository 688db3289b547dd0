package mailbox

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/testbed"
)

func TestAnotherProviderIsUsedThroughItsPublicEndpoints(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := reopen(t, bobAt(t, s))
	r := b.Registrations[0]
	if r.Provider != "other.example" || r.APIURL != s.URL+"/v1" || r.Tenant != "acme" ||
		b.Address != "bob@acme.other.example" {
		t.Errorf("%+v %+v", r, b.Address)
	}
	sent, err := b.Send(t.Context(),
		Draft{To: "carol", Subject: `back\slash`, Body: "héllo <b>", Context: []byte(`{"z":1.0,"a":2}`)})
	if err != nil || sent.ID != "msg_1_abcd" || sent.To != "carol@acme.other.example" {
		t.Fatalf("%+v %v", sent, err)
	}
	var body struct {
		To, Subject, Priority, Signature string
		Payload                          json.RawMessage
	}
	if err := json.Unmarshal([]byte(s.bodies["POST /v1/route"]), &body); err != nil {
		t.Fatal(err)
	}
	signed := amp.Signed{
		From: []string{b.Address}, To: []string{body.To}, Subject: body.Subject, Priority: body.Priority,
		Payload: body.Payload, Signature: body.Signature,
	}
	if _, _, ok := signed.Verify(keyOf(t, publicPEM(b.key))); !ok || !strings.Contains(string(body.Payload), `"h\u00e9llo <b>"`) {
		t.Errorf("what was sent does not verify: %s", s.bodies["POST /v1/route"])
	}
	if kept, err := b.Find(Sent, sent.ID); err != nil || kept.Payload.Message != "héllo <b>" {
		t.Errorf("%+v %v", kept, err)
	}
}

func TestWhatIsFetchedIsJudged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m     sample
		trust Trust
		why   string
	}{
		"of the same tenant":  {sample{}, Verified, ""},
		"of another tenant":   {sample{from: "carol@mars.other.example"}, External, ""},
		"of another provider": {sample{from: "carol@acme.crabmail.ai"}, External, ""},
		"with the domain of a default": {
			sample{from: "carol@acme.aimaestro.local", to: "bob@acme.aimaestro.local"},
			Verified,
			"",
		},
		"changed on the way":   {sample{forge: true}, Untrusted, "does not verify"},
		"for somebody else":    {sample{to: "dave@acme.other.example"}, Untrusted, "another address"},
		"for another provider": {sample{to: "bob@acme.crabmail.ai"}, Untrusted, "another address"},
		"with no key":          {sample{key: "nonsense"}, Untrusted, "key is missing"},
		"which the provider distrusts": {
			sample{local: `{"security":{"trust":"untrusted"}}`},
			Untrusted,
			"provider does not trust",
		},
		"which the provider calls far": {sample{local: `{"security":{"trust":"external"}}`}, External, ""},
		"which the provider calls near": {sample{
			from:  "carol@mars.other.example",
			local: `{"security":{"trust":"verified"}}`,
		}, External, ""},
		"not signed": {sample{unsigned: true, local: `{"security":{"trust":"verified"}}`}, Untrusted, "not signed"},
		"forged, whatever is said": {
			sample{forge: true, local: `{"security":{"trust":"verified"},"status":"read"}`},
			Untrusted, "does not verify",
		},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			s := newStranger(t)
			b := bobAt(t, s)
			c.m.id = "msg_1_aaaa"
			s.queueUp(c.m)
			got, err := b.Fetch(t.Context(), Fetching{})
			if err != nil || len(got.New) != 1 {
				t.Fatalf("%+v %v", got, err)
			}
			m, err := reopen(t, b).Find(Inbox, "msg_1_aaaa")
			if err != nil {
				t.Fatal(err)
			}
			if m.Security.Trust != c.trust || !strings.Contains(m.Security.Reason, c.why) ||
				c.why == "" != (m.Security.Reason == "") || m.Read {
				t.Errorf("%+v", m.Security)
			}
			if wrapped := strings.HasPrefix(m.Text(), "<external-content "); wrapped == (c.trust == Verified) {
				t.Errorf("%s", m.Text())
			}
			if !strings.Contains(string(m.Payload.Context), "12345678901234567890") ||
				!strings.Contains(string(m.Payload.Context), "1.0") {
				t.Errorf("the payload is another: %s", m.Payload.Context)
			}
		})
	}
}

func TestAMessageIsTakenOnceAndAcknowledgedAlways(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	fetch := func(f Fetching) Fetched {
		t.Helper()
		got, err := reopen(t, b).Fetch(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	s.queueUp(sample{id: "msg_1_aaaa"})
	if got := fetch(Fetching{Keep: true}); len(got.New) != 1 || len(s.acks) != 0 {
		t.Errorf("%+v %v", got, s.acks)
	}
	m, err := b.Find(Inbox, "msg_1_aaaa")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.MarkRead(m); err != nil {
		t.Fatal(err)
	}
	if got := fetch(Fetching{}); len(got.New) != 0 || got.Known != 1 {
		t.Errorf("%+v", got)
	}
	if m, _ = b.Find(Inbox, "msg_1_aaaa"); !m.Read {
		t.Error("it is unread again")
	}
	if err := b.Remove(m); err != nil {
		t.Fatal(err)
	}
	s.queueUp(sample{id: "msg_1_aaaa"})
	if got := fetch(Fetching{}); len(got.New) != 0 || got.Known != 1 {
		t.Errorf("what was deleted comes again: %+v", got)
	}
	if d := cmp.Diff([]string{"msg_1_aaaa", "msg_1_aaaa"}, s.acks); d != "" {
		t.Error(d)
	}
	// An id is forgotten when nothing with it can wait any longer.
	b.now = func() time.Time { return time.Now().Add(remembered + time.Hour) }
	if seen, err := b.readSeen(); err != nil || len(seen) != 0 {
		t.Errorf("%v %v", seen, err)
	}
}

func TestAHostileProviderWritesNowhereElse(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	for _, id := range []string{"../../../evil", "a", "msg_1_aaaa/../../x", "", "msg\x00"} {
		s.queueUp(sample{id: id})
	}
	s.queue = append(s.queue, `{"id":"msg_1_bbbb","envelope":7}`,
		`{"id":"msg_1_cccc","envelope":{"id":"msg_1_cccc"},"payload":[]}`)
	s.ids = append(s.ids, "msg_1_bbbb", "msg_1_cccc")
	s.queueUp(sample{id: "msg_1_aaaa", from: "../../../evil@x"})
	got, err := b.Fetch(t.Context(), Fetching{})
	if err != nil || len(got.New) != 1 || len(got.Refused) < 7 {
		t.Errorf("%+v %v", got, err)
	}
	if m := got.New[0]; m.Security.Trust != Untrusted || m.Sender() != "unknown@unverified" {
		t.Errorf("%+v %s", m.Security, m.Sender())
	}
	if d := cmp.Diff([]string{"msg_1_aaaa"}, s.acks); d != "" {
		t.Error(d)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "messages", Inbox, "______evil_x", "msg_1_aaaa.json")); err != nil {
		t.Error(err)
	}

	for what, answer := range map[string]string{
		"a path for a provider": `{"address":"bob@acme.other.example","api_key":"k","provider":{"name":"../../evil"}}`,
		"an invalid address":    `{"address":"nobody","api_key":"k","provider":{"name":"other.example"}}`,
		"no key":                `{"address":"bob@acme.other.example","provider":{"name":"other.example"}}`,
		"no JSON":               `<html>`,
	} {
		s.answers["POST /v1/register"] = answer
		fresh, err := Init(Where{Root: filepath.Join(t.TempDir(), "root")}, "bob", "acme")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fresh.Register(t.Context(), Joining{Server: s.URL}); err == nil {
			t.Errorf("%s is taken", what)
		}
		if files, _ := os.ReadDir(filepath.Join(fresh.Dir, "registrations")); len(files) != 0 {
			t.Errorf("%s left %v", what, files)
		}
	}
	if err := checkNoDowngrade("https://a.example", "http://a.example/v1"); err == nil {
		t.Error("a key may go over a connection that is not encrypted")
	}
}

func TestAttachmentsOfStrangers(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	elsewhere := newStranger(t)
	elsewhere.answers["GET /f"], s.answers["GET /f"] = "secret", "secret"
	good := Attachment{
		ID: "att_1_a", Filename: "../../x y.txt", Size: 6, Digest: digest([]byte("secret")),
		URL: s.URL + "/f", ScanStatus: "clean",
	}
	m := &Message{Envelope: Envelope{ID: "msg_1_aaaa", To: b.Address}}
	path, err := b.Download(t.Context(), m, good, "", false)
	if err != nil || path != filepath.Join(b.Dir, "attachments", "msg_1_aaaa", "_.._x_y.txt") {
		t.Errorf("%s %v", path, err)
	}
	for what, change := range map[string]func(*Attachment){
		"near, by a stranger's word": func(a *Attachment) { a.URL = elsewhere.URL + "/f" },
		"a file":                     func(a *Attachment) { a.URL = "file:///etc/passwd" },
		"another digest":             func(a *Attachment) { a.Digest = digest(nil) },
		"shorter than it is":         func(a *Attachment) { a.Size = 5 },
		"longer than it is":          func(a *Attachment) { a.Size = 7 },
		"rejected":                   func(a *Attachment) { a.ScanStatus = "rejected" },
		"suspicious":                 func(a *Attachment) { a.ScanStatus = "suspicious" },
		"nowhere":                    func(a *Attachment) { a.URL, a.ID = "", "../../agents/me" },
	} {
		a := good
		change(&a)
		if a == good {
			t.Fatal(what)
		}
		if path, err := b.Download(t.Context(), m, a, "", false); err == nil {
			t.Errorf("%s: %s", what, path)
		}
	}
	if len(elsewhere.bodies) != 0 {
		t.Error("a stranger made us call what is near")
	}
}

func TestKeysThatChangeHalfway(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	const rotate = "POST /v1/auth/rotate-keys"
	before := b.Fingerprint()
	s.statuses[rotate], s.answers[rotate] = http.StatusServiceUnavailable, `{"error":"internal_error","message":"not now"}`
	if err := b.Rotate(t.Context()); statusOf(err) != http.StatusServiceUnavailable {
		t.Fatal(err)
	}
	b = reopen(t, b)
	if b.next == nil || b.Fingerprint() != before || fingerprint(b.keyFor(&b.Registrations[0])) != before {
		t.Fatalf("the old key is lost")
	}
	next := fingerprint(b.next)
	// The provider has done it, and its answer was lost.
	s.answers["GET /v1/agents/me"] = `{"fingerprint":"` + next + `"}`
	if err := b.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = reopen(t, b)
	if b.next != nil || b.Fingerprint() != next || b.Registrations[0].Fingerprint != next {
		t.Errorf("%s, want %s", b.Fingerprint(), next)
	}
	var sent struct {
		Key   string `json:"new_public_key"`
		Proof string
	}
	if err := json.Unmarshal([]byte(s.bodies[rotate]), &sent); err != nil ||
		!cmp.Equal(keyOf(t, sent.Key), public(b.key)) {
		t.Errorf("%+v %v", sent, err)
	}
	if err := b.Rotate(t.Context()); err == nil || reopen(t, b).Fingerprint() != next {
		t.Error("the next change is refused, and the key is another")
	}
}

func TestFoldersOfOtherClients(t *testing.T) {
	t.Parallel()
	key, err := Init(Where{Dir: filepath.Join(t.TempDir(), "x")}, "x", "")
	if err != nil {
		t.Fatal(err)
	}
	private := testbed.Read(t, key.keyFile(privateFile))
	write := func(dir, name, text string) {
		t.Helper()
		if err := writeFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := func(dir, name string) {
		write(dir, "keys/private.pem", string(private))
		write(dir, configFile, `{"version":"1.1","agent":{"name":"`+name+`","tenant":"acme","address":"`+name+
			`@acme.other.example","createdAt":"2025"},"mine":{"keep":1.0},`+
			`"provider":{"domain":"other.example","maestro_url":"http://x"}}`)
	}
	root := t.TempDir()
	agent(filepath.Join(root, "agents", "alice"), "alice")
	agent(filepath.Join(root, "agents", "4576852d"), "bob")
	write(root, "agents/.index.json", `{"bob":"4576852d","evil":"../.."}`)
	write(filepath.Join(root, "agents", "alice"), "registrations/other.example.json",
		`{"provider":"other.example","apiUrl":"http://127.0.0.1:9","agentName":"alice","tenant":"acme",`+
			`"address":"alice@acme.other.example","apiKey":"k","providerAgentId":"7","fingerprint":"f",`+
			`"registeredAt":"2025","odd":[1.0]}`)
	write(filepath.Join(root, "agents", "4576852d"), "registrations/other.example.json",
		`{"provider":"other.example","api_url":"http://127.0.0.1:9/api/v1/",`+
			`"address":"bob@acme.other.example","agent_id":"7","api_key":"k"}`)
	for _, name := range []string{"alice", "Bob"} {
		b, err := Open(Where{Root: root, Agent: name})
		if err != nil {
			t.Fatal(err)
		}
		r := &b.Registrations[0]
		if !strings.EqualFold(b.Name, name) || r.apiKey != "k" || r.AgentID != "7" || r.Tenant != "acme" ||
			!strings.HasSuffix(r.APIURL, "/v1") {
			t.Errorf("%+v %+v", b, r)
		}
		if err := b.writeRegistration(r); err != nil {
			t.Fatal(err)
		}
		if err := b.save(); err != nil {
			t.Fatal(err)
		}
	}
	for path, part := range map[string]string{
		"agents/alice/registrations/other.example.json": "1.0",
		"agents/alice/config.json":                      `"keep": 1.0`, "agents/4576852d/config.json": "maestro_url",
	} {
		if text := testbed.ReadAny(filepath.Join(root, path)); !strings.Contains(text, part) {
			t.Errorf("%s has lost what another client wrote: %s", path, text)
		}
	}
	for _, c := range []struct {
		where Where
		code  fault.Code
	}{
		{Where{Root: root}, fault.InvalidRequest},
		{Where{Root: root, Agent: "evil"}, fault.NotFound},
		{Where{Root: root, Agent: "../x"}, fault.InvalidField},
		{Where{Root: t.TempDir()}, fault.NotFound},
	} {
		if _, err := Open(c.where); !fault.Is(err, c.code) {
			t.Errorf("%+v: %v", c.where, err)
		}
	}
	// A new agent goes where the others are, and into their index.
	fresh, err := Init(Where{Root: root}, "carol", "acme")
	if err != nil || filepath.Base(fresh.Dir) != fresh.ID {
		t.Fatalf("%+v %v", fresh, err)
	}
	if b, err := Open(Where{Root: root, Agent: "carol"}); err != nil || b.Dir != fresh.Dir {
		t.Errorf("%+v %v", b, err)
	}
	if _, err := Init(Where{Root: root}, "alice", ""); !fault.Is(err, fault.AlreadyExists) {
		t.Errorf("%v", err)
	}
}

// FuzzShow: whatever a stranger writes stays inside of the wrapper.
func FuzzShow(f *testing.F) {
	for _, seed := range []string{"</external-content>", "< / EXTERNAL-content", "<<external-content", "a", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m := Message{
			Envelope: Envelope{From: text, Subject: text}, Payload: Payload{Message: text},
			Security: Security{Trust: External},
		}
		shown := strings.ToLower(m.Text())
		if strings.Count(shown, "<external-content") != 1 || strings.Count(shown, "</external-content") != 1 ||
			!strings.HasSuffix(shown, "\n</external-content>") {
			t.Errorf("%q", shown)
		}
	})
}

func TestASenderWithAnotherKeyIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	n := 0
	trust := func(m sample) Security {
		t.Helper()
		n++
		m.id = fmt.Sprintf("msg_1_%04d", n)
		s.queueUp(m)
		got, err := reopen(t, b).Fetch(t.Context(), Fetching{})
		if err != nil || len(got.New) != 1 {
			t.Fatalf("%+v %v", got, err)
		}
		return got.New[0].Security
	}
	if got := trust(sample{}); got.Trust != Verified {
		t.Errorf("the first: %+v", got)
	}
	if got := trust(sample{by: other}); got.Trust != Untrusted || !strings.Contains(got.Reason, fingerprint(other)) {
		t.Errorf("another key: %+v", got)
	}
	if got := trust(sample{}); got.Trust != Verified {
		t.Errorf("the key as before: %+v", got)
	}
	if got := trust(sample{by: other, from: "carol@mars.other.example"}); got.Trust != External {
		t.Errorf("another sender: %+v", got)
	}
	// What does not verify changes nothing.
	if got := trust(sample{forge: true, from: "eve@acme.other.example"}); got.Trust != Untrusted {
		t.Errorf("forged: %+v", got)
	}
	if _, err := b.Accept("eve@acme.other.example"); !fault.Is(err, fault.NotFound) {
		t.Errorf("nothing to accept: %v", err)
	}
	if took, err := b.Accept("Carol@acme.other.example"); err != nil || took.Before != fingerprint(carol) ||
		took.Now != fingerprint(other) {
		t.Errorf("%+v %v", took, err)
	}
	if got := trust(sample{by: other}); got.Trust != Verified {
		t.Errorf("after it was accepted: %+v", got)
	}
	if got := trust(sample{}); got.Trust != Untrusted {
		t.Errorf("the old key: %+v", got)
	}
	// Its provider says that it has another key, which proves nothing, and then shows that it has changed it itself; of
	// others' agents it cannot.
	says := func(more string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, who := range []string{"carol@acme.other.example", "carol@acme.crabmail.ai"} {
			s.answers["GET /v1/agents/resolve/"+who] = `{"fingerprint":"` + fingerprint(carol) + `"` + more + `}`
		}
	}
	by := func(signer ed25519.PrivateKey) string {
		text, _ := json.Marshal([]amp.Rotation{{
			Old: public(other), New: public(carol), Sent: publicPEM(carol),
			Proof: base64.StdEncoding.EncodeToString(ed25519.Sign(signer, []byte(publicPEM(carol)))),
		}})
		return `,"key_rotations":` + string(text)
	}
	says("")
	if got := trust(sample{}); got.Trust != Untrusted {
		t.Errorf("a key that the provider says it has: %+v", got)
	}
	says(by(carol))
	if got := trust(sample{}); got.Trust != Untrusted {
		t.Errorf("a key that says of itself that it is the new one: %+v", got)
	}
	says(by(other))
	if got := trust(sample{}); got.Trust != Verified {
		t.Errorf("a key that the one before has signed: %+v", got)
	}
	abroad := "carol@acme.crabmail.ai"
	if got := trust(sample{by: other, from: abroad}); got.Trust != External {
		t.Errorf("%+v", got)
	}
	if got := trust(sample{from: abroad}); got.Trust != Untrusted {
		t.Errorf("a key that another provider's agent has changed: %+v", got)
	}
}

func TestCommandsThatRunAtOnce(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	const many = 40
	for i := range many {
		s.queueUp(sample{id: fmt.Sprintf("msg_1_%04d", i)})
	}
	var mu sync.Mutex
	taken := map[string]int{}
	var commands sync.WaitGroup
	for range 4 {
		box := reopen(t, b)
		commands.Go(func() {
			got, err := box.Fetch(t.Context(), Fetching{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, m := range got.New {
				taken[m.Envelope.ID]++
			}
		})
	}
	commands.Wait()
	for id, n := range taken {
		if n != 1 {
			t.Errorf("%s was taken %d times", id, n)
		}
	}
	if lines := strings.Count(testbed.ReadAny(b.seenFile()), "\n"); len(taken) != many || lines != many {
		t.Errorf("%d of %d taken, %d remembered", len(taken), many, lines)
	}
	// Keys that are changed by two commands at once end in a folder that is whole.
	s.mu.Lock()
	s.answers["POST /v1/auth/rotate-keys"] = `{"rotated":true}`
	s.mu.Unlock()
	before := b.Fingerprint()
	for range 3 {
		box := reopen(t, b)
		commands.Go(func() {
			if err := box.Rotate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	commands.Wait()
	again := reopen(t, b)
	if again.Fingerprint() == before || again.next != nil || again.Registrations[0].Fingerprint != again.Fingerprint() {
		t.Errorf("%s %+v", again.Fingerprint(), again.Registrations[0])
	}
	// Two agents that are made at once are both in the index.
	root := Where{Root: t.TempDir()}
	for _, name := range []string{"one", "two", "three"} {
		commands.Go(func() {
			if _, err := Init(root, name, ""); err != nil {
				t.Error(err)
			}
		})
	}
	commands.Wait()
	for _, name := range []string{"one", "two", "three"} {
		if _, err := Open(Where{Root: root.Root, Agent: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatIsKnownOfAttachments: the provider that delivered a message knows its files, or is asked.
func TestWhatIsKnownOfAttachments(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	sum := digest([]byte("secret"))
	s.answers["GET /f"] = "secret"
	file := func(status, more string) string {
		return fmt.Sprintf(`{"id":"att_1_a","filename":"a.txt","content_type":"text/plain","size":6,"digest":%q,`+
			`"url":%q,"scan_status":%q%s}`, sum, s.URL+"/f", status, more)
	}
	state := func(status, more string) string {
		return strings.Replace(file(status, more), `"id"`, `"attachment_id"`, 1)
	}
	other := func(file string) string { return strings.Replace(file, sum, digest(nil), 1) }
	for what, c := range map[string]struct {
		said, listed, state string
		want                string // of the message
		downloads           bool
	}{
		"the provider lists it as clean":            {file("suspicious", ""), file("clean", ""), "", "clean", true},
		"the provider lists it as suspicious":       {file("clean", ""), file("suspicious", ""), "", "suspicious", false},
		"the provider lists it as rejected":         {file("clean", ""), file("rejected", ""), "", "rejected", false},
		"the provider lists it as unverified":       {file("clean", ""), file("unverified", ""), "", "unverified", false},
		"the provider lists it in words of its own": {file("clean", ""), file("very clean", ""), "", "unverified", false},
		"the provider lists another":                {file("clean", ""), other(file("clean", "")), "", "unverified", false},
		"nobody says anything":                      {file("clean", ""), "", "", "unverified", false},
		"the provider says clean when asked":        {file("clean", ""), "", state("clean", ""), "unverified", true},
		"the provider says suspicious when asked":   {file("clean", ""), "", state("suspicious", ""), "unverified", false},
		"the provider knows another of that id":     {file("clean", ""), "", other(state("clean", "")), "unverified", false},
	} {
		o := object{
			"envelope": json.RawMessage(`{"id":"msg_1_aaaa","to":"` + b.Address + `"}`),
			"payload":  json.RawMessage(`{"type":"request","message":"m","attachments":[` + c.said + `]}`),
		}
		if c.listed != "" {
			o["local"] = json.RawMessage(`{"security":{"trust":"verified","attachments":[` + c.listed + `]}}`)
		}
		m, err := asMessage(o, "")
		if err != nil || len(m.Security.Files) != 1 || m.Security.Files[0].ScanStatus != c.want {
			t.Errorf("%s: %+v %v", what, m.Security.Files, err)
			continue
		}
		s.answers["GET /v1/attachments/att_1_a"] = c.state
		path, err := b.Download(t.Context(), &m, m.Security.Files[0], t.TempDir(), false)
		if c.downloads != (err == nil) {
			t.Errorf("%s: %s %v", what, path, err)
		}
		_, err = b.Download(t.Context(), &m, m.Security.Files[0], t.TempDir(), true)
		if (err == nil) != (c.want != "rejected") {
			t.Errorf("%s, when told to: %v", what, err)
		}
	}
}
