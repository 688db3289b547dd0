package web

import (
	"encoding/base64"
	"html"
	"html/template"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"signalbox/internal/gate"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

// artifact is something that an agent has attached, made safe to look at: nothing of it is run,
// and nothing is fetched.
type artifact struct {
	gate.Artifact
	Number   int
	HTML     template.HTML // of markdown
	Image    template.URL  // of an image, as a data: address
	Link     string        // where a link leads, "" when it may not be one
	Diff     []diffRow
	Cut      *gate.Unshown // what is not shown, nil when all of it is
	Download string        // where the bytes are
}

// readArtifact prepares an artifact for the template "artifact".
func readArtifact(raw wire.Raw) artifact {
	a := artifact{Artifact: gate.ReadArtifact(raw)}
	switch content := a.Text; a.Type {
	case "json":
		a.Text = pretty(content)
	case "markdown":
		a.HTML = markdown(content)
	case "diff":
		a.Diff = sideBySide(content)
	// An image that would have to be fetched is shown as its address, and not as a link: following it
	// would tell its server who decides, and when.
	case "image":
		image, ok := dataImage(content)
		if a.Image = image; !ok {
			a.Type = "link"
		}
	case "link":
		a.Link = webLink(content)
	}
	return a
}

// diffHTML is the rows of a difference. A template would take ten times as long, and there may be tens of
// thousands.
func diffHTML(rows []diffRow) template.HTML {
	var b strings.Builder
	cell := func(class, text string) {
		b.WriteString(`<td class="` + class + `">` + html.EscapeString(text) + "</td>")
	}
	side := func(changed bool, class string, number int, text string) {
		shownNumber := ""
		if number > 0 {
			shownNumber = strconv.Itoa(number)
		}
		if !changed || number == 0 {
			class = ""
		}
		cell("no", shownNumber)
		cell(class, show.Lines(text))
	}
	for _, row := range rows {
		switch row.Kind {
		case "file", "hunk":
			b.WriteString(`<tr class="d-` + row.Kind + `"><td colspan="4">` + html.EscapeString(show.Lines(row.Text)) + "</td>")
		default:
			b.WriteString("<tr>")
			side(row.Kind == "change", "del", row.OldNo, row.Old)
			side(row.Kind == "change", "add", row.NewNo, row.New)
		}
		b.WriteString("</tr>")
	}
	return template.HTML(b.String()) //nolint:gosec // every text is escaped
}

// maxText is how many bytes of a text are on a page that nobody decides by.
const maxText = 24 << 10

// limit cuts to maxText, never inside of a character, and says where all of it is.
func limit(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "\n… (cut here; the ledger's entry has all of it)"
}

// dataForm is an image that carries its own bytes. SVG is not among them, because it can contain
// scripts and links.
var dataForm = regexp.MustCompile(`^data:image/(png|jpeg|gif|webp);base64,([A-Za-z0-9+/=\s]+)$`)

// dataImage is the data: address of an image, if it is one of the allowed kinds and decodes.
func dataImage(content string) (template.URL, bool) {
	parts := dataForm.FindStringSubmatch(content)
	if parts == nil {
		return "", false
	}
	// Base64 is often wrapped, which browsers do not accept in an attribute.
	encoded := strings.Join(strings.Fields(parts[2]), "")
	if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
		return "", false
	}
	return template.URL("data:image/" + parts[1] + ";base64," + encoded), true //nolint:gosec // checked above
}

// webLink is an address that a person may follow, "" for any scheme but http and https.
func webLink(content string) string {
	u, err := url.Parse(strings.TrimSpace(content))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	return u.String()
}
