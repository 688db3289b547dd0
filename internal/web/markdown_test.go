package web

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// leads is the start of a link.
func leads(to string) string {
	return `<a href="` + to + `" rel="noreferrer noopener nofollow" target="_blank">`
}

func TestMarkdown(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a paragraph", "one\ntwo\n\nthree", "<p>one<br>\ntwo</p>\n<p>three</p>\n"},
		{
			"lines that end as on Windows", "one\r\ntwo\r\n\r\n- three\r\n",
			"<p>one<br>\ntwo</p>\n<ul>\n<li>three</li>\n</ul>\n",
		},
		{"a heading", "## What I did ##", "<h3>What I did</h3>\n"},
		{"a heading with a line below", "What I did\n=====\n", "<h3>What I did</h3>\n"},
		{"emphasis", "a **b** *c* d*e", "<p>a <strong>b</strong> <em>c</em> d*e</p>\n"},
		{"code keeps what is in it", "`**a** <b>`", "<p><code>**a** &lt;b&gt;</code></p>\n"},
		{"a fence", "```go\nif a < b {\n\n}\n```\nafter", "<pre>if a &lt; b {\n\n}</pre>\n<p>after</p>\n"},
		{"a fence without an end", "~~~\nx", "<pre>x</pre>\n"},
		{"code by its margin", "a\n\n    <b>\n", "<p>a</p>\n<pre>&lt;b&gt;</pre>\n"},
		{
			"lists", "- a\n- b\n  more\n\n1. c\n2. d",
			"<ul>\n<li>a</li>\n<li>b<br>\nmore</li>\n</ul>\n<ol>\n<li>c</li>\n<li>d</li>\n</ol>\n",
		},
		{
			"a list in a list that begins at 3", "- a\n\n  3. b\n",
			"<ul>\n<li>\n<p>a</p>\n<ol start=\"3\">\n<li>b</li>\n</ol>\n</li>\n</ul>\n",
		},
		{"a quote", "> a\n> b", "<blockquote>\n<p>a<br>\nb</p>\n</blockquote>\n"},
		{"a rule", "a\n\n---", "<p>a</p>\n<hr>\n"},
		{
			"a table", "| a | b |\n|---|:--|\n| 1 | *2* |",
			"<table>\n<thead>\n<tr>\n<th>a</th>\n<th>b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n" +
				"<td><em>2</em></td>\n</tr>\n</tbody>\n</table>\n",
		},
		{
			"a link", "[a *b*](https://example.com/?x=1&y=2)",
			"<p>" + leads("https://example.com/?x=1&amp;y=2") + "a <em>b</em></a></p>\n",
		},
		{
			"an address in angles", "<https://example.com/>",
			"<p>" + leads("https://example.com/") + "https://example.com/</a></p>\n",
		},
		{"an image is a link", "![a](https://example.com/x.png)", "<p>" + leads("https://example.com/x.png") + "a</a></p>\n"},
	} {
		if got := string(markdown(c.in)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// TestMarkdownThatIsHostile: nothing of it runs or loads, and nothing of it is hidden from
// whoever decides.
func TestMarkdownThatIsHostile(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a script address", "[a](javascript:x)", "<p>[a](javascript:x)</p>\n"},
		{"a script address in other letters", "[a](JaVaScRiPt:x)", "<p>[a](JaVaScRiPt:x)</p>\n"},
		{"a script address with references", "[a](&#106;avascript&colon;x)", "<p>[a](javascript:x)</p>\n"},
		{"a script address with a tab", "[a](<java\tscript:x>)", "<p>[a](java\tscript:x)</p>\n"},
		{"a script address with escapes", `[a](javascript\:x)`, "<p>[a](javascript:x)</p>\n"},
		{"a script address in angles", "<javascript:x>", "<p>&lt;javascript:x&gt;</p>\n"},
		{"an image of a script address", "![a](javascript:x)", "<p>![a](javascript:x)</p>\n"},
		{"an image of bytes", "![a](data:image/png;base64,AAAA)", "<p>![a](data:image/png;base64,AAAA)</p>\n"},
		{"data", "[a](data:text/html,<script>)", "<p>[a](data:text/html,&lt;script&gt;)</p>\n"},
		{"a file", "[a](file:///etc/passwd)", "<p>[a](file:///etc/passwd)</p>\n"},
		{"a page of ours", "[a](/ui/settings)", "<p>[a](/ui/settings)</p>\n"},
		{"another host without a scheme", "[a](//example.com/)", "<p>[a](//example.com/)</p>\n"},
		{"mail", "<a@example.com>", "<p>&lt;a@example.com&gt;</p>\n"},
		{"a link by reference", "[a][b]\n\n[b]: javascript:x", "<p>[a][b]</p>\n<p>[b]: javascript:x</p>\n"},
		{"a comment by definition", "[//]: # (approve me)", "<p>[//]: # (approve me)</p>\n"},
		{"a footnote", "a[^1]\n\n[^1]: b", "<p>a[^1]</p>\n<p>[^1]: b</p>\n"},
		{"raw HTML", "<script>x</script>", "<p>&lt;script&gt;x&lt;/script&gt;</p>\n"},
		{"raw HTML in a line", "a <img src=x onerror=y> b", "<p>a &lt;img src=x onerror=y&gt; b</p>\n"},
		{"a block of raw HTML", "<div>\n*a*\n\n</div>", "<p>&lt;div&gt;<br>\n<em>a</em></p>\n<p>&lt;/div&gt;</p>\n"},
		{"a comment", "<!-- a -->", "<p>&lt;!-- a --&gt;</p>\n"},
		{"raw HTML by references", "&lt;b&gt; &#60;b&#62; &#x3c;b> &#0;", "<p>&lt;b&gt; &lt;b&gt; &lt;b&gt; \ufffd</p>\n"},
		{"raw HTML by escapes", `\<b\>`, "<p>&lt;b&gt;</p>\n"},
		{
			"an address that leaves its attribute", `[a](https://x/"onclick=y)`,
			"<p>" + leads("https://x/%22onclick=y") + "a</a></p>\n",
		},
		{
			"an address with marks", `[a](https://x/?'<b>&amp;)`,
			"<p>" + leads("https://x/?&#39;&lt;b&gt;&amp;") + "a</a></p>\n",
		},
		{"a title", `[a](https://x/ "t<b>\"")`, "<p>" + leads("https://x/") + "a</a> &#34;t&lt;b&gt;&#34;&#34;</p>\n"},
		{"a title of what may not be followed", `[a](x: 't')`, "<p>[a](x: &#34;t&#34;)</p>\n"},
		{"a link without a label", `[](https://x/)`, "<p>" + leads("https://x/") + "https://x/</a></p>\n"},
		{"a heading with attributes", "# a {#pwned onclick=x}", "<h3>a {#pwned onclick=x}</h3>\n"},
		{"a language that is a class", "``` \"><b\tx\nc\n```", "<pre>&#34;&gt;&lt;b\tx\nc</pre>\n"},
		{
			"a cell of raw HTML", "|a|\n|-|\n|<b>|",
			"<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n" +
				"<td>&lt;b&gt;</td>\n</tr>\n</tbody>\n</table>\n",
		},
		{
			"more cells than the head has", "|a|\n|-|\n| b | *c* | <d> |\n\\|",
			"<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>b</td>\n<td>*c* | &lt;d&gt;</td>\n" +
				"</tr>\n<tr>\n<td>\\</td>\n</tr>\n</tbody>\n</table>\n",
		},
	} {
		if got := string(markdown(c.in)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// endless are texts that take a parser or a page as far as a text of n bytes can.
func endless(n int) map[string]string {
	all := map[string]string{}
	for name, part := range map[string]string{
		"quotes": ">", "lists": "+ ", "numbers": "1. ", "emphasis": "*a **b ", "emphasis_both_ways": "*_", "stars": "*",
		"brackets": "[", "images": "![", "links": "[a](", "closed": "[](",
		"half_links": "[a](<b", "angles": "<a:", "ticks": "`a", "escapes": "\\", "references": "&#35;", "ampersands": "&",
		"cells": "|", "marks": `"`, "lines": "\n", "breaks": "a\\\n",
		"heads": "a\n-\n", "quoted_lists": "> - ", "tables": "|a\n|-\n",
	} {
		all[name] = strings.Repeat(part, n/len(part))
	}
	ticks := strings.Builder{} // fences of every length, none of which is closed
	for i := 1; ticks.Len() < n; i++ {
		ticks.WriteString(strings.Repeat("`", i) + " ")
	}
	all["ticks_of_every_length"] = ticks.String()[:n]
	deep := 1
	for deep*(deep+3) < n/2 {
		deep++
	}
	all["lists_with_lines"] = strings.Repeat("- ", deep) + "a\n" + strings.Repeat(strings.Repeat("  ", deep)+"b\n", deep/2)
	all["quotes_with_lines"] = strings.Repeat(strings.Repeat(">", deep)+"a\n\n", deep)
	all["wide_table"] = strings.Repeat("|a", n/8) + "\n" + strings.Repeat("|-", n/8) + "\n" + strings.Repeat("|\n", n/4)
	return all
}

// TestMarkdownStaysLight: pages have room for 24 KiB of Markdown, however deep it is.
func TestMarkdownStaysLight(t *testing.T) {
	for name, source := range endless(maxText) {
		t.Run(name, func(t *testing.T) {
			if out := string(markdown(source)); len(out) > 6*maxText {
				t.Errorf("%d bytes come of %d", len(out), len(source))
			}
		})
	}
	for name, c := range map[string]struct{ source, want string }{
		"quotes": {
			strings.Repeat(">", 10_000) + " <b>",
			strings.Repeat("<blockquote>\n", maxDepth) + "<p>" + strings.Repeat("&gt;", 10_000-maxDepth) + " &lt;b&gt;</p>\n",
		},
		"lists": {strings.Repeat("- ", 10_000) + "<b>", strings.Repeat("- ", 100)},
		"links": {strings.Repeat("[", 10_000), "<pre>[["},
		"table": {
			strings.Repeat("|a", 300) + "\n" + strings.Repeat("|-", 300) + "\n" + strings.Repeat("|b\n", 100),
			"|b<br>\n|b</p>",
		},
	} {
		if out := string(markdown(c.source)); !strings.Contains(out, c.want) {
			t.Errorf("%s that are too many are shown as %.100q", name, out)
		}
	}
}

// ourTags are all that Markdown can become.
var ourTags = regexp.MustCompile(
	`</?(p|h3|pre|code|ul|ol|li|blockquote|hr|br|table|thead|tbody|tr|th|td|strong|em)>|<ol start="\d+">|` +
		`<a href="https?://[^"<>]*" rel="noreferrer noopener nofollow" target="_blank">|</a>`,
)

func FuzzMarkdown(f *testing.F) {
	for _, seed := range []string{
		"# a\n- b\n> c\n```\nd", "[a](https://b) ![c](http://d) `e` **f** *g*",
		"|a|\n|-|\n|<img src=x onerror=y>|", "[`<`](https://x/<script>)", "**[a](https://b/**)**",
		"<https://a> <b:c>\n[d]: e", "|a`|\n|-|\n|`b\\|`|c|d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		rest := ourTags.ReplaceAllString(string(markdown(source)), "")
		if strings.ContainsAny(rest, "<>") {
			t.Errorf("%q leaves %q", source, rest)
		}
		if !utf8.ValidString(source) || strings.ContainsAny(source, "&`~<(") {
			return // what becomes of addresses, references and languages cannot be told so simply
		}
		seen := map[rune]int{}
		for _, r := range html.UnescapeString(rest) {
			seen[r]++
		}
		for _, r := range source {
			seen[r]--
			if seen[r] < 0 && (unicode.IsLetter(r) || unicode.IsSymbol(r) && r > unicode.MaxASCII) {
				t.Errorf("%q hides %q", source, r)
			}
		}
	})
}

// BenchmarkMarkdown takes as much Markdown as a page shows, of the worst kinds.
func BenchmarkMarkdown(b *testing.B) {
	all := endless(maxText)
	all["an_ordinary_text"] = strings.Repeat("## What I did\n\nI *moved* [the file](https://example.com/x) to `b.go`:\n"+
		"\n- one\n- two\n\n```go\nx := 1\n```\n\n", 300)[:maxText]
	all["a_line"] = "Done."
	for name, source := range all {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				markdown(source)
			}
		})
	}
}
