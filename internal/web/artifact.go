package web

import (
	"encoding/base64"
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"signalbox/internal/wire"
)

// artifact is something that an agent has attached, made safe to look at: nothing of it is run,
// and nothing is fetched.
type artifact struct {
	Number int
	Type   string // text, markdown, json, diff, image, link
	Title  string
	Text   string        // of text, json and link
	HTML   template.HTML // of markdown
	Image  template.URL  // of an image, as a data: address
	Link   string        // where a link leads, "" when it may not be one
	Diff   []diffRow
}

// maxArtifact is how many bytes of a gate's artifacts are shown. A page must stay light; the entry
// has all of it.
const maxArtifact = 24 << 10

// readArtifact finds out what an artifact is. What is not known is shown as JSON, and never left
// out: people decide by what they see.
func readArtifact(number int, raw wire.Raw, most int) artifact {
	var known struct {
		Type    string `json:"type"`
		Title   string `json:"title"`
		Name    string `json:"name"`
		Content any    `json:"content"`
		URL     string `json:"url"`
	}
	// The fallback shows everything as JSON, so that an unknown form hides nothing.
	a := artifact{Number: number + 1, Type: "json", Text: limitTo(most, pretty(raw))}
	var text string
	if wire.UnmarshalPart(raw, &text) == nil {
		a.Type, a.Text = "text", limitTo(most, text)
		return a
	}
	if wire.UnmarshalPart(raw, &known) != nil || known.Type == "" {
		return a
	}
	a.Title = known.Title
	if a.Title == "" {
		a.Title = known.Name
	}
	content, isText := known.Content.(string)
	// Some agents put the address of an image or a link into "url".
	if content == "" {
		content = known.URL
		isText = isText || known.URL != ""
	}
	if !isText {
		return a
	}
	a.fill(strings.ToLower(known.Type), content, most)
	return a
}

// fill shows the content by its type.
func (a *artifact) fill(kind, content string, most int) {
	switch kind {
	case "text", "plain", "log", "code":
		a.Type, a.Text = "text", limitTo(most, content)
	case "markdown", "md":
		a.Type, a.HTML = "markdown", markdown(limitTo(most, content))
	case "json":
		a.Type, a.Text = "json", limitTo(most, pretty(content))
	case "diff", "patch":
		a.Type, a.Diff = "diff", sideBySide(limitTo(most, content))
	// An image that would have to be fetched is shown as its address, and not as a link: following it
	// would tell its server who decides, and when.
	case "image":
		if at, ok := dataImage(content); ok {
			a.Type, a.Image = "image", at
		} else {
			a.Type, a.Text = "link", content
		}
	case "url", "link":
		a.Type, a.Text, a.Link = "link", content, webLink(content)
	}
}

// limit cuts what is too long for a page, and says so.
func limit(text string) string { return limitTo(maxArtifact, text) }

// limitTo cuts to most bytes, never inside of a character, and says where all of it is.
func limitTo(most int, text string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "\n… (cut here; the ledger's entry has all of it)"
}

// dataForm is an image that carries its own bytes. SVG is not among them, because it can contain
// scripts and links.
var dataForm = regexp.MustCompile(`^data:image/(png|jpeg|gif|webp);base64,([A-Za-z0-9+/=\s]+)$`)

// maxImage is the largest image that is shown, in bytes as encoded.
const maxImage = 64 << 10

// dataImage is the data: address of an image, if it is one of the allowed kinds and decodes.
func dataImage(content string) (template.URL, bool) {
	parts := dataForm.FindStringSubmatch(content)
	if parts == nil || len(content) > maxImage {
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
