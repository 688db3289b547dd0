package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey/passkeytest"
	"signalbox/internal/server"
	"signalbox/internal/server/servertest"
	"signalbox/internal/testbed"
)

// asksPresence is a policy under which every signal waits for a signed vote.
const asksPresence = "version: 1\nrules:\n  - {name: signed, on: [signal], then: gate, gate: {presence: passkey}}\n"

func (b *box) setPolicy(text string) {
	b.t.Helper()
	if status, answer, _ := b.do(request{
		call: "PUT /ops/policy", token: b.token(), media: "application/yaml", body: text,
	}); status != 200 {
		b.t.Fatalf("%d %s", status, answer)
	}
}

// authenticator plugs a virtual authenticator into the tab, with the credentials of another.
func (p *tab) authenticator(credentials ...*webauthn.Credential) webauthn.AuthenticatorID {
	p.t.Helper()
	made, err := chromedp.Call(p.ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
			HasCmtgKey: true, // or it takes no credentials of another
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range credentials {
		c.ActiveCmtgKeyIndex = nil // of no keys
		if _, err := chromedp.Call(p.ctx, webauthn.AddCredential,
			webauthn.AddCredentialParams{AuthenticatorID: made.AuthenticatorID, Credential: c}); err != nil {
			p.t.Fatal(err)
		}
	}
	return made.AuthenticatorID
}

// unplug takes an authenticator out, and returns what it holds.
func (p *tab) unplug(id webauthn.AuthenticatorID) []*webauthn.Credential {
	p.t.Helper()
	held := p.credentials(id)
	if _, err := chromedp.Call(p.ctx, webauthn.RemoveVirtualAuthenticator,
		webauthn.RemoveVirtualAuthenticatorParams{AuthenticatorID: id}); err != nil {
		p.t.Fatal(err)
	}
	return held
}

func (p *tab) credentials(id webauthn.AuthenticatorID) []*webauthn.Credential {
	p.t.Helper()
	held, err := chromedp.Call(p.ctx, webauthn.GetCredentials, webauthn.GetCredentialsParams{AuthenticatorID: id})
	if err != nil {
		p.t.Fatal(err)
	}
	return held.Credentials
}

// enrol fills in the form of the account page.
func (p *tab) enrol(label string) {
	p.t.Helper()
	p.goTo("/ui/account")
	p.do(chromedp.SendKeys(chromedp.CSS("#label"), label), chromedp.Click(chromedp.CSS("#passkeys button.primary")))
}

// decide votes at the gate's page, as the button says.
func (p *tab) decide(id, button, note string) {
	p.t.Helper()
	p.goTo("/ui/inbox/" + id)
	p.until("the form is there", `document.querySelector('#decide')`)
	if note != "" {
		p.do(chromedp.SendKeys(chromedp.CSS("#note"), note))
	}
	p.do(chromedp.Click(chromedp.CSS("#decide button[value=" + button + "]")))
}

// statusOf is how a gate stands, and what was sent with its votes.
func (b *box) statusOf(id string) (g gate.Gate) {
	b.t.Helper()
	b.ops(200, "GET /ops/gates/"+id, "", &g)
	return g
}

// assertions are the signatures of votes, by gate.
func (b *box) assertions() map[string]string {
	b.t.Helper()
	var page struct {
		Entries []struct {
			Subject string
			Body    struct{ Assertion json.RawMessage }
		}
	}
	b.ops(200, "GET /ops/ledger?kind=gate.voted&limit=100", "", &page)
	all := map[string]string{}
	for _, e := range page.Entries {
		all[e.Subject] = string(e.Body.Assertion)
	}
	return all
}

func TestAVoteIsSignedInTheBrowser(t *testing.T) {
	t.Parallel()
	b, key, ann := startWriter(t)
	b.setPolicy(asksPresence)
	p := b.tab(t, chromium(t), ann)
	if _, err := chromedp.Call(p.ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	laptop := p.authenticator()
	n := 0
	ask := func(action string) string { n++; return b.ask(key, "writer", fmt.Sprintf("run-%d", n), action) }
	refused := func(name, says, call, body string) {
		t.Helper()
		if status, answer, _ := b.do(request{call: call, token: ann, body: body}); status != 403 ||
			!strings.Contains(answer, says) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	first := ask("Pay 10")
	refused("without a key", "/ui/account", "POST /ops/gates/"+first+"/approve", "")

	p.enrol("laptop")
	p.until("it is enrolled", p.has("The passkey is enrolled."))
	p.until("people are told", p.has("A first passkey was enrolled for ann"))
	p.shot("account")
	refused("the token alone", `"error":"presence_required"`, "POST /ops/gates/"+first+"/approve", "")
	refused("a rejection by the token alone", b.url+"/ui/inbox/"+first, "POST /ops/gates/"+first+"/reject",
		`{"note":"no"}`)

	p.decide(first, "approve", "Fine.\nBut once.")
	p.until("it is approved", p.has("Approved: Pay 10"))
	p.shot("signed")
	if g := b.statusOf(first); g.Status != gate.Approved || g.Votes[0].Passkey == "" || g.Note != "Fine.\nBut once." {
		t.Errorf("%+v", g)
	}
	second, third := ask("Pay 20"), ask("Pay 30")
	p.decide(second, "reject", "Too much.")
	p.until("it is rejected", p.has("Rejected: Pay 20"))

	signed := b.assertions()
	for name, body := range map[string]string{
		"that of another gate": `{"note":"Fine.\nBut once.","assertion":` + signed[first] + `}`,
		"that of a rejection":  `{"note":"Too much.","assertion":` + signed[second] + `}`,
	} {
		refused(name, `"error":"presence_invalid"`, "POST /ops/gates/"+third+"/approve", body)
	}
	anns := b.signedIn(ann)
	if page := anns.vote(third, url.Values{"do": {"approve"}}); !strings.Contains(page, "Decide it in a browser") {
		t.Error("a form without a signature:", page)
	}
	if _, page, _ := anns.post("/ui/inbox/bulk", url.Values{"do": {"approve"}, "gate": {third}}); !strings.Contains(
		page, "takes the signature of a passkey") {
		t.Error("in bulk:", page)
	}

	t.Run("nobody is recognised", func(t *testing.T) {
		verified := func(yes bool) {
			if _, err := chromedp.Call(p.ctx, webauthn.SetUserVerified,
				webauthn.SetUserVerifiedParams{AuthenticatorID: laptop, IsUserVerified: yes}); err != nil {
				t.Fatal(err)
			}
		}
		verified(false)
		p.decide(third, "approve", "")
		p.until("it says so", p.has("No passkey has signed this"))
		verified(true)
		yes := true
		if _, err := chromedp.Call(p.ctx, webauthn.SetResponseOverrideBits,
			webauthn.SetResponseOverrideBitsParams{AuthenticatorID: laptop, IsBadUV: &yes}); err != nil {
			t.Fatal(err)
		}
		p.decide(third, "approve", "")
		p.until("the server says so", p.has("by somebody whom it recognised"))
		if _, err := chromedp.Call(p.ctx, webauthn.SetResponseOverrideBits,
			webauthn.SetResponseOverrideBitsParams{AuthenticatorID: laptop}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a copy", func(t *testing.T) {
		held := p.credentials(laptop)[0]
		count := func(n float64) {
			if _, err := chromedp.Call(p.ctx, webauthn.SetCredentialProperties, webauthn.SetCredentialPropertiesParams{
				AuthenticatorID: laptop, CredentialID: held.CredentialID, SignCount: &n,
			}); err != nil {
				t.Fatal(err)
			}
		}
		count(0)
		p.decide(third, "approve", "")
		p.until("it is refused", p.has("there is a copy of it"))
		p.until("people are told", p.has("There is a copy of a passkey of ann"))
		count(held.SignCount + 10)
	})
	if g := b.statusOf(third); g.Status != gate.Pending || len(g.Votes) != 0 {
		t.Errorf("%+v", g)
	}

	t.Run("a second key is signed for by the first, and removes it", func(t *testing.T) {
		// Who has the session makes a key in a program of their own.
		own := passkeytest.New("localhost", b.url)
		v := b.signedIn(ann)
		_, answer, _ := v.post("/ui/account/passkey", url.Values{"do": {"add"}, "label": {"own"}, "ask": {"1"}})
		var asked struct{ Create struct{ Challenge string } }
		if err := json.Unmarshal([]byte(answer), &asked); err != nil {
			t.Fatal(answer)
		}
		made, err := json.Marshal(own.Create(asked.Create.Challenge))
		if err != nil {
			t.Fatal(err)
		}
		form := url.Values{"do": {"add"}, "label": {"own"}, "made": {string(made)}}
		before := b.head()
		if _, answer, _ = v.post("/ui/account/passkey", form); !strings.HasPrefix(answer, `{"sign":{`) || b.head() != before {
			t.Errorf("%s, and %d entries", answer, b.head()-before)
		}

		// A person has the first one sign: here it is not plugged in before the second was made.
		held := p.unplug(laptop)
		phone := p.authenticator()
		p.goTo("/ui/account")
		look[bool](p, `(() => { const get = navigator.credentials.get.bind(navigator.credentials);
navigator.credentials.get = async (o) => {
  while (!window.plugged) await new Promise((r) => setTimeout(r, 20));
  return get(o);
};
return true; })()`)
		p.do(chromedp.SendKeys(chromedp.CSS("#label"), "phone"), chromedp.Click(chromedp.CSS("#passkeys button.primary")))
		p.until("the second is made", `document.querySelector('#passkeys input[name=made]')`)
		second := p.unplug(phone)
		laptop = p.authenticator(held...)
		look[bool](p, "window.plugged = true")
		listed := ` && document.querySelectorAll('#passkeys li').length === `
		p.until("it is enrolled", p.has("The passkey is enrolled.")+listed+"2")

		p.unplug(laptop)
		phone = p.authenticator(second...)
		p.goTo("/ui/account")
		p.do(chromedp.Click(chromedp.CSS("#passkeys li:first-child button")))
		p.until("the first is removed", p.has("The passkey is removed.")+listed+"1")
		second = p.unplug(phone) // with its counter
		laptop = p.authenticator(held...)
		p.decide(third, "approve", "")
		p.until("it signs nothing any more", p.has("No passkey has signed this"))
		p.unplug(laptop)
		p.authenticator(second...)
		p.decide(third, "approve", "")
		p.until("the second does", p.has("Approved: Pay 30"))
	})

	t.Run("127.0.0.1 works, but for passkeys", func(t *testing.T) {
		number := strings.Replace(b.url, "localhost", "127.0.0.1", 1)
		if number == b.url || !strings.HasPrefix(b.loginURL(ann), "http://localhost:") {
			t.Fatal(b.url)
		}
		// A session of its own: cookies belong to a name.
		p.do(chromedp.Navigate(strings.Replace(b.loginURL(ann), b.url, number, 1)),
			chromedp.Click(chromedp.CSS("form[action='/ui/login/code'] button")))
		p.until("the inbox is there", `document.querySelector('.list h1')?.textContent === 'Inbox'`)
		p.do(chromedp.Navigate(number + "/ui/inbox/" + ask("Pay 40")))
		p.until("the form is there", `document.querySelector('#decide')`)
		p.do(chromedp.Click(chromedp.CSS("#approve")))
		p.until("it says where", p.has("Passkeys work at "+b.url))
	})

	t.Run("an export says who signed", func(t *testing.T) {
		_, file, _ := b.do(request{call: "GET /ops/ledger/export", token: b.token()})
		public := testbed.Read(t, filepath.Join(b.config.Data, ledger.PublicKeyFile))
		s := gate.NewSignatures(first)
		watch := ledger.Watch{Entry: s.Entry}
		if _, err := ledger.VerifyExport(strings.NewReader(file), string(public), nil, watch); err != nil ||
			s.Verified != 3 || len(s.Votes) != 1 || s.Votes[0].Result != gate.SignedVerified {
			t.Errorf("%+v %v", s, err)
		}
		// One byte of a vote.
		lines := bytes.Split([]byte(file), []byte("\n"))
		for _, line := range lines {
			if bytes.Contains(line, []byte(`"kind":"gate.voted"`)) {
				if at := len(line) - 40; line[at] == 'A' {
					line[at] = 'B'
				} else {
					line[at] = 'A'
				}
				break
			}
		}
		if _, err := ledger.VerifyExport(bytes.NewReader(bytes.Join(lines, []byte("\n"))), string(public), nil,
			ledger.Watch{Entry: gate.NewSignatures("").Entry}); err == nil {
			t.Error("an export with another byte verifies")
		}
	})
	// Nothing of that is taken for tampering: votes move the counters of passkeys on.
	if s := b.awaitAudit(); s.Problem != "" || len(s.Findings) > 0 {
		t.Errorf("the audit: %+v", s)
	}
	b.wantRebuilt(10)

	t.Run("lost keys are forgotten while the server is stopped", func(t *testing.T) {
		if _, err := server.ForgetPasskeys(t.Context(), b.config, "ann"); err == nil {
			t.Error("the server runs")
		}
		b.stop()
		if count, err := server.ForgetPasskeys(t.Context(), b.config, "ann"); count != 1 || err != nil {
			t.Fatal(count, err)
		}
		again := &box{Box: b.Again(), t: t}
		_, answer, _ := again.do(request{call: "GET /ops/alarms", token: again.Token()})
		if !strings.Contains(answer, "The passkeys of ann were forgotten") {
			t.Error(answer)
		}
	})

}

// Whoever listens on the other half of localhost could show people one gate and have them sign for another.
func TestLocalhostIsOursOrIsNotUsed(t *testing.T) {
	t.Parallel()
	b := start(t, "", nil)
	_, port, _ := strings.Cut(b.url, "http://localhost:")
	if port == "" {
		t.Fatal(b.url)
	}
	hosts := []string{"localhost", "127.0.0.1"}
	stranger, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp6", "[::1]:0")
	if err == nil { // the machine has IPv6
		hosts = append(hosts, "[::1]")
		defer func() { _ = stranger.Close() }()
		taken := stranger.Addr().(*net.TCPAddr).Port
		if other := start(t, "", map[string]string{"listen": fmt.Sprintf("127.0.0.1:%d", taken)}); other.url !=
			fmt.Sprintf("http://127.0.0.1:%d", taken) {
			t.Errorf("people are sent to %s, where somebody else listens", other.url)
		}
	}
	for _, host := range hosts {
		at := &box{Box: &servertest.Box{T: t, URL: "http://" + host + ":" + port, Client: b.client}, t: t}
		if status, answer, _ := at.do(request{call: "GET /ui/login"}); status != 200 {
			t.Errorf("%s: %d %s", host, status, answer)
		}
	}
}
