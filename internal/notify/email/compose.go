package email

import (
	"html/template"
	"strings"

	gomail "github.com/wneessen/go-mail"

	"github.com/signalbox/signalbox/internal/notify"
)

// page is the HTML part. The template escapes whatever is put into it, and what agents
// wrote is never an attribute.
var page = template.Must(template.New("mail").Parse(`<!doctype html>
<html><body style="font-family: sans-serif">
<h3>{{.Headline}}</h3>
<table cellpadding="4">
{{range .Lines}}<tr><td valign="top"><b>{{.Name}}</b></td><td style="white-space: pre-wrap">{{.Text}}</td></tr>
{{end}}</table>
<p><a href="{{.Link}}">{{.Link}}</a></p>
</body></html>
`))

type content struct {
	Headline string
	Lines    []notify.Line
	Link     string
}

// size lets an e-mail hold as much as a chat.
func size(rune) int { return 1 }

// compose makes the message and its id.
func (b *Mailbox) compose(m notify.Message) (msg *gomail.Msg, messageID string, err error) {
	c := content{m.Headline(size), m.Lines(size), m.Link}
	var rich, plain strings.Builder
	if err := page.Execute(&rich, c); err != nil {
		return nil, "", err
	}
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
	if m.Earlier != "" {
		msg.SetGenHeader(gomail.HeaderInReplyTo, "<"+m.Earlier+">")
		msg.SetGenHeader(gomail.HeaderReferences, "<"+m.Earlier+">")
	}
	msg.SetBulk() // nobody's absence is to be told to us
	msg.SetDateWithValue(m.At)
	msg.Subject("[Signalbox] " + c.Headline) // one line, see Message.Headline
	msg.SetBodyString(gomail.TypeTextPlain, plain.String())
	msg.AddAlternativeString(gomail.TypeTextHTML, rich.String())
	return msg, messageID, nil
}
