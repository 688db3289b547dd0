package homes_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/internal/mail"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/store/storetest"
)

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
