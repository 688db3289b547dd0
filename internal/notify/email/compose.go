package email

import (
	"html"
	"strings"

	gomail "github.com/wneessen/go-mail"

	"signalbox/internal/notify"
)

// content is what both parts of an e-mail show.
type content struct {
	Headline string
	Lines    []notify.Line
	Link     string
}

// page is the HTML part. Everything that goes into it is escaped, so what agents write is text. It
// is written by hand: a heading, a table and a link need no template.
func (c content) page() string {
	var out strings.Builder
	text := html.EscapeString
	out.WriteString("<!doctype html>\n<html><body style=\"font-family: sans-serif\">\n<h3>" + text(c.Headline) +
		"</h3>\n<table cellpadding=\"4\">\n")
	for _, line := range c.Lines {
		out.WriteString("<tr><td valign=\"top\"><b>" + text(line.Name) + "</b></td><td style=\"white-space: pre-wrap\">" +
			text(line.Text) + "</td></tr>\n")
	}
	out.WriteString("</table>\n<p><a href=\"" + text(c.Link) + "\">" + text(c.Link) + "</a></p>\n</body></html>\n")
	return out.String()
}

// Room is enough for whatever a gate shows; mail servers take ten times as much.
func (b *Mailbox) Room() notify.Room {
	return notify.Room{Most: 1 << 20, Size: func(rune) int { return 1 }}
}

// compose makes the message and its id. The id follows from the delivery's, so a message that is
// sent twice is recognised as one by mail readers.
func (b *Mailbox) compose(m notify.Message) (msg *gomail.Msg, messageID string, err error) {
	c := content{m.Headline, m.Lines, m.Link}
	var plain strings.Builder
	plain.WriteString(c.Headline + "\n\n")
	for _, line := range c.Lines {
		plain.WriteString(line.Name + ": " + line.Text + "\n")
	}
	plain.WriteString("\n" + c.Link + "\n")

	msg = gomail.NewMsg()
	if err := msg.From(b.from); err != nil {
		return nil, "", err
	}
	if err := msg.To(b.to); err != nil {
		return nil, "", err
	}
	messageID = m.ID + "@" + b.domain
	msg.SetMessageIDWithValue(messageID)
	// Mail readers then show the messages about one gate together.
	if m.Earlier != "" {
		msg.SetGenHeader(gomail.HeaderInReplyTo, "<"+m.Earlier+">")
		msg.SetGenHeader(gomail.HeaderReferences, "<"+m.Earlier+">")
	}
	msg.SetBulk() // nobody's absence is to be told to us
	msg.SetDateWithValue(m.At)
	msg.Subject("[Signalbox] " + c.Headline) // one line, see Message
	msg.SetBodyString(gomail.TypeTextPlain, plain.String())
	msg.AddAlternativeString(gomail.TypeTextHTML, c.page())
	return msg, messageID, nil
}
