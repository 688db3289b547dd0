package web

import (
	"fmt"
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/counter"
	"signalbox/internal/wire"
)

func TestArtifactsAreShownByType(t *testing.T) {
	for _, c := range []struct{ raw, kind, text, link string }{
		{`"just text"`, "text", "just text", ""},
		{`{"type":"text","content":"<b>"}`, "text", "<b>", ""},
		{`{"type":"JSON","content":"{\"a\":1}"}`, "json", "{\n  \"a\": 1\n}", ""},
		{
			`{"type":"url","content":"https://example.com/a b"}`, "link", "https://example.com/a b",
			"https://example.com/a%20b",
		},
		{`{"type":"link","url":"javascript:alert(1)"}`, "link", "javascript:alert(1)", ""},
		{`{"type":"image","content":"https://example.com/x.png"}`, "link", "https://example.com/x.png", ""},
		{`{"type":"image","content":"data:image/svg+xml;base64,AAAA"}`, "link", "data:image/svg+xml;base64,AAAA", ""},
		{`{"type":"hologram","content":"x"}`, "json", "{\n  \"type\": \"hologram\",\n  \"content\": \"x\"\n}", ""},
		{`{"type":"text","content":{"a":1}}`, "json", "{\n  \"type\": \"text\",\n  \"content\": {\n    \"a\": 1\n  }\n}", ""},
		{`[1]`, "json", "[\n  1\n]", ""},
	} {
		a := readArtifact(wire.Raw(c.raw))
		if a.Type != c.kind || a.Text != c.text || a.Link != c.link {
			t.Errorf("%s: %+v", c.raw, a)
		}
	}
	if a := readArtifact(wire.Raw(`{"type":"image","content":"data:image/png;base64,iVBORw0KGgo="}`)); a.Type !=
		"image" || a.Image == "" {
		t.Errorf("%+v", a)
	}
	if a := readArtifact(wire.Raw(`{"type":"text","content":"` + strings.Repeat("x", 1<<20) + `"}`)); len(
		a.Text,
	) != 1<<20 {
		t.Error("a text of 1 MiB is not whole")
	}
}

// An agent could make every look at its gate cost hundreds of megabytes.
func TestNoJSONMakesAPageManyTimesAsLong(t *testing.T) {
	for _, depth := range []int{1, 8, 16, 17, 200} {
		text := strings.Repeat("[", depth) + strings.Repeat("1,", 1<<19) + "1" + strings.Repeat("]", depth)
		if got := pretty(text); len(got) > 4*len(text) || strings.Count(got, "1") != 1<<19+1 {
			t.Errorf("lists in %d lists: %d bytes become %d", depth, len(text), len(got))
		}
	}
}

func TestADifferenceStandsSideBySide(t *testing.T) {
	got := sideBySide("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3,4 +3,4 @@ func\n same\n-old one\n-old two\n" +
		"+new one\n--- looks like a head\n+++ so does this\n end\n-last\n\\ No newline at end of file\n+the last\n")
	want := []diffRow{
		{Kind: "file", Text: "diff --git a/x b/x"},
		{Kind: "file", Text: "--- a/x"},
		{Kind: "file", Text: "+++ b/x"},
		{Kind: "hunk", Text: "@@ -3,4 +3,4 @@ func"},
		{Kind: "same", Old: "same", New: "same", OldNo: 3, NewNo: 3},
		{Kind: "change", Old: "old one", New: "new one", OldNo: 4, NewNo: 4},
		{Kind: "change", Old: "old two", OldNo: 5},
		{Kind: "change", Old: "-- looks like a head", New: "++ so does this", OldNo: 6, NewNo: 5},
		{Kind: "same", Old: "end", New: "end", OldNo: 7, NewNo: 6},
		{Kind: "change", Old: "last", OldNo: 8},
		{Kind: "hunk", Text: `\ No newline at end of file`},
		{Kind: "change", New: "the last", NewNo: 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHowThingsAreSaid(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{relative(2 * time.Second), "now"},
		{relative(90 * time.Second), "1 min ago"},
		{relative(-3 * time.Hour), "in 3 h"},
		{relative(50 * time.Hour), "2 d ago"},
		{num(1234567), "1,234,567"},
		{num(-1234), "-1,234"},
		{money(0.00042), "$0.0004"},
		{money(12.345), "$12.35"},
		{plural(1, "gate"), "1 gate"},
		{plural(0, "gate"), "0 gates"},
		{short("gate_01m7fj75csfehtnd9cffdt27at"), "gate…dt27at"},
		{short("run-1"), "run-1"},
		{cut(5, "one  two three"), "one t…"},
		{tally(372_000), "372k"},
		{
			string(when(time.Unix(100, 0), time.Unix(40, 0))),
			`<time datetime="1970-01-01T00:00:40Z" title="Thu 1 Jan 1970, 00:00:40 UTC">1 min ago</time>`,
		},
		{
			string(ref(`x"><script>`)), `<span class="ref"><code title="x&#34;&gt;&lt;script&gt;">` +
				`x&#34;&gt;&lt;script&gt;</code><button type="button" class="copy" ` +
				`data-copy="x&#34;&gt;&lt;script&gt;" aria-label="Copy x&#34;&gt;&lt;script&gt;" hidden>` +
				string(icon("copy")) + `</button></span>`,
		},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestAChartHasRoomForItsBars(t *testing.T) {
	c := newChart("x", "X", []string{"2026-11-14", "2026-11-15"}, tally, series{"a", "c1", []float64{3, 0}},
		series{"b", "c2", []float64{4, 1}})
	if c.Lines[2].Label != "10" || len(c.Bars) != 3 {
		t.Errorf("%+v", c)
	}
	if top := c.Bars[1]; top.Y != "30.00%" || top.Height != "40.00%" || top.Title != "14 Nov: 4 b" {
		t.Errorf("%+v", top)
	}
	if rows := c.Rows(); len(rows) != 2 || rows[1].Values[0] != "0" || rows[1].Values[1] != "1" {
		t.Errorf("%+v", rows)
	}
	if !newChart("y", "Y", []string{"2026-11-15"}, tally, series{"a", "c1", []float64{0}}).Empty() {
		t.Error("nothing is drawn as something")
	}
}

func TestFewWatchersAreToldSoonAndManyCostNoMore(t *testing.T) {
	h := hub{watchers: map[*watcher]struct{}{}}
	for watchers, want := range map[int]time.Duration{
		1: liveEvery, 6: liveEvery, 10: 100 * time.Millisecond,
		200: 2 * time.Second,
	} {
		for len(h.watchers) < watchers {
			h.join(&watcher{})
		}
		for one := range h.watchers {
			if len(h.watchers) > watchers {
				delete(h.watchers, one)
			}
		}
		if got := h.every(); got != want {
			t.Errorf("%d who watch are told every %s, want %s", watchers, got, want)
		}
	}
}

func TestBarsAreTheWhole(t *testing.T) {
	var all []counter.NameSum
	for i := range 30 {
		all = append(all, counter.NameSum{Name: fmt.Sprint(i), Counts: counter.Sum{CostUSD: float64(30 - i)}})
	}
	bars, sum := costBars(all, func(name string) string { return name }), 0.0
	for _, b := range bars {
		sum += b.Sum.CostUSD
	}
	if len(bars) != maxCostBars || sum != 30*31/2 || bars[0].Name != "0" || bars[maxCostBars-1].Name != "all others" ||
		bars[maxCostBars-1].Width != "100.00%" {
		t.Errorf("%+v add up to %f", bars, sum)
	}
	if bars := costBars([]counter.NameSum{{Name: "free"}}, strings.ToUpper); len(bars) != 0 {
		t.Errorf("%+v", bars)
	}
}

func TestMoneyHasItsCents(t *testing.T) {
	for usd, want := range map[float64]string{
		0: "$0.00", 0.0012: "$0.0012", 1.005: "$1.00", 9999.99: "$9999.99", 12345.678: "$12,345.68",
		1e6 + 0.05: "$1,000,000.05",
	} {
		if got := money(usd); got != want {
			t.Errorf("%f is %s, want %s", usd, got, want)
		}
	}
}

// TestTheAssetsAreLight holds the budget of a page: 100 KB with style and script.
func TestTheAssetsAreLight(t *testing.T) {
	sum := 0
	for _, name := range []string{"relay.css", "relay.js"} {
		content, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			t.Fatal(err)
		}
		sum += len(content)
	}
	if sum > 50<<10 {
		t.Errorf("style and script have %d bytes; with a page of 50 KB that is more than 100 KB", sum)
	}
}

// TestTheColoursHaveContrast holds WCAG's AA for every pair of tokens that text is set in.
func TestTheColoursHaveContrast(t *testing.T) {
	css, err := staticFiles.ReadFile("static/relay.css")
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{3,6})`)
	light, rest, _ := strings.Cut(string(css), "@media")
	_, rest, _ = strings.Cut(rest, ":root[data-theme=dark]")
	dark, _, _ := strings.Cut(rest, "}")
	for name, text := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, found := range token.FindAllStringSubmatch(text, -1) {
			colours[found[1]] = luminance(found[2])
		}
		for _, pair := range []string{
			"ink bg", "ink surface", "ink sunken", "soft surface", "soft sunken", "muted bg", "muted surface", "muted raised",
			"muted sunken", "accent bg", "accent surface", "accent accent-soft",
			"accent-ink accent", "good surface", "warn surface", "bad surface", "good good-soft", "warn warn-soft",
			"bad bad-soft", "surface good", "surface bad", "warn bg", "bad bg",
		} {
			front, back, _ := strings.Cut(pair, " ")
			a, b := colours[front], colours[back]
			if a == 0 && front != "ink" || b == 0 {
				t.Fatalf("%s: there is no colour %s", name, pair)
			}
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
				t.Errorf("%s: %s has a contrast of %.2f, and AA asks for 4.5", name, pair, ratio)
			}
		}
	}
}

// luminance is how bright a colour is, as WCAG reckons it.
func luminance(colour string) float64 {
	if len(colour) == 4 {
		colour = "#" + strings.Repeat(colour[1:2], 2) + strings.Repeat(colour[2:3], 2) + strings.Repeat(colour[3:4], 2)
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, _ := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		part := float64(n) / 255
		if part <= 0.04045 {
			part /= 12.92
		} else {
			part = math.Pow((part+0.055)/1.055, 2.4)
		}
		sum += weight * part
	}
	return sum
}

func TestABodyIsCutByWhatItTakesOnThePage(t *testing.T) {
	for _, text := range []string{strings.Repeat("a", 40<<10), strings.Repeat(`"`, 40<<10), strings.Repeat("é<", 40<<10)} {
		page := template.HTMLEscapeString(cutBody(text, 7))
		if len(page) > 33<<10 || !strings.HasSuffix(page, "GET /ops/ledger/7 has all of it)") || !utf8.ValidString(page) {
			t.Errorf("%.10q takes %d bytes: %q", text, len(page), page[max(0, len(page)-60):])
		}
	}
	if short := strings.Repeat("a", 32<<10); cutBody(short, 7) != short {
		t.Error("what fits is cut")
	}
}
