package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"signalbox/internal/address"
	"signalbox/internal/testbed"
)

// axeFinds runs axe-core over the page, with its rules for WCAG 2.2 AA and good practice or
// with some of them, and says in a line each what it objects to, and where.
const axeFinds = `axe.run(document, %s).then((found) => found.violations.map((v) => v.id + ': ' + v.help + ' in ' +
  v.nodes.slice(0, 4).map((n) => n.target.join(' ') + (n.any[0]?.data?.contrastRatio ? ' ' + ` +
	`n.any[0].data.contrastRatio : '')).join(', ')))`

const (
	allRules = `{runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa',` +
		` 'best-practice']}}`
	contrastRule = `{runOnly: {type: 'rule', values: ['color-contrast']}}`
)

// weFind is what axe-core does not look at: that nothing is wider than the screen, that
// there is one first heading, and that what has the focus shows it.
const weFind = `(() => {
  const out = [], name = (e) => e.outerHTML.slice(0, 90), seen = (e) => e.getClientRects().length > 0;
  const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (over > 0) out.push('it is ' + over + ' pixels too wide');
  const first = document.querySelectorAll('h1').length;
  if (first !== 1) out.push('it has ' + first + ' first headings');
  for (const e of document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')) {
    if (!seen(e)) continue;
    if (e.matches('input, select, textarea') && !e.labels.length && !e.ariaLabel)
      out.push('there is no label for ' + name(e));
    e.focus({preventScroll: true});
    if (!e.matches(':focus-visible')) continue; // the browser has its own mind when it matters
    window.focused = (window.focused || 0) + 1;
    const shows = [e, ...(e.labels || [])].some((s) => getComputedStyle(s).outlineStyle !== 'none' &&
      parseFloat(getComputedStyle(s).outlineWidth) > 0);
    if (!shows) out.push('the focus does not show on ' + name(e));
  }
  document.activeElement?.blur();
  return out;
})()`

// stillMoves are the elements that move although the person asked for no motion.
const stillMoves = `[...document.querySelectorAll('*')].filter((e) => { const s = getComputedStyle(e);` +
	` return s.animationName !== 'none' || s.transitionDuration.split(',').some((d) => parseFloat(d) > 0);` +
	` }).map((e) => 'moves: ' + e.outerHTML.slice(0, 90))`

// TestTheDashboardIsAccessible audits every kind of page, as wide as a desk and as a phone,
// light and dark.
func TestTheDashboardIsAccessible(t *testing.T) {
	t.Parallel()
	axe := testbed.Read(t, npmProgram(t, "axe-core/axe.min.js"))
	w := work(t, "")
	w.operator("ann", "operator")
	w.ops(201, "POST /ops/users", `{"name":"alice","email":"alice@example.com","limits":{"emails":20}}`, nil)
	agent, key := w.addAgent("writer")
	gate := w.ask(key, "writer", "audit-1", "Send the letter")
	p := w.tab(t, chromium(t), w.token())
	if _, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: string(axe)}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(p.ctx, emulation.SetFocusEmulationEnabled,
		emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	a := &audit{tab: p}
	pages := []string{
		"/ui/inbox", "/ui/inbox/" + gate, "/ui/inbox?status=rejected", "/ui/overview", "/ui/agents", "/ui/decks",
		"/ui/agents/default/" + agent, "/ui/agents/new", "/ui/users/default/alice", "/ui/account", "/ui/terminal",
		"/ui/terminal?ask=" + url.QueryEscape(w.asked()), "/ui/mail", "/ui/mail/" + w.message, "/ui/tasks",
		"/ui/tasks/default/T-2026-044", "/ui/sessions", "/ui/sessions/default/stroll", "/ui/runs", "/ui/runs/" + w.run,
		"/ui/handoffs", "/ui/handoffs?all=1", "/ui/handoffs/" + w.handoff,
		"/ui/ledger", "/ui/ledger/20", "/ui/deliveries", "/ui/deliveries/" + w.delivery, "/ui/alarms", "/ui/policy",
		"/ui/policy/1", "/ui/settings", "/ui/prices", "/ui/nowhere",
		"/ui/login",
	}
	all := http.NewServeMux()
	left := map[string]bool{}
	for _, page := range address.Named {
		all.Handle("GET "+string(page), http.NotFoundHandler())
		left["GET "+string(page)] = page != address.Dashboard // which leads to another
	}
	for _, path := range pages {
		_, pattern := all.Handler(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		delete(left, pattern)
		a.audit(t, strings.TrimPrefix(path, "/ui/"), path, "true", "true")
	}
	for pattern, counts := range left {
		if counts {
			t.Errorf("%s is not audited", pattern)
		}
	}
	a.audit(t, "the keys of an agent", "/ui/agents/new",
		`document.getElementById('name').value = 'fresh', document.querySelector('main form').requestSubmit(), true`,
		`document.querySelector('.secret')`)
	a.audit(t, "the question about many", "/ui/inbox",
		`document.querySelectorAll('.gates input').forEach((i) => i.click()), `+
			`document.querySelector('.bulk button').click(), true`,
		`document.querySelector('.bulk-list')`)
	a.audit(t, "the help", "/ui/inbox", `document.getElementById('keys').showModal(), true`,
		`document.querySelector('dialog[open]')`)
	a.audit(t, "a dry run", "/ui/policy", `document.getElementById('source').value = `+
		`document.getElementById('source').value.replace('message: allow', 'message: block'),`+
		` document.querySelector('button[value=replay]').click(), true`, `document.getElementById('report')`)
	if a.focused < 15*a.pages {
		t.Errorf("only %d elements of %d pages could have the focus", a.focused, a.pages)
	}
	t.Logf("%d elements of %d pages had the focus", a.focused, a.pages)
}

// audit looks at pages one after another.
type audit struct {
	*tab
	pages, focused int // how many pages, and elements that have had the focus
}

// audit opens a page, does something there, and looks at it as soon as then is true. It is a test of its own, so
// that one page can be audited alone.
func (a *audit) audit(t *testing.T, name, path, do, then string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		a.tab.t = t
		a.pages++
		a.do(chromedp.EmulateViewport(1280, 860))
		a.goTo(path)
		look[bool](a.tab, do)
		a.until(name+" is there", then)
		for _, width := range []int64{1280, 390} {
			a.do(chromedp.EmulateViewport(width, 860))
			for _, scheme := range []string{"light", "dark"} {
				a.prefer(&emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme},
					&emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
				rules := map[string]string{"light": allRules, "dark": contrastRule}[scheme]
				found := a.finds(fmt.Sprintf(axeFinds, rules))
				if scheme == "light" {
					a.keys(kb.Tab) // a person at the keyboard
					found = append(found, a.finds(weFind)...)
					a.focused += look[int](a.tab, "window.focused || 0")
					found = append(found, a.finds(stillMoves)...)
				}
				for _, what := range found {
					t.Errorf("%d wide, %s: %s", width, scheme, what)
				}
			}
		}
	})
}

// finds is what a script finds wrong.
func (a *audit) finds(script string) []string {
	a.t.Helper()
	found, err := chromedp.Run(a.ctx, chromedp.Evaluate[[]string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		a.t.Fatalf("%s: %v", look[string](a.tab, "location.pathname"), err)
	}
	return found
}
