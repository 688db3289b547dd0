package slack

import (
	"strings"

	"github.com/slack-go/slack"

	"github.com/signalbox/signalbox/internal/notify"
)

// The actions of our buttons. Others, such as that of the link, are not for us.
const (
	approveID = "signalbox_approve"
	rejectID  = "signalbox_reject"
	openID    = "signalbox_open"
)

var escaping = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape keeps text from being taken for a link or a mention.
func escape(text string) string { return escaping.Replace(text) }

// size is how many characters one takes after escaping.
func size(r rune) int { return len([]rune(escape(string(r)))) }

// render makes the blocks of a message, and the text for where blocks are not shown.
func render(m notify.Message) (blocks []slack.Block, text string) {
	text = escape(m.Headline(size))
	blocks = append(blocks, slack.NewSectionBlock(plain(text), nil, nil))
	for _, line := range m.Lines(size) {
		blocks = append(blocks, slack.NewSectionBlock(plain(line.Name+": "+escape(line.Text)), nil, nil))
	}
	if mentions := mention(m); mentions != "" {
		// The ids have been checked to be ids, and nothing else is in this one.
		blocks = append(blocks, slack.NewSectionBlock(slack.NewTextBlockObject(slack.MarkdownType, mentions, false, true), nil, nil))
	}
	return append(blocks, actions(m)), text
}

func plain(text string) *slack.TextBlockObject {
	return slack.NewTextBlockObject(slack.PlainTextType, text, false, false)
}

func mention(m notify.Message) string {
	var all []string
	for _, p := range m.Mentions(Name) {
		all = append(all, "<@"+p.Contacts[Name]+">")
	}
	return strings.Join(all, " ")
}

// actions are the buttons. The last one only opens the gate.
func actions(m notify.Message) slack.Block {
	var elements []slack.BlockElement
	if m.Approve != "" {
		elements = append(elements,
			slack.NewButtonBlockElement(approveID, m.Approve, plain("Approve")).WithStyle(slack.StylePrimary),
			slack.NewButtonBlockElement(rejectID, m.Reject, plain("Reject")).WithStyle(slack.StyleDanger))
	}
	elements = append(elements, slack.NewButtonBlockElement(openID, "", plain("Open")).WithURL(m.Link))
	return slack.NewActionBlock("", elements...)
}
