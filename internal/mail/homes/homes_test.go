package homes_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// eachMesh runs a test with a mesh of so many hosts, on every kind of database: each host has one of its own.
func eachMesh(t *testing.T, hosts int, test func(t *testing.T, m *mailtest.Mesh)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		databases := []string{address}
		for len(databases) < hosts {
			if strings.HasPrefix(address, "postgres") {
				databases = append(databases, storetest.Postgres(t))
			} else {
				databases = append(databases, storetest.SQLite(t))
			}
		}
		test(t, mailtest.NewMesh(t, databases...))
	})
}

// tries registers a name, and returns the status and the code of the answer.
func tries(n *mailtest.Node, name string) (status int, code string) {
	_, private, _ := ed25519.GenerateKey(nil)
	status, text := n.Call("", "POST /v1/register", mailtest.Registration(name, "acme", private, ""), nil)
	var answer struct{ Error string }
	_ = json.Unmarshal([]byte(text), &answer)
	return status, answer.Error
}

// wantTaken checks that hosts refuse a name.
func wantTaken(t *testing.T, name string, hosts ...*mailtest.Node) {
	t.Helper()
	for i, n := range hosts {
		if status, code := tries(n, name); status != 409 || code != string(fault.NameTaken) {
			t.Errorf("host %d: %s: %d %s, want 409", i, name, status, code)
		}
	}
}

// claimed reports whether the registrar has decided about a name.
func claimed(n *mailtest.Node, name string) bool {
	return slices.ContainsFunc(n.Entries("address.claimed"), func(e ledger.Entry) bool {
		return e.Subject == name+"@acme.signalbox.local"
	})
}

// suspended reports whether an agent is.
func suspended(a *mailtest.Agent) bool { return a.Who().Suspended }

func TestANameIsTakenOnEveryHostOfAMesh(t *testing.T) {
	eachMesh(t, 3, func(t *testing.T, m *mailtest.Mesh) {
		a, b, c := m.Start(0), m.Start(1), m.Start(2)
		alice := b.Register("alice", "acme")
		wantTaken(t, "alice", a, c)
		a.Register("albert", "acme") // at the registrar itself
		wantTaken(t, "albert", b, c)
		a.Register("alice", "other") // another tenant is another address
		if status, code := tries(b, "alice"); status != 409 || code != string(fault.NameTaken) {
			t.Errorf("on its own host: %d %s", status, code)
		}
		// What is refused where it is tried takes the name away from nobody.
		key := mailtest.Registration("carl", "acme", alice.Private, "")
		b.Want(409, "", "POST /v1/register", key, nil)
		c.Register("carl", "acme")
		a.WantClean()
		b.WantClean()
		c.WantClean()
	})
}

func TestOfTwoHostsThatRegisterANameAtOnceOneWins(t *testing.T) {
	t.Parallel()
	m := mailtest.NewMesh(t, storetest.SQLite(t), storetest.SQLite(t), storetest.SQLite(t))
	hosts := []*mailtest.Node{m.Start(0), m.Start(1), m.Start(2)}
	for _, name := range []string{"ann", "ben", "cid", "dan"} {
		statuses := make([]int, len(hosts))
		testbed.AtOnce(len(hosts), func(i int) { statuses[i], _ = tries(hosts[i], name) })
		won := 0
		for _, status := range statuses {
			if status == 201 {
				won++
			} else if status != 409 {
				t.Errorf("%s: %v", name, statuses)
			}
		}
		if won != 1 {
			t.Errorf("%s: %v, want one 201", name, statuses)
		}
	}
}

// TestWithoutTheRegistrarOneOfTwoThatRegisterAtOnceWins: no ledger decides then, and each asks the other one. What is
// registered is claimed when the registrar is back, and nobody is suspended.
func TestWithoutTheRegistrarOneOfTwoThatRegisterAtOnceWins(t *testing.T) {
	eachMesh(t, 3, func(t *testing.T, m *mailtest.Mesh) {
		hosts := []*mailtest.Node{m.Start(1), m.Start(2)}
		names := []string{"ann", "ben", "cid", "dan", "eli", "fay"}
		for _, name := range names {
			statuses := make([]int, len(hosts))
			testbed.AtOnce(len(hosts), func(i int) { statuses[i], _ = tries(hosts[i], name) })
			slices.Sort(statuses)
			if !slices.Equal(statuses, []int{201, 409}) {
				t.Errorf("%s: %v, want one 201", name, statuses)
			}
			wantTaken(t, name, hosts...)
		}
		// A registration that fails for another reason takes the name away from nobody.
		gus := hosts[0].Register("gus", "acme")
		hosts[0].Want(409, "", "POST /v1/register", mailtest.Registration("hal", "acme", gus.Private, ""), nil)
		hosts[1].Register("hal", "acme")
		a := m.Start(0)
		for _, name := range append(names, "gus", "hal") {
			testbed.Until(t, "the claim of "+name, func() bool { return claimed(a, name) })
		}
		for _, n := range hosts {
			if open, err := n.Alarms.List(t.Context(), false); err != nil || len(open) != 0 {
				t.Errorf("%+v %v", open, err)
			}
			n.WantClean()
		}
	})
}

// TestWithoutTheRegistrarMailFindsAnAgentThatAnotherHostHas: one of which the sender's host has not heard.
func TestWithoutTheRegistrarMailFindsAnAgentThatAnotherHostHas(t *testing.T) {
	eachMesh(t, 3, func(t *testing.T, m *mailtest.Mesh) {
		b, c := m.Start(1), m.Start(2)
		bob, carol := b.Register("bob", "acme"), c.Register("carol", "acme")
		if sent := bob.Send(carol.Address, "Hello", "who are you"); sent.Status != mail.Delivered || sent.RemoteHost != "host-c" ||
			len(carol.Inbox()) != 1 {
			t.Errorf("%+v", sent)
		}
		// Who asks where somebody is does not keep the name.
		_, err := b.Mail.Route(t.Context(), bob.Who(), bob.Letter("nobody@acme.signalbox.local", "s", "m", ""))
		if mailtest.Code(err) != fault.HostUnavailable {
			t.Errorf("an agent that none of those that answer has: %v", err)
		}
		c.Register("nobody", "acme")
		b.WantClean()
	})
}

// TestTheNamesOfAHostThatIsDownStayTaken: those of the registrar and those of another one, also after a restart of who
// is asked.
func TestTheNamesOfAHostThatIsDownStayTaken(t *testing.T) {
	eachMesh(t, 3, func(t *testing.T, m *mailtest.Mesh) {
		a, b, c := m.Start(0), m.Start(1), m.Start(2)
		a.Register("amy", "acme")
		bea := b.Register("bea", "acme")
		a.Stop()
		c.Stop()
		c = m.Start(2)
		wantTaken(t, "amy", b, c)
		wantTaken(t, "bea", c)
		if status, _ := tries(b, "new"); status != 201 {
			t.Errorf("a name that nobody has, while the registrar is down: %d", status)
		}
		wantTaken(t, "new", c) // b is there and has it, though nobody has decided
		// Mail to an agent of the host that is down waits, and arrives.
		sent := bea.Send("amy@acme.signalbox.local", "Hello", "while you were away")
		if sent.Status != mail.Queued || sent.RemoteHost != "host-a" {
			t.Errorf("%+v", sent)
		}
		c.Stop()
		a = m.Start(0)
		testbed.Until(t, "the message", func() bool { return b.Shown(sent.ID).Status != mail.Queued })
		if got := b.Shown(sent.ID); got.Status != mail.Acknowledged {
			t.Errorf("%+v %s", got, b.Newest("message.failed").Body)
		}
		testbed.Until(t, "the claim", func() bool { return claimed(a, "new") })
		a.WantClean()
		b.WantClean()
	})
}

// TestWhoWasSecondDuringASplitIsSuspended: two hosts register a name while they do not see the registrar; the first in
// its ledger wins.
func TestWhoWasSecondDuringASplitIsSuspended(t *testing.T) {
	eachMesh(t, 3, func(t *testing.T, m *mailtest.Mesh) {
		a, b := m.Start(0), m.Start(1)
		bob, carl := b.Register("bob", "acme"), a.Register("carl", "acme")
		a.Stop() // it is alone, and so is each of the others
		first := b.Register("ann", "acme")
		b.Stop()
		c := m.Start(2)
		second := c.Register("ann", "acme")
		c.Stop()
		a, b = m.Start(0), m.Start(1)
		testbed.Until(t, "the first claim", func() bool { return claimed(a, "ann") })
		c = m.Start(2)
		second.Node, first.Node, bob.Node, carl.Node = c, b, b, a
		testbed.Until(t, "the suspension", func() bool { return suspended(second) })
		if suspended(first) {
			t.Error("the first one is suspended too")
		}
		status, text := c.Call(second.APIKey, "GET /v1/messages/pending", "", nil)
		if status != 403 || !strings.Contains(text, "host-b") {
			t.Errorf("what it is told: %d %s", status, text)
		}
		if open, err := c.Alarms.List(t.Context(), false); err != nil || len(open) != 1 || open[0].Kind != "address_lost" {
			t.Errorf("%+v %v", open, err)
		}
		// Mail to the name goes to who has it, from the host that had it too.
		dora := c.Register("dora", "acme")
		if sent := dora.Send(first.Address, "Hello", "to the first"); sent.Status != mail.Delivered || len(first.Inbox()) != 1 {
			t.Errorf("%+v", sent)
		}
		if sent := first.Send(dora.Address, "Hello", "from the first"); sent.Status != mail.Delivered ||
			dora.Mailbox()[0].Local.Security.Trust != mail.Verified {
			t.Errorf("%+v %+v", sent, dora.Mailbox())
		}
		// An operator who resumes it cannot give it the name.
		token, _ := c.Operator("ines")
		c.Want(200, token, "POST /v1/agents/"+second.AgentID+"/unsuspend", "{}", nil)
		testbed.Until(t, "the suspension again", func() bool { return suspended(second) })
		a.WantClean()
		b.WantClean()
		c.WantClean()
	})
}

func TestAgentsThatWereThereBeforeTheMeshAreClaimed(t *testing.T) {
	t.Parallel()
	first, second := storetest.SQLite(t), storetest.SQLite(t)
	one, two := mailtest.Start(t, first), mailtest.Start(t, second)
	one.Register("ann", "acme")
	two.Register("ben", "acme")
	twin := two.Register("ann", "acme")
	one.Stop()
	two.Stop()
	m := mailtest.NewMesh(t, first, second)
	one = m.Start(0)
	testbed.Until(t, "its own claim", func() bool { return len(one.Entries("address.claimed")) == 1 })
	two = m.Start(1)
	twin.Node = two
	testbed.Until(t, "the suspension", func() bool { return suspended(twin) })
	testbed.Until(t, "the claim", func() bool { return claimed(one, "ben") })
	one.WantClean()
	two.WantClean()
}

// TestAnAgentThatAnOperatorAddsIsClaimed: it has no key, and another host may have its name.
func TestAnAgentThatAnOperatorAddsIsClaimed(t *testing.T) {
	t.Parallel()
	m := mailtest.NewMesh(t, storetest.SQLite(t), storetest.SQLite(t))
	a, b := m.Start(0), m.Start(1)
	b.Agent("worker")
	testbed.Until(t, "the claim", func() bool { return len(a.Entries("address.claimed")) == 1 })
	private := ed25519.NewKeyFromSeed(make([]byte, 32))
	body := mailtest.Registration("worker", "default", private, "")
	a.Want(409, "", "POST /v1/register", body, nil)
	token, _ := b.Operator("ines")
	b.Want(200, token, "POST /v1/register", body, nil) // its first key is claimed too
	testbed.Until(t, "the key", func() bool { return strings.Contains(string(a.Newest("address.claimed").Body), "SHA256:") })
	a.WantClean()
	b.WantClean()
}

// upload has an agent upload and confirm a file, and returns its id, where it can be fetched, and what else a message says
// about it.
func upload(a *mailtest.Agent, text string) (id, address, more string) {
	a.T.Helper()
	sum := sha256.Sum256([]byte(text))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	var at struct {
		ID  string `json:"attachment_id"`
		URL string `json:"upload_url"`
	}
	a.Want(201, a.APIKey, "POST /v1/attachments/upload", fmt.Sprintf(
		`{"filename":"a.csv","content_type":"text/csv","size":%d,"digest":%q}`, len(text), digest), &at)
	req, err := http.NewRequestWithContext(a.T.Context(), http.MethodPut, at.URL, strings.NewReader(text))
	if err != nil {
		a.T.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		a.T.Fatal(res, err)
	}
	_ = res.Body.Close()
	var file struct{ URL string }
	a.Want(200, a.APIKey, "POST /v1/attachments/"+at.ID+"/confirm", "", &file)
	return at.ID, file.URL, fmt.Sprintf(`,"content_type":"text/csv","digest":%q,"filename":"a.csv","scan_status":"clean","size":%d`,
		digest, len(text))
}

// TestAFileOfAnotherHostIsFetchedThroughOnesOwn: over a mesh whose hosts speak http, by the recipient and nobody else.
func TestAFileOfAnotherHostIsFetchedThroughOnesOwn(t *testing.T) {
	eachMesh(t, 2, func(t *testing.T, m *mailtest.Mesh) {
		a, b := m.Start(0), m.Start(1)
		ann, ben, eve := a.Register("ann", "acme"), b.Register("ben", "acme"), b.Register("eve", "acme")
		const text = "4711,119.00"
		id, at, more := upload(ann, text)
		var sent mail.Answer
		a.Want(200, ann.APIKey, "POST /v1/route", fmt.Sprintf(`{"to":%q,"subject":"s","payload":{"type":"request",`+
			`"message":"m","attachments":[{"id":%q,"url":%q%s}]}}`, ben.Address, id, at, more), &sent)
		path := "GET /v1/attachments/" + id + "/download"
		if sent.Status != mail.Delivered {
			t.Fatalf("%+v", sent)
		}
		if status, got := b.Call(ben.APIKey, path, "", nil); status != 200 || got != text {
			t.Errorf("its recipient: %d %s", status, got)
		}
		// As it was signed, the message names the sender's host. A client that leaves the verifying to us is not sent there.
		for where, has := range map[string]bool{"/v1": true, "/api/v1/as/aimaestro.local": false} {
			_, page := b.Call(ben.APIKey, "GET "+where+"/messages/pending", "", nil)
			if strings.Contains(page, `"from":"ann@acme.aimaestro.local"`) == has {
				t.Errorf("%s: another sender: %s", where, page)
			}
			_, page, _ = strings.Cut(page, `"payload"`)
			page, _, _ = strings.Cut(page, `"sender_public_key"`)
			if at == "" || strings.Contains(page, at) != has || !strings.Contains(page, `"sha256:`) {
				t.Errorf("%s, with %q: %s", where, at, page)
			}
		}
		if status, got := b.Call(eve.APIKey, path, "", nil); status != 404 {
			t.Errorf("another agent: %d %s", status, got)
		}
		// The state too: as its own host has recorded it, and without an address there.
		var state attachment.Status
		b.Want(200, ben.APIKey, "GET /v1/attachments/"+id, "", &state)
		if state.ID != id || state.ScanStatus != "clean" || !strings.Contains(more, state.Digest) || state.Size != int64(len(text)) ||
			state.URL != "" || state.ExpiresAt == "" {
			t.Errorf("%+v", state)
		}
		b.Want(404, eve.APIKey, "GET /v1/attachments/"+id, "", nil)
		// Naming the message is not needed, and a message without the file has none.
		b.Want(200, ben.APIKey, path+"?message="+sent.ID, "", nil)
		b.Want(404, ben.APIKey, path+"?message=msg_1_other", "", nil)
		a.Move(8 * 24 * time.Hour)
		b.Move(8 * 24 * time.Hour)
		if status, got := b.Call(ben.APIKey, "GET /v1/attachments/"+id, "", nil); status != 410 {
			t.Errorf("after its time: %d %s", status, got)
		}
		// Another host, and one without a proof, get nothing of it.
		b.Stop()
		stranger := hostile{t, "host-b", func(int) string { return "another secret, as long" }}
		body := fmt.Appendf(nil, `{"to":"host-a","id":%q}`, id)
		if status, code := stranger.calls(a, 0, "/v1/mesh/attachment", nil, body); status != 401 {
			t.Errorf("a stranger: %d %s", status, code)
		}
		a.WantClean()
	})
}

// A host names the file of another host in a message of its own, under an id that sorts before that of the real one, or
// in so many that the real one is not looked at.
func TestAHostCannotRedirectTheDownloadOfAnothersFile(t *testing.T) {
	t.Parallel()
	m := mailtest.NewMesh(t, storetest.SQLite(t), storetest.SQLite(t), storetest.SQLite(t))
	a, b := m.Start(0), m.Start(1)
	evil := hostile{t, m.Name(2), func(to int) string { return m.Secret(to, 2) }}
	ann, ben := a.Register("ann", "acme"), b.Register("ben", "acme")
	zoe, key := "zoe@acme.signalbox.local", newKey()
	evil.claims(a, 0, zoe, key)
	id, _, more := upload(ann, "4711,119.00")
	var sent mail.Answer
	a.Want(200, ann.APIKey, "POST /v1/route", fmt.Sprintf(
		`{"to":%q,"subject":"s","payload":{"type":"request","message":"m","attachments":[{"id":%q%s}]}}`, ben.Address, id, more),
		&sent)
	payload := fmt.Sprintf(`{"attachments":[{%s,"id":%q}],"message":"see there","type":"request"}`, more[1:], id)
	for n := range 101 {
		if status, code := evil.sendsPayload(b, 1, fmt.Sprintf("msg_0_%d", n), zoe, ben.Address,
			strings.Replace(payload, "see there", fmt.Sprint("see there ", n), 1), key, ""); status != 200 {
			t.Fatal(status, code)
		}
	}
	path := "GET /v1/attachments/" + id + "/download"
	for _, query := range []string{"", "?message=" + sent.ID} {
		if status, got := b.Call(ben.APIKey, path+query, "", nil); status != 200 || got != "4711,119.00" {
			t.Errorf("%s: %d %s", query, status, got)
		}
	}
	b.Want(200, ben.APIKey, "GET /v1/attachments/"+id, "", nil)
	// The other message has no file: its host does not vouch for one of another's.
	b.Want(404, ben.APIKey, path+"?message=msg_0_7", "", nil)
}
