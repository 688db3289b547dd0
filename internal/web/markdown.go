package web

import (
	"html"
	"html/template"
	"regexp"
	"strings"
)

// markdown shows the part of Markdown that agents write: headings, paragraphs, lists,
// quotes, tables, code, emphasis and links to the web. All text is escaped first and only
// our own elements are put around it, so raw HTML stays text; images are links, since to
// show them would be to fetch them.
func markdown(text string) template.HTML {
	m := marking{lines: strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")}
	for len(m.lines) > 0 {
		m.block()
	}
	return template.HTML(m.out.String()) //nolint:gosec // escaped in inline and code
}

type marking struct {
	lines []string
	out   strings.Builder
}

var (
	headingForm = regexp.MustCompile(`^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$`)
	bulletForm  = regexp.MustCompile(`^ {0,3}[-*+]\s+(.*)$`)
	numberForm  = regexp.MustCompile(`^ {0,3}\d{1,9}[.)]\s+(.*)$`)
	quoteForm   = regexp.MustCompile(`^ {0,3}> ?(.*)$`)
	ruleForm    = regexp.MustCompile(`^ {0,3}([-*_])(\s*[-*_]){2,}\s*$`)
	tableForm   = regexp.MustCompile(`^\s*\|?(\s*:?-+:?\s*\|)+\s*:?-*:?\s*$`)
	fenceForm   = regexp.MustCompile("^ {0,3}(```+|~~~+)")
)

// block takes one block off the lines.
func (m *marking) block() {
	line := m.lines[0]
	switch {
	case strings.TrimSpace(line) == "":
		m.lines = m.lines[1:]
	case fenceForm.MatchString(line):
		m.code(fenceForm.FindStringSubmatch(line)[1])
	case headingForm.MatchString(line):
		m.wrap("h3", inline(headingForm.FindStringSubmatch(line)[2]))
		m.lines = m.lines[1:]
	case ruleForm.MatchString(line):
		m.out.WriteString("<hr>")
		m.lines = m.lines[1:]
	case bulletForm.MatchString(line):
		m.list("ul", bulletForm)
	case numberForm.MatchString(line):
		m.list("ol", numberForm)
	case quoteForm.MatchString(line):
		m.wrap("blockquote", inline(strings.Join(m.take(quoteForm), "\n")))
	case len(m.lines) > 1 && strings.Contains(line, "|") && tableForm.MatchString(m.lines[1]):
		m.table()
	default:
		m.paragraph()
	}
}

// wrap puts an element of ours around what is escaped already.
func (m *marking) wrap(element, inner string) {
	m.out.WriteString("<" + element + ">" + inner + "</" + element + ">")
}

// take takes the lines that have a form, without what marks them.
func (m *marking) take(form *regexp.Regexp) (all []string) {
	for len(m.lines) > 0 && form.MatchString(m.lines[0]) {
		all = append(all, form.FindStringSubmatch(m.lines[0])[1])
		m.lines = m.lines[1:]
	}
	return all
}

func (m *marking) code(fence string) {
	m.lines = m.lines[1:]
	var inside []string
	for len(m.lines) > 0 {
		line := m.lines[0]
		m.lines = m.lines[1:]
		if strings.HasPrefix(strings.TrimSpace(line), fence) {
			break
		}
		inside = append(inside, line)
	}
	m.wrap("pre", html.EscapeString(strings.Join(inside, "\n")))
}

func (m *marking) list(element string, form *regexp.Regexp) {
	var items strings.Builder
	for len(m.lines) > 0 && form.MatchString(m.lines[0]) {
		item := form.FindStringSubmatch(m.lines[0])[1]
		m.lines = m.lines[1:]
		for len(m.lines) > 0 && strings.HasPrefix(m.lines[0], "  ") && strings.TrimSpace(m.lines[0]) != "" { // goes on
			item += "\n" + strings.TrimSpace(m.lines[0])
			m.lines = m.lines[1:]
		}
		items.WriteString("<li>" + inline(item) + "</li>")
	}
	m.wrap(element, items.String())
}

func (m *marking) table() {
	var rows strings.Builder
	for i := 0; len(m.lines) > 0 && strings.Contains(m.lines[0], "|"); i++ {
		cell := map[bool]string{true: "th", false: "td"}[i == 0]
		if i != 1 { // the second line only says that it is a table
			rows.WriteString("<tr>")
			for _, text := range strings.Split(strings.Trim(strings.TrimSpace(m.lines[0]), "|"), "|") {
				rows.WriteString("<" + cell + ">" + inline(strings.TrimSpace(text)) + "</" + cell + ">")
			}
			rows.WriteString("</tr>")
		}
		m.lines = m.lines[1:]
	}
	m.wrap("table", rows.String())
}

func (m *marking) paragraph() {
	var all []string
	for len(m.lines) > 0 && strings.TrimSpace(m.lines[0]) != "" {
		line := m.lines[0]
		if len(all) > 0 && (fenceForm.MatchString(line) || headingForm.MatchString(line) || bulletForm.MatchString(line) || quoteForm.MatchString(line)) {
			break
		}
		all = append(all, strings.TrimSpace(line))
		m.lines = m.lines[1:]
	}
	m.wrap("p", inline(strings.Join(all, "\n")))
}

var (
	codeForm   = regexp.MustCompile("`([^`\n]+)`")
	linkForm   = regexp.MustCompile(`!?\[([^\[\]]*)\]\(([^()\s]+)\)`)
	strongForm = regexp.MustCompile(`\*\*([^*\n]+)\*\*`)
	emForm     = regexp.MustCompile(`\*([^*\s][^*\n]*)\*`)
)

// inline escapes a text and marks what is in it. Code is left as it stands.
func inline(text string) string {
	var out strings.Builder
	at := 0
	for _, found := range codeForm.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(marked(text[at:found[0]]))
		out.WriteString("<code>" + html.EscapeString(text[found[2]:found[3]]) + "</code>")
		at = found[1]
	}
	out.WriteString(marked(text[at:]))
	return out.String()
}

// marked is a text without code. Links are cut out first, so that emphasis cannot reach
// into an address.
func marked(text string) string {
	var out strings.Builder
	at := 0
	for _, found := range linkForm.FindAllStringSubmatchIndex(text, -1) {
		link := webLink(text[found[4]:found[5]])
		if link == "" {
			continue // it stays text
		}
		out.WriteString(emphasised(text[at:found[0]]))
		out.WriteString(`<a href="` + html.EscapeString(link) + `" rel="noreferrer noopener nofollow" target="_blank">` + emphasised(text[found[2]:found[3]]) + `</a>`)
		at = found[1]
	}
	out.WriteString(emphasised(text[at:]))
	return out.String()
}

func emphasised(text string) string {
	text = strings.ReplaceAll(html.EscapeString(text), "\n", "<br>")
	text = strongForm.ReplaceAllString(text, "<strong>$1</strong>")
	return emForm.ReplaceAllString(text, "<em>$1</em>")
}
