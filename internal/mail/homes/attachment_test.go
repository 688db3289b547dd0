package homes_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/mail"
	"signalbox/internal/mail/mailtest"
)

// TestAFileOfAnotherHostIsFetchedThroughOnesOwn: over a mesh whose hosts speak http, by the recipient and nobody else.
func TestAFileOfAnotherHostIsFetchedThroughOnesOwn(t *testing.T) {
	eachMesh(t, 2, func(t *testing.T, m *mailtest.Mesh) {
		a, b := m.Start(0), m.Start(1)
		ann, ben, eve := a.Register("ann", "acme"), b.Register("ben", "acme"), b.Register("eve", "acme")
		text := "4711,119.00"
		sum := sha256.Sum256([]byte(text))
		digest := "sha256:" + hex.EncodeToString(sum[:])
		var at struct {
			ID  string `json:"attachment_id"`
			URL string `json:"upload_url"`
		}
		a.Want(201, ann.APIKey, "POST /v1/attachments/upload", fmt.Sprintf(
			`{"filename":"a.csv","content_type":"text/csv","size":%d,"digest":%q}`, len(text), digest), &at)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, at.URL, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		_ = res.Body.Close()
		var file struct{ URL string }
		a.Want(200, ann.APIKey, "POST /v1/attachments/"+at.ID+"/confirm", "", &file)
		var sent mail.Answer
		a.Want(200, ann.APIKey, "POST /v1/route", fmt.Sprintf(`{"to":%q,"subject":"s","payload":{"type":"request",`+
			`"message":"m","attachments":[{"id":%q,"filename":"a.csv","content_type":"text/csv","size":%d,"digest":%q,`+
			`"url":%q,"scan_status":"clean"}]}}`, ben.Address, at.ID, len(text), digest, file.URL), &sent)
		path := "GET /v1/attachments/" + at.ID + "/download"
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
			if file.URL == "" || strings.Contains(page, file.URL) != has || !strings.Contains(page, digest) {
				t.Errorf("%s, with %q: %s", where, file.URL, page)
			}
		}
		if status, got := b.Call(eve.APIKey, path, "", nil); status != 404 {
			t.Errorf("another agent: %d %s", status, got)
		}
		// Another host, and one without a proof, get nothing of it.
		b.Stop()
		stranger := hostile{t, "host-b", func(int) string { return "another secret, as long" }}
		body := fmt.Appendf(nil, `{"to":"host-a","id":%q}`, at.ID)
		if status, code := stranger.calls(a, 0, "/v1/mesh/attachment", nil, body); status != 401 {
			t.Errorf("a stranger: %d %s", status, code)
		}
		a.WantClean()
	})
}
