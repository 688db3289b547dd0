package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"signalbox/internal/testbed"
)

// slowLine is a line to the server on which every answer takes a while. edit changes the script on its
// way; nil leaves it.
func (b *box) slowLine(t *testing.T, delay time.Duration, edit func(script string) string) (address string) {
	t.Helper()
	to, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, // events go through as they come
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
			r.Out.Header.Del("Accept-Encoding") // the script is read
		},
		ModifyResponse: func(r *http.Response) error {
			if edit == nil || !strings.HasSuffix(r.Request.URL.Path, "relay.js") {
				return nil
			}
			script, err := io.ReadAll(r.Body)
			script = []byte(edit(string(script)))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(script)), int64(len(script))
			r.Header.Set("Content-Length", fmt.Sprint(len(script)))
			return err
		},
	}
	s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(delay):
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	return strings.Replace(s, "127.0.0.1", "localhost", 1) // the name that people have signed in at
}

// watchKeys notes in a page what a person at its keys believes, who sees no more than the list: want
// is the gate to which j and k have led. It notes every form that is sent, with the gate that it
// decides, and every move that did not mark the row at once. play strikes keys at random, on one page
// after another, as a browser does: one that nobody takes is typed, or clicks.
const watchKeys = `(() => {
  const kept = (what) => JSON.parse(sessionStorage.getItem(what) || '[]');
  const note = (what, it) => sessionStorage.setItem(what, JSON.stringify([...kept(what), it]));
  const rows = () => [...document.querySelectorAll('[data-list] [data-key]:not(.gone)')];
  const marked = () => rows().find((row) => row.querySelector('[aria-current]'))?.dataset.key;
  const shown = () => document.querySelector('#slide [data-at]')?.dataset.at.split('/')[3].split('?')[0];
  const writing = (e) => e.target.matches('input:not([type=checkbox]), textarea, select');
  let want, left = false;
  document.addEventListener('DOMContentLoaded', () => { want = marked(); });
  addEventListener('keydown', (e) => {
    if (left || writing(e)) return;
    if (!'jk'.includes(e.key)) { if (shown() !== want) note('loading', e.key); return; }
    const all = rows().map((row) => row.dataset.key);
    if (all.length) want = all[Math.min(Math.max(all.indexOf(want) + (e.key === 'j' ? 1 : -1), 0), all.length - 1)];
  }, true);
  addEventListener('keydown', (e) => {
    if (!left && !writing(e) && 'jk'.includes(e.key) && marked() !== want) note('late', want);
  });
  addEventListener('submit', (e) => {
    if (e.defaultPrevented) return;
    left = true;
    note('sent', { gate: new URL(e.target.action).pathname.split('/')[3], want });
  });

  const draw = (n) => { // the same numbers for the same seed, on whichever page
    const next = (Number(sessionStorage.getItem('seed')) * 48271) % 2147483647;
    sessionStorage.setItem('seed', next);
    return next % n;
  };
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const strike = (key) => {
    const at = document.activeElement, ctrl = key === 'Ctrl Enter';
    const free = at.dispatchEvent(new KeyboardEvent('keydown',
      { key: ctrl ? 'Enter' : key, ctrlKey: ctrl, bubbles: true, cancelable: true }));
    if (free && key === 'Enter' && at.matches('a[href], button')) at.click();
    if (free && key.length === 1 && at.matches('textarea')) at.value += key;
  };
  const keys = 'j,j,j,k,a,a,a,Enter,Enter,Enter,r,n,o,Ctrl Enter,Escape,x'.split(',');
  window.play = async () => {
    while (!left && Number(sessionStorage.getItem('todo')) > 0) {
      sessionStorage.setItem('todo', Number(sessionStorage.getItem('todo')) - 1);
      strike('Escape');
      for (let n = 3 + draw(5); n > 0; n--) {
        await pause(draw(25));
        if (draw(8) > 0) strike(keys[draw(keys.length)]);
        else for (let i = 0; i < 100 && document.querySelector('#slide').inert; i++) await pause(10);
      }
    }
    sessionStorage.setItem('rests', left ? '' : '1');
  };
  document.addEventListener('DOMContentLoaded', () => { if (sessionStorage.getItem('todo')) window.play(); });
})()`

// watched is a tab behind a slow line, in which watchKeys runs.
func (b *box) watched(t *testing.T, browser context.Context, token, line string) *tab {
	t.Helper()
	p := b.tab(t, browser, token)
	if _, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: watchKeys}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Navigate(line + "/ui/inbox")) // cookies are those of the host, whatever the port
	p.settle()
	return p
}

// settle waits for the gate that is marked.
func (p *tab) settle() {
	p.t.Helper()
	p.until("what is marked is shown", "document.readyState === 'complete' && !document.querySelector('#slide').inert")
}

// heard is what pages have noted.
type heard struct {
	Sent    []struct{ Gate, Want string }
	Late    []string
	Loading []string // keys that were struck before the gate that was marked was there
}

func (p *tab) heard() (got heard) {
	p.t.Helper()
	text := look[string](p, `JSON.stringify(Object.fromEntries(['sent', 'late', 'loading'].map((what) =>
  [what, JSON.parse(sessionStorage.getItem(what) || '[]')])))`)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		p.t.Fatal(err)
	}
	return got
}

// play has several people strike sequences of keys at the same time, each at an inbox of their own, so
// that not every decision loads every page.
func (b *box) play(t *testing.T, browser context.Context, name, line string, people, each int) (all heard) {
	t.Helper()
	tabs := make([]*tab, people)
	for i := range tabs {
		space := fmt.Sprintf("%s-%d", name, i)
		var agent struct{ Keys map[string]string }
		var operator struct{ Token string }
		b.ops(201, "POST /ops/workspaces", `{"name":"`+space+`"}`, nil)
		b.ops(201, "POST /ops/agents", `{"name":"writer","workspace":"`+space+`"}`, &agent)
		b.ops(201, "POST /ops/operators", `{"name":"`+space+`","role":"operator","workspace":"`+space+`"}`, &operator)
		for n := range 15 {
			b.ask(agent.Keys["signal"], "writer", fmt.Sprint(n), fmt.Sprintf("Send letter %s %d", name, n))
		}
		tabs[i] = b.watched(t, browser, operator.Token, line)
	}
	for i, p := range tabs {
		look[bool](p, fmt.Sprintf("sessionStorage.setItem('seed', %d), sessionStorage.setItem('todo', %d), play(), true",
			i+1, each))
	}
	for _, p := range tabs {
		for left := each; left > 0; left -= 25 { // on a busy machine all of it takes longer than patience
			p.until("some were struck", fmt.Sprintf("Number(sessionStorage.getItem('todo')) < %d", left))
		}
		p.until("all were struck", "sessionStorage.getItem('todo') === '0' && sessionStorage.getItem('rests') === '1'")
		got := p.heard()
		all.Sent, all.Late = append(all.Sent, got.Sent...), append(all.Late, got.Late...)
		all.Loading = append(all.Loading, got.Loading...)
	}
	return all
}

// sequences is what make soak raises.
var sequences = flag.Int("sequences", 64, "how many sequences of keys are tried in the inbox")

func TestNoKeysDecideAGateThatIsNotMarked(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	b, key, ann := startWriter(t)
	gates := []string{b.ask(key, "writer", "run-1", "Send letter 1"), b.ask(key, "writer", "run-2", "Send letter 2")}
	status := func(gate string) string {
		var g struct{ Status string }
		b.ops(200, "GET /ops/gates/"+gate, "", &g)
		return g.Status
	}

	t.Run("the marked row moves at once, and what decides waits for its gate", func(t *testing.T) {
		p := b.watched(t, browser, ann, b.slowLine(t, 500*time.Millisecond, nil))
		p.press("a")
		p.press("j")
		p.press("a")
		p.keys(kb.Enter)
		const marked = `document.querySelector('[data-list] [aria-current] .gate-title').textContent`
		if title := look[string](p, marked); title != "Send letter 1" {
			t.Errorf("%q is marked", title)
		}
		p.settle()
		if status(gates[0]) != "pending" || status(gates[1]) != "pending" {
			t.Error("a key has decided what was not shown")
		}
		p.press("a")
		p.keys(kb.Enter)
		p.until("it is approved", p.has("Approved: Send letter 1"))
		if status(gates[0]) != "approved" || status(gates[1]) != "pending" {
			t.Error("another gate was decided")
		}
	})

	t.Run("the script of before is found out", func(t *testing.T) {
		line := b.slowLine(t, 2*time.Second, func(script string) string {
			for old, before := range map[string]string{
				"  for (const a of $$('[data-list] a')) ":        "  if (false) for (const a of []) ",
				"  $('#slide').inert = true;\n":                  "",
				" || (going && e.target.closest('#slide'))":      "",
				" || (it.closest('#slide') && (going || blind))": "",
			} {
				if !strings.Contains(script, old) {
					t.Errorf("the script has no %s", old)
				}
				script = strings.Replace(script, old, before, 1)
			}
			return script
		})
		third, fourth := b.ask(key, "writer", "run-3", "Send letter 3"), b.ask(key, "writer", "run-4", "Send letter 4")
		p := b.watched(t, browser, ann, line)
		p.press("j")
		p.press("a")
		p.keys(kb.Enter)
		p.until("what was shown before is approved", p.has("Approved: Send letter 4"))
		if got := p.heard(); len(got.Late) == 0 || len(got.Sent) != 1 || got.Sent[0].Gate != fourth ||
			got.Sent[0].Want != third {
			t.Errorf("what watches the keys has seen %+v", got)
		}
	})

	// Ten times as fast as people: they strike within a quarter of a second, and wait half a second.
	t.Run("random sequences", func(t *testing.T) {
		began := time.Now()
		all := b.play(t, browser, "new", b.slowLine(t, 50*time.Millisecond, nil), 8, *sequences/8)
		t.Logf("%d decisions and %d keys while a gate was loading, in %v", len(all.Sent), len(all.Loading), time.Since(began))
		if len(all.Sent) < *sequences/50 || len(all.Loading) < *sequences/2 {
			t.Errorf("%d decisions, %d keys while a gate was loading: too few to tell", len(all.Sent), len(all.Loading))
		}
		sent := map[string]bool{}
		for _, s := range all.Sent {
			sent[s.Gate] = true
			if s.Gate != s.Want {
				t.Errorf("%s was decided while %s was marked", s.Gate, s.Want)
			}
		}
		if len(all.Late) > 0 {
			t.Errorf("%d moves did not mark their row at once", len(all.Late))
		}
		for _, status := range []string{"approved", "rejected"} {
			var decided struct{ Gates []struct{ ID, Title string } }
			b.ops(200, "GET /ops/gates?limit=500&status="+status, "", &decided)
			for _, g := range decided.Gates {
				if strings.Contains(g.Title, " new ") && !sent[g.ID] {
					t.Errorf("%s is %s, and nobody was seen to decide it", g.Title, status)
				}
			}
		}
	})
}

func TestTheInboxIsAsHighAsTheWindow(t *testing.T) {
	browser := chromium(t)
	b := start(t, "", nil)
	_, key := b.addAgent("writer")
	for i := range 40 {
		b.ask(key, "writer", fmt.Sprintf("run-%d", i), fmt.Sprintf("Send letter %d", i))
	}
	p := b.tab(t, browser, b.operator("ann", "operator"))
	const height = "document.documentElement.scrollHeight"
	// Gates that come in while one looks are added to the list.
	const more = `(() => { const list = document.querySelector('.gates'), rows = [...list.children];
  for (let n = rows.length; n < 500; n++) list.append(rows[n % rows.length].cloneNode(true));
  return list.children.length })()`
	if n := look[int](p, more); n != 500 {
		t.Fatalf("%d rows", n)
	}
	for _, size := range [][2]int64{{1280, 860}, {1000, 400}, {1920, 1200}} {
		p.do(chromedp.EmulateViewport(size[0], size[1]))
		if high := look[int64](p, height); high != size[1] {
			p.shot("too-high")
			t.Errorf("in a window of %d the document is %d high", size[1], high)
		}
	}
	// The list scrolls to its end, and the page does not move.
	look[bool](p, "document.querySelector('.gates').scrollTo(0, 1e6), scrollTo(0, 1e6), true")
	if look[int](p, "scrollY") != 0 || look[int](p, "document.querySelector('.gates').scrollTop") == 0 {
		t.Error("the page scrolls, or the list does not")
	}
	look[bool](p, "document.querySelector('.gates').style.position = 'static', true")
	if high := look[int64](p, height); high <= 1200 {
		t.Errorf("without its rule the document is %d high: this test would find nothing", high)
	}
	look[bool](p, "document.querySelector('.gates').style.position = '', true")
	p.do(chromedp.EmulateViewport(390, 844))
	const end = "document.querySelector('.list').getBoundingClientRect().bottom + scrollY"
	if gap := look[float64](p, height+" - ("+end+")"); gap > 1 {
		t.Errorf("on a phone %v pixels of nothing follow the list", gap)
	}
}
