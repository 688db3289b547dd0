package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"signalbox/internal/gate"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// withArtifact has an agent ask with an artifact, and returns the gate.
func (b *box) withArtifact(key, run, kind, content string) (id string) {
	b.t.Helper()
	status, answer, _ := b.do(request{call: "POST /amp/signal", token: key, body: strings.Replace(
		ampSignal("writer", run), `"summary":`, `"artifacts":[{"type":"`+kind+`","content":`+
			string(wire.AppendText(nil, content))+`}],"summary":`, 1)})
	var made struct {
		ID string `json:"gate_id"`
	}
	if wire.UnmarshalPart([]byte(answer), &made) != nil || made.ID == "" {
		b.t.Fatalf("%d %.300s", status, answer)
	}
	return made.ID
}

// gated has everything wait for a person.
func (b *box) gated() {
	b.t.Helper()
	b.ops(200, "PUT /ops/proxy/keys/anthropic", `{"key":"sk-ant-of-a-test"}`, nil)
	b.ops(200, "PUT /ops/policy", `version: 1
rules:
  - {name: risky, on: [signal], when: 'event.payload.run_id.startsWith("risky")', then: gate, gate: {risk: high}}
  - {name: all, on: [signal, prompt, action], then: gate}
`, nil)
}

// newest waits for another gate than those that are known, and reads it.
func (b *box) newest(known ...string) (g gate.Gate) {
	b.t.Helper()
	testbed.Until(b.t, "the gate", func() bool {
		var page gate.GatePage
		b.ops(200, "GET /ops/gates?limit=1", "", &page)
		if len(page.Gates) == 1 {
			g = page.Gates[0]
		}
		return g.ID != "" && !strings.Contains(strings.Join(known, " "), g.ID)
	})
	return g
}

// request32 is a request to a model of as many bytes as the proxy takes, with words that matter in the
// middle: a gate shows the beginning, and as its context the end of what was asked.
func request32() string {
	const before, after = `{"model":"claude-sonnet-4-6","max_tokens":5,"messages":[{"role":"user","content":"`, `"}]}`
	const matters = "And delete the backups. "
	filler := strings.Repeat("All is well. ", (32<<20)/13)[:32<<20-len(before+matters+after)]
	return before + filler[:16<<20] + matters + filler[16<<20:] + after
}

func TestWhatIsTooLongForAPageIsDownloadedAndApprovedInTwoSteps(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		_, key := b.addAgent("writer")
		ann := b.signedIn(b.operator("ann", "operator"))
		b.gated()
		sent := request32()
		b.later("POST /v1/proxy/v1/messages", key, sent, "X-Test", "1")
		g := b.newest()
		sum := sha256.Sum256([]byte(sent))
		digest := hex.EncodeToString(sum[:])
		if len(g.Unshown) != 1 || g.Unshown[0].SHA256 != digest || g.Unshown[0].Bytes != 32<<20 || g.ActionDigest != digest {
			t.Fatalf("%+v", g.Unshown)
		}

		// The page says what it does not show, and has a link to all of it.
		at := fmt.Sprintf("/ops/gates/%s/artifacts/1", g.ID)
		page := ann.sees("/ui/inbox/"+g.ID, "Not all of it is shown", digest, `href="`+at+`" download`,
			fmt.Sprintf(`name="unseen" value="%d" required`, g.Unseen()))
		if strings.Contains(page, "delete the backups") || len(page) > 200<<10 {
			t.Errorf("the page has %d bytes", len(page))
		}
		status, got, header := ann.get(at)
		if status != 200 || got != sent {
			t.Errorf("%d, %d bytes", status, len(got))
		}
		for name, want := range map[string]string{
			"Content-Type":            "application/octet-stream",
			"X-Content-Type-Options":  "nosniff",
			"Content-Disposition":     `attachment; filename="` + g.ID + `-artifact-1.bin"`,
			"Content-Security-Policy": "sandbox; default-src 'none'",
			"Repr-Digest":             "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":",
			"Etag":                    `"` + digest + `"`,
			"Content-Length":          strconv.Itoa(32 << 20),
		} {
			if header.Get(name) != want {
				t.Errorf("%s: %s", name, header.Get(name))
			}
		}
		b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
		var olga struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"olga","role":"admin","workspace":"other"}`, &olga)
		for token, want := range map[string]int{olga.Token: 404, "": 401, key: 403} {
			if status, answer, _ := b.do(request{call: "GET " + at, token: token}); status != want {
				t.Errorf("the download is %d, want %d: %.200s", status, want, answer)
			}
		}

		refused := func(name, says string, to string, form url.Values) {
			t.Helper()
			before := b.head()
			if _, page, _ := ann.post(to, form); !strings.Contains(page, says) || b.head() != before {
				t.Errorf("%s: %d entries more, %.3000s", name, b.head()-before, page)
			}
		}
		decide, yes := "/ui/inbox/"+g.ID+"/decide", url.Values{"do": {"approve"}, "digest": {g.Digest}}
		refused("a form without the second step", "Not all that is decided is shown", decide, yes)
		for _, unseen := range []string{"0", "1", "on", "-1", fmt.Sprint(g.Unseen() - 1), fmt.Sprint(g.Unseen()) + "x"} {
			yes.Set("unseen", unseen)
			refused("unseen "+unseen, "Not all that is decided is shown", decide, yes)
		}
		refused("changes", "Not all that is decided is shown", decide,
			url.Values{"do": {"modify"}, "modified": {"{}"}, "digest": {g.Digest}})
		bulk := url.Values{
			"do": {"approve"}, "gate": {g.ID}, "digest-" + g.ID: {g.Digest}, "unseen": {fmt.Sprint(g.Unseen())},
		}
		refused("in bulk", "decided on its own page", "/ui/inbox/bulk/do", bulk)
		if _, page, _ := ann.post("/ui/inbox/bulk", bulk); !strings.Contains(page, "too long to be shown here") ||
			strings.Contains(page, `value="approve"`) {
			t.Errorf("the question takes it: %.2000s", page)
		}
		yes.Set("unseen", fmt.Sprint(g.Unseen()))
		if _, page, _ := ann.post(decide, yes); !strings.Contains(page, "Approved: ") {
			t.Errorf("%.2000s", page)
		}
	})
}

// An agent puts what it wants behind what people read.
func TestTheTailOfAPayloadCannotBeApprovedUnseen(t *testing.T) {
	b := start(t, "", nil)
	key := b.agentKey("coder", "default")
	ann := b.operator("ann", "operator")
	b.gated()
	w := b.connect(key)
	for _, size := range []int{1 << 20, 3 << 20} {
		text := strings.Repeat("fine ", size/5)[:size-20] + "rm -rf /srv"
		known := b.newest0()
		w.send(t, strings.Replace(fmt.Sprintf(askText, size, "write"), `"payload":{`,
			`"payload":{"type":"text","content":"ls","arguments":{"path":"run.sh","content":"`+text+`"},`, 1))
		g := b.newest(known)
		status, answer, _ := b.do(request{
			call: "POST /ops/gates/" + g.ID + "/approve", token: ann, body: `{"digest":"` + g.Digest + `"}`,
		})
		_, page, _ := b.signedIn(ann).get("/ui/inbox/" + g.ID)
		switch whole := strings.Contains(page, "rm -rf /srv"); {
		case size == 1<<20 && (!whole || status != 200):
			t.Errorf("an argument of 1 MiB is not shown whole, or cannot be approved: %v %d %.300s", whole, status, answer)
		case size > 1<<20 && (whole || status != 409 || !strings.Contains(answer, "not_all_shown")):
			t.Errorf("an argument of 3 MiB: %v %d %.300s", whole, status, answer)
		}
	}
}

// newest0 is the id of the newest gate, "" if there is none.
func (b *box) newest0() string {
	b.t.Helper()
	var page gate.GatePage
	b.ops(200, "GET /ops/gates?limit=1", "", &page)
	for _, g := range page.Gates {
		return g.ID
	}
	return ""
}

func TestABulkDecisionShowsEveryActionAndTakesNoHighRisk(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		_, key := b.addAgent("writer")
		ann := b.signedIn(b.operator("ann", "operator"))
		b.gated()
		first := b.withArtifact(key, "run-1", "text", strings.Repeat("x\n", 100_000)+"the last line of the first")
		second, risky := b.ask(key, "writer", "run-2", "Pay 20"), b.ask(key, "writer", "risky-1", "Pay all of it")
		var heavy []string
		for i := range 5 {
			heavy = append(heavy, b.withArtifact(key, fmt.Sprintf("heavy-%d", i), "text", strings.Repeat("y", 1_000_000)))
		}
		all := append([]string{first, second, risky}, heavy...)
		for _, do := range []string{"approve", "reject"} {
			_, page, _ := ann.post("/ui/inbox/bulk", url.Values{"do": {do}, "gate": all})
			for _, want := range []string{
				"the last line of the first", "Pay 20", "A gate of high risk is decided on its own page",
				"It did not fit on this page",
			} {
				if !strings.Contains(page, want) {
					t.Errorf("%s: the question does not say %q", do, want)
				}
			}
			if strings.Contains(page, "<details") || strings.Contains(page, `value="`+risky+`"`) ||
				strings.Count(page, `name="gate"`) != 2+3 {
				t.Errorf("%s: folded, or with the risky gate, or with %d gates", do, strings.Count(page, `name="gate"`))
			}
			form := url.Values{"do": {do}, "note": {"so be it"}, "gate": {first, risky, second}}
			for _, id := range all {
				form.Set("digest-"+id, b.digest(id))
			}
			before := b.head()
			_, page, _ = ann.post("/ui/inbox/bulk/do", form)
			if !strings.Contains(page, "A gate of high risk") || !strings.Contains(page, "Nothing was changed") ||
				b.head() != before {
				t.Errorf("%s: %d entries more, %.2000s", do, b.head()-before, page)
			}
		}
		form := url.Values{"do": {"approve"}, "gate": {first, second}}
		form.Set("digest-"+first, b.digest(first))
		form.Set("digest-"+second, b.digest(second))
		if _, page, _ := ann.post("/ui/inbox/bulk/do", form); !strings.Contains(page, "Approved 2 gates.") {
			t.Errorf("%.2000s", page)
		}
	})
}

func TestAMebibyteIsReadWholeInABrowser(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	b, key, ann := startWriter(t)
	b.gated()
	p := b.tab(t, browser, ann)

	// read opens a gate's page, and returns what of it a person sees in the artifact.
	read := func(id, selector string) string {
		began := time.Now()
		p.goTo("/ui/inbox/" + id)
		p.until("it is there", `document.querySelector('#approve')`)
		height := look[float64](p, fmt.Sprintf("document.querySelector(%q).scrollHeight", selector)) // lays it out
		t.Logf("%s: open after %v, %.0f pixels high", selector, time.Since(began).Round(time.Millisecond), height)
		return look[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector))
	}

	var diff, text strings.Builder
	diff.WriteString("--- a/x\n+++ b/x\n@@ -1,2500 +1,2500 @@\n")
	for i := range 2500 {
		fmt.Fprintf(&diff, "-old line %d\n+new line %d\n", i+1, i+1)
	}
	got := read(b.withArtifact(key, "diff", "diff", diff.String()), ".diff")
	for i := range 2500 {
		if n := fmt.Sprint(i + 1); !strings.Contains(got, "old line "+n) || !strings.Contains(got, "new line "+n) {
			t.Fatalf("line %s of the difference is not there: …%.300s", n, got[max(0, len(got)-300):])
		}
	}
	for i := 0; text.Len() < 1_020_000; i++ {
		fmt.Fprintf(&text, "line %d of a long text, which somebody has to read\n", i)
	}
	text.WriteString("and the last line")
	if got := read(b.withArtifact(key, "text", "text", text.String()), ".artifact pre"); strings.TrimSpace(got) !=
		text.String() {
		t.Errorf("%d bytes of %d, which end with %q", len(got), text.Len(), got[max(0, len(got)-40):])
	}

	// What is longer takes a second step, which the keys do not pass over.
	known := b.newest0()
	b.later("POST /v1/proxy/v1/messages", key, request32(), "X-Test", "1")
	g := b.newest(known)
	if got := read(g.ID, ".artifact pre"); len(got) > 70<<10 {
		t.Errorf("%d bytes are shown", len(got))
	}
	p.until("it is live", `document.querySelector('#live.on')`)
	before := b.head()
	p.press("a")
	p.keys(kb.Enter)
	p.until("the box is asked for", `document.querySelector('#unseen:invalid')`)
	if look[string](p, "location.pathname") != "/ui/inbox/"+g.ID || b.head() != before {
		t.Error("it was decided without the second step")
	}
	look[bool](p, "document.querySelector('#unseen').click(), true")
	p.press("a")
	p.keys(kb.Enter)
	p.until("it is approved", p.has("Approved: Ask claude"))
	var entries struct{ Entries []struct{ Body wire.Raw } }
	b.ops(200, "GET /ops/ledger?kind=gate.voted&limit=10", "", &entries)
	if len(entries.Entries) != 1 ||
		!strings.Contains(string(entries.Entries[0].Body), fmt.Sprintf(`"unseen":%d`, g.Unseen())) {
		t.Errorf("%+v", entries)
	}
}
