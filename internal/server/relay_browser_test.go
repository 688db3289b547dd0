package server_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"signalbox/internal/id"
	"signalbox/internal/testbed"
)

// chromium starts a real browser, and skips the test when there is none. Each tab that is
// opened in it has cookies of its own.
func chromium(t testing.TB, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	path := testbed.Program(t, "chromium")
	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(path)), more...)...)
	t.Cleanup(cancel)
	browser, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(browser); err != nil {
		t.Fatal(err)
	}
	return browser
}

// tab is what one person has in front of them.
type tab struct {
	t   testing.TB
	b   *box
	ctx context.Context
}

// tab opens one, as wide as a desk, and signs the holder of the token in by hand.
func (b *box) tab(t testing.TB, browser context.Context, token string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(ctx, 5*testbed.Patience)
	t.Cleanup(cancel)
	p := &tab{t, b, ctx}
	p.do(chromedp.EmulateViewport(1280, 860), chromedp.Navigate(b.loginURL(token)),
		chromedp.Click(chromedp.CSS("form[action='/ui/login/code'] button")))
	p.until("the inbox is there", `document.querySelector('.list h1')?.textContent === 'Inbox'`)
	return p
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// look evaluates an expression in the page.
func look[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for something to be so in the page, and says how long that took. It looks
// from outside, since the security policy lets no text become code inside.
func (p *tab) until(what, expression string) time.Duration {
	p.t.Helper()
	began := time.Now()
	testbed.Until(p.t, what, func() bool {
		// What stands at the end of a page is there, and looks as it should, once all of it is loaded.
		yes, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("document.readyState === 'complete' && Boolean("+expression+")"))
		return err == nil && yes
	}, p)
	return time.Since(began)
}

// String is what is on the screen when a test fails. It takes a picture too.
func (p *tab) String() string {
	p.shot("failed")
	return look[string](p, "document.body.innerText.slice(0, 600)")
}

// observe notes the moment at which the title of a gate comes on the screen, in the page
// itself: to ask from outside takes time of its own.
func (p *tab) observe() {
	p.t.Helper()
	p.until("it is live", `document.querySelector('#live.on')`)
	look[bool](p, `window.shown = {}, new MutationObserver(() => {
  for (const e of document.querySelectorAll('.gate-title')) window.shown[e.textContent] ??= performance.timeOrigin `+
		`+ performance.now();
}).observe(document.body, {subtree: true, childList: true}), true`)
}

// after is how long after a moment the title has come on the screen.
func (p *tab) after(moment time.Time, title string) time.Duration {
	p.t.Helper()
	p.until("it is on the screen: "+title, fmt.Sprintf("window.shown[%q]", title))
	at := look[float64](p, fmt.Sprintf("window.shown[%q]", title))
	return time.UnixMicro(int64(at * 1000)).Sub(moment)
}

func (p *tab) goTo(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.b.url + path))
}

// press presses one key as a hand does: what the page makes of it can keep the letter from
// being typed.
func (p *tab) press(key string) {
	p.t.Helper()
	for _, params := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key},
		{Type: input.DispatchKeyEventTypeKeyUp, Key: key},
	} {
		if _, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, params); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *tab) keys(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys, options...))
}

// prefer emulates what the person's system prefers.
func (p *tab) prefer(all ...*emulation.MediaFeature) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: all}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) colours(scheme string) {
	p.t.Helper()
	p.prefer(&emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme})
}

// shot keeps a picture of the page as an artifact of the test (go test -artifacts).
func (p *tab) shot(name string) {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), png, 0o600)
	}
	if err != nil {
		p.t.Error(err)
	}
}

func (p *tab) has(text string) string {
	return fmt.Sprintf("document.body.innerText.includes(%q)", text)
}

// startWriter starts a server with an agent, writer, whose key it returns, and an operator, whose token it returns.
func startWriter(t *testing.T) (b *box, key, ann string) {
	t.Helper()
	b = start(t, "", fastAudit)
	_, key = b.addAgent("writer")
	return b, key, b.operator("ann", "operator")
}

func TestTheDashboardInABrowser(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	b, key, ann := startWriter(t)
	ben := b.operator("ben", "operator")
	at := func(gate string) string { return fmt.Sprintf("location.pathname === '/ui/inbox/%s'", gate) }

	t.Run("a gate arrives live and is approved from the keyboard", func(t *testing.T) {
		p := b.tab(t, browser, ann)
		p.observe()
		gate := b.ask(key, "writer", "live-1", "Send the first letter")
		t.Logf("on screen %v after the agent was answered", p.after(time.Now(), "Send the first letter"))
		p.until("it is open", `document.querySelector('#approve')`)
		p.shot("live")
		p.press("a")
		if look[string](p, "document.activeElement.id") != "approve" {
			t.Fatal("a does not lead to the button")
		}
		p.keys(kb.Enter)
		p.until("it is approved", p.has("Approved: Send the first letter"))
		var got struct{ Status, ResolvedBy string }
		b.ops(200, "GET /ops/gates/"+gate, "", &got)
		if got.Status != "approved" {
			t.Error(got)
		}
	})
	t.Run("a rejection takes a reason", func(t *testing.T) {
		gate := b.ask(key, "writer", "reject-1", "Send the second letter")
		p := b.tab(t, browser, ann)
		p.until("it is live", `document.querySelector('#live.on')`) // and so hears keys
		p.press("r")
		p.until("the field has the focus", "document.activeElement.id === 'note'")
		p.keys("Not on a Sunday.")
		p.keys(kb.Enter, chromedp.KeyModifiers(kb.ModifierCtrl))
		p.until("it is rejected", p.has("Rejected: Send the second letter")+" && "+p.has("Not on a Sunday."))
		p.shot("rejected")
		var got struct{ Status, Note string }
		b.ops(200, "GET /ops/gates/"+gate, "", &got)
		if got.Status != "rejected" || got.Note != "Not on a Sunday." {
			t.Error(got)
		}
	})
	t.Run("keys move through the list, search and help", func(t *testing.T) {
		var gates []string
		for i, town := range []string{"Oslo", "Lyon", "Rio"} { // no id has an o in it
			gates = append(gates, b.ask(key, "writer", fmt.Sprintf("move-%d", i), "Move to "+town))
		}
		p := b.tab(t, browser, ann)
		p.until("the newest is open", at(gates[2]))
		p.press("j")
		p.until("the next is", at(gates[1])+` && document.querySelector('#slide h2').textContent === 'Move to Lyon'`)
		p.press("j")
		p.until("the last is", at(gates[0]))
		p.press("k")
		p.until("and back", at(gates[1]))
		p.press("x")
		p.until("it is ticked", `document.querySelectorAll('.gates input:checked').length === 1`)
		p.press("?")
		p.until("help is there", `document.querySelector('#keys').open`)
		p.shot("keys")
		p.keys(kb.Escape)
		p.press("/")
		p.until("search has the focus", "document.activeElement.name === 'q'")
		p.keys("rio" + kb.Enter)
		p.until("one is left", `document.querySelectorAll('.gate-row').length === 1`)
		b.ops(200, "POST /ops/gates/"+gates[2]+"/approve", "", nil)
	})
	t.Run("several are decided after a question that names them", func(t *testing.T) {
		p := b.tab(t, browser, ann)
		p.press("x")
		p.press("j")
		p.until("the next is open", `document.querySelector('#slide h2').textContent === 'Move to Oslo'`)
		p.press("x")
		p.do(chromedp.Click(chromedp.CSS(".bulk [value=approve]")))
		p.until("it asks", `document.querySelector('h1').textContent === 'Approve 2 gates?'`)
		p.until("it names them", p.has("Move to Lyon")+" && "+p.has("Move to Oslo")+" && "+p.has("This lets these happen"))
		p.shot("bulk")
		p.keys(kb.Enter) // the button has the focus
		p.until("both are approved", p.has("Approved 2 gates."))
	})
	t.Run("votes are delegated from the keyboard", func(t *testing.T) {
		b.ask(key, "writer", "delegate-1", "Send the letter while ann is away")
		p := b.tab(t, browser, ann)
		p.until("it is live", `document.querySelector('#live.on')`)
		p.press("d")
		p.keys(kb.Enter)
		p.until("the form is there", `document.querySelector('#delegate') && document.querySelector('#live.on')`)
		p.press("d")
		p.keys("b" + kb.Tab + kb.Tab + kb.Enter)
		p.until("it is delegated", p.has("ben may cast your votes until"))
		q := b.tab(t, browser, ben)
		q.until("it is live", `document.querySelector('#live.on')`)
		q.press("v")
		q.keys("a" + kb.Tab + kb.Tab + kb.Enter) // ann, past the reason, to the button
		q.until("it is approved", q.has("Approved: Send the letter while ann is away"))
		q.until("both are named", q.has("cast by ben"))
	})
	t.Run("a key that is pressed before the page is there is not lost", func(t *testing.T) {
		p := b.tab(t, browser, ann)
		if _, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument,
			page.AddScriptToEvaluateOnNewDocumentParams{Source: `new MutationObserver((_, o) => {
  if (!document.body) return;
  o.disconnect();
  window.early = document.readyState;
  document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '?', bubbles: true}));
}).observe(document, {childList: true, subtree: true})`}); err != nil {
			t.Fatal(err)
		}
		p.goTo("/ui/inbox")
		p.until("help is there", `document.querySelector('#keys').open`)
		if state := look[string](p, "window.early"); state != "loading" {
			t.Errorf("the key was pressed when the page was %s", state)
		}
	})
	t.Run("the overview counts while one looks", func(t *testing.T) {
		p := b.tab(t, browser, ann)
		p.goTo("/ui/overview")
		p.until("it is live", `document.querySelector('#live.on')`)
		const numbers = `[...document.querySelectorAll('.tile b')].map((e) => e.textContent).join(' ')`
		before := look[string](p, numbers)
		gate := b.ask(key, "writer", "count-1", "Send a letter that counts")
		p.until("gates and tokens are counted",
			fmt.Sprintf(`(([w, d, c, t], [W, D, C, T]) => w !== W && t !== T)(%q.split(' '), %s.split(' '))`, before, numbers))
		p.shot("overview")
		b.ops(200, "POST /ops/gates/"+gate+"/approve", "", nil)
		p.until("the decision is",
			fmt.Sprintf(`(([w, d], [W, D]) => w === W && d !== D)(%q.split(' '), %s.split(' '))`, before, numbers))
	})
	t.Run("two operators race, and neither sees an error", func(t *testing.T) {
		gate := b.ask(key, "writer", "race-1", "Send the third letter")
		first, second := b.tab(t, browser, ann), b.tab(t, browser, ben)
		for _, p := range []*tab{first, second} {
			p.goTo("/ui/inbox/" + gate)
			p.until("it is live", `document.querySelector('#live.on')`)
		}
		// Both send their forms at the same time, as fast as they can.
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = chromedp.Run(second.ctx,
				chromedp.Evaluate[bool](
					`document.querySelector('#note').value = 'No.', document.querySelector('#decide [value=reject]').click(), true`,
				))
		}()
		look[bool](first, `document.querySelector('#approve').click(), true`)
		<-done
		for _, p := range []*tab{first, second} {
			p.until("it is decided", `document.querySelector('.decided')`)
			if look[bool](p, `Boolean(document.querySelector('.flash.bad'))`) {
				p.shot("race")
				t.Error("somebody sees an error")
			}
		}
	})
	t.Run("a decision taken elsewhere appears at once, and nothing moves", func(t *testing.T) {
		gate := b.ask(key, "writer", "else-1", "Send the fourth letter")
		p := b.tab(t, browser, ann)
		p.goTo("/ui/inbox/" + gate)
		p.until("it is live", `document.querySelector('#live.on')`)
		look[bool](
			p, `window.moved = 0, new PerformanceObserver((l) => { for (const e of l.getEntries()) window.moved += e.value;`+
				` }).observe({type: 'layout-shift'}), true`,
		)
		p.press("r") // somebody is writing
		p.keys("I think th")
		b.ops(200, "POST /ops/gates/"+gate+"/approve", `{"note":"From a phone."}`, nil)
		p.until("it shows", `document.querySelector('.decided')?.textContent.includes('From a phone.')`)
		// A hand that was on its way to the key does no harm.
		before := b.head()
		p.press("a")
		p.keys(kb.Enter)
		p.press("a")
		if look[bool](p, `Boolean(document.querySelector('.flash.bad'))`) || !look[bool](p, at(gate)) || b.head() != before {
			t.Error("a key after the decision does something")
		}
		// The pointer is over the list: what comes in is announced, and pushes nothing.
		other := b.ask(key, "writer", "else-2", "Send the fifth letter")
		p.until("it is there", p.has("Send the fifth letter"))
		p.do(chromedp.MouseEvent("mouseMoved", 400, 200))
		third := b.ask(key, "writer", "else-3", "Send the sixth letter")
		p.until("it is announced", `!document.querySelector('[data-fresh]').hidden`)
		if look[bool](p, p.has("Send the sixth letter")) {
			t.Error("it was put where somebody is about to click")
		}
		p.press("n")
		p.do(chromedp.MouseEvent("mouseMoved", 900, 600))
		p.press("n")
		p.until("n shows it", p.has("Send the sixth letter"))
		if moved := look[float64](p, "window.moved"); moved > 0.1 {
			t.Errorf("the layout moved by %v", moved)
		}
		for _, gate := range []string{other, third} {
			b.ops(200, "POST /ops/gates/"+gate+"/approve", "", nil)
		}
	})
	t.Run("everything fits a phone, light and dark", func(t *testing.T) {
		gate := b.ask(key, "writer", "phone-1",
			"Send the seventh letter to somebody-with-a-very-long-name-without-any-space-in-it@example.com")
		p := b.tab(t, browser, ann)
		p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
		grounds := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			p.colours(scheme)
			for _, path := range []string{
				"/ui/inbox", "/ui/inbox/" + gate, "/ui/overview", "/ui/agents", "/ui/agents/new",
				"/ui/account",
			} {
				p.goTo(path)
				if wide := look[int](p, "document.documentElement.scrollWidth"); wide > 390 {
					p.shot("too-wide")
					t.Errorf("%s is %d wide", path, wide)
				}
				p.shot(scheme + strings.ReplaceAll(path, "/", "-"))
			}
			grounds[scheme] = look[string](p, "getComputedStyle(document.body).backgroundColor")
		}
		if grounds["light"] == grounds["dark"] {
			t.Error("dark is not dark")
		}
		// What the person chose counts more than what the system prefers.
		p.do(chromedp.EmulateViewport(1280, 860))
		p.do(chromedp.Click(chromedp.CSS(".to-light")))
		p.until("it is light",
			fmt.Sprintf("document.documentElement.dataset.theme === 'light' && "+
				"getComputedStyle(document.body).backgroundColor === %q", grounds["light"]))
		b.ops(200, "POST /ops/gates/"+gate+"/approve", "", nil)
	})
	t.Run("without script one can read and decide", func(t *testing.T) {
		gate := b.ask(key, "writer", "plain-1", "Send the eighth letter")
		p := b.tab(t, browser, ann)
		if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
			t.Fatal(err)
		}
		p.goTo("/ui/inbox")
		p.do(chromedp.Click(chromedp.CSS(".gate-row a")), chromedp.WaitVisible(chromedp.CSS("#approve")),
			chromedp.SendKeys(chromedp.CSS("#note"), "Read without script."))
		p.shot("no-script")
		p.do(chromedp.Click(chromedp.CSS("#decide [value=reject]")), chromedp.WaitVisible(chromedp.CSS(".decided")))
		var got struct{ Status, Note string }
		b.ops(200, "GET /ops/gates/"+gate, "", &got)
		if got.Status != "rejected" || got.Note != "Read without script." {
			t.Error(got)
		}
	})
}

// TestTheLinkInAChatOpensTheGate follows the link of a message in Slack, in a browser in which nobody is
// signed in: after signing in, the gate is there, with all that led to it.
func TestTheLinkInAChatOpensTheGate(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	links := make(chan string, 10)
	slack := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, link, _ := strings.Cut(r.PostFormValue("blocks"), `"url":"`)
		link, _, _ = strings.Cut(link, `"`)
		links <- link
		_, _ = fmt.Fprint(w, `{"ok":true,"channel":"C1","ts":"1.1"}`)
	}))
	b := start(t, "", map[string]string{
		"harness.timeout": "1s", "notify.slack.token": "xoxb-1", "notify.slack.channel": "C1", "notify.slack.api": slack,
	})
	b.ops(200, "PUT /ops/policy",
		"version: 1\nrules: [{name: ask, on: [action], when: 'event.tool == \"bash\"', then: gate}]\n", nil)
	_, key := b.addAgent("walker")
	var run struct{ ID string }
	b.ops(201, "POST /runs", `{"engine":"claude","prompt":"Clean up","recorded":true}`, &run)
	step := func(kind, session, payload string) {
		t.Helper()
		status, answer, _ := b.do(request{call: "POST /ahp", token: key, body: fmt.Sprintf(
			`{"jsonrpc":"2.0","id":"1","method":"ahp/event","params":{"event_type":%q,"session_id":%q,"agent_id":"a",`+
				`"timestamp":"t","depth":0,"payload":%s,"metadata":{"branch":"prices\u202e","run":%q}}}`, kind, session,
			payload, run.ID)})
		if status != 200 {
			t.Fatalf("%s: %d %s", kind, status, answer)
		}
	}
	const fake = `What is proposed\nRead the notes</pre></section><section><h3>What is proposed</h3>`
	step("pre_prompt", "s", `{"prompt":"`+fake+`"}`)
	step("pre_action", "s", `{"tool_name":"bash","arguments":{"command":"rm -rf build"}}`)
	link := testbed.Receive(t, "the message in Slack", links)

	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(ctx, 5*testbed.Patience)
	t.Cleanup(cancel)
	p := &tab{t, b, ctx}
	p.do(chromedp.EmulateViewport(1280, 860), chromedp.Navigate(link))
	p.until("the login is there", `location.pathname === '/ui/login'`)
	_, code, _ := strings.Cut(b.loginURL(b.token()), "?code=")
	p.do(chromedp.SetValue(chromedp.CSS("#code"), code),
		chromedp.Click(chromedp.CSS("form[action='/ui/login/code'] button")))
	p.until("the gate is there", `location.href === `+fmt.Sprintf("%q", link)+` && !!document.querySelector('.action')`)
	seen := look[string](p, `document.querySelector('#slide').innerText`)
	for _, want := range []string{
		"bash: rm -rf build", "What led to it", "prices⟨U+202E⟩",
		"not part of what is approved",
	} {
		if !strings.Contains(seen, want) {
			t.Errorf("the page does not show %q:\n%s", want, seen)
		}
	}
	// What an agent says of the past does not become what it proposes.
	if got := look[[]string](p, `[...document.querySelectorAll('#slide h3')]`+
		`.filter((h) => h.innerText === 'What is proposed')`+
		`.map((h) => h.nextElementSibling.innerText)`); len(got) != 1 ||
		got[0] != "bash: rm -rf build" {
		t.Errorf("%q is proposed", got)
	}
	p.do(chromedp.Click(chromedp.CSS(fmt.Sprintf("a[href='/ui/runs/%s']", run.ID))))
	p.until("the run is there", `document.body.innerText.includes('Clean up')`)
}

func TestARunOfAnotherWorkspaceIsNotLinked(t *testing.T) {
	t.Parallel()
	b := start(t, "", map[string]string{"harness.timeout": "1s"})
	b.ops(
		200,
		"PUT /ops/policy",
		"version: 1\nrules: [{name: ask, on: [signal], when: event.declared, then: gate}]\n",
		nil,
	)
	b.ops(201, "POST /ops/workspaces", `{"name":"elsewhere"}`, nil)
	var added struct{ Token string }
	b.ops(201, "POST /ops/operators", `{"name":"zoe","role":"operator","workspace":"elsewhere"}`, &added)
	_, answer, _ := b.do(request{
		call: "POST /runs", token: added.Token, body: `{"engine":"claude","prompt":"p","recorded":true}`,
	})
	_, theirs, _ := strings.Cut(answer, `"id":"`)
	if theirs, _, _ = strings.Cut(theirs, `"`); !id.Is("run", theirs) {
		t.Fatal(answer)
	}
	var own struct{ ID string }
	b.ops(201, "POST /runs", `{"engine":"claude","prompt":"p","recorded":true}`, &own)
	_, key := b.addAgent("writer")
	v := b.signedIn(b.token())
	for run, linked := range map[string]bool{
		own.ID: true, theirs: false, "run_01jt4k9q2m8x3v7b5n6c0d1e2f": false,
		"run-7": false,
	} {
		_, shown, _ := v.get("/ui/inbox/" + b.ask(key, "writer", run, "Send it for "+run))
		if strings.Contains(shown, `href="/ui/runs/`+run+`"`) != linked {
			t.Errorf("the run %s: linked is not %t", run, linked)
		}
	}
}
