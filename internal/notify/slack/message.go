package slack

import (
	"iter"
	"strings"
	"unicode/utf16"

	"signalbox/internal/notify"
)

// The action ids of our buttons. Presses of others, such as that of the link, are ignored.
const (
	approveID = "signalbox_approve"
	rejectID  = "signalbox_reject"
	openID    = "signalbox_open"
)

var escaping = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape keeps text from being read as a link or a mention.
func escape(text string) string { return escaping.Replace(text) }

// size is how many characters a character takes after escaping, as JavaScript counts them.
func size(r rune) int { return len(utf16.Encode([]rune(escape(string(r))))) }

// room is how much a message holds. Slack refuses blocks of more than about 11,000 characters in all,
// with a limit that it does not name.
func room() notify.Room { return notify.Room{Most: 6000, Size: size} }

// maxSection is how much one section holds.
const maxSection = 3000

// block is a part of a message, as Slack's Block Kit has it.
type block map[string]any

// render makes the blocks of a message, and the text for where blocks are not shown, such as
// notifications. What agents wrote is in plain_text blocks only: mrkdwn could link and mention.
func render(m notify.Message) (blocks []block, text string) {
	text = escape(m.Headline)
	blocks = append(blocks, section(plain(text)))
	for _, line := range m.Lines {
		for piece := range pieces(line.Name + ": " + line.Text) {
			blocks = append(blocks, section(plain(escape(piece))))
		}
	}
	if mentions := mention(m); mentions != "" {
		// The ids have been checked to be ids, and nothing else is in this one.
		blocks = append(blocks, section(block{"type": "mrkdwn", "text": mentions, "verbatim": true}))
	}
	return append(blocks, actions(m)), text
}

// pieces are a text in parts that a section holds.
func pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		used, from := 0, 0
		for at, r := range text {
			if used += size(r); used > maxSection {
				if !yield(text[from:at]) {
					return
				}
				used, from = size(r), at
			}
		}
		yield(text[from:])
	}
}

// section is a part of a message. Without expand Slack would fold a long one.
func section(text block) block { return block{"type": "section", "text": text, "expand": true} }

func plain(text string) block { return block{"type": "plain_text", "text": text, "emoji": false} }

func button(action, label string) block {
	return block{"type": "button", "action_id": action, "text": plain(label)}
}

// mention lists the people whom the message asks. Their ids were checked when they were set.
func mention(m notify.Message) string {
	var all []string
	for _, p := range m.Mentions(Name) {
		all = append(all, "<@"+p.Contacts[Name]+">")
	}
	return strings.Join(all, " ")
}

// actions are the buttons. The last one only opens the gate.
func actions(m notify.Message) block {
	elements := []block{}
	if m.Approve != "" {
		approve, reject := button(approveID, "Approve"), button(rejectID, "Reject")
		approve["value"], approve["style"] = m.Approve, "primary"
		reject["value"], reject["style"] = m.Reject, "danger"
		elements = append(elements, approve, reject)
	}
	open := button(openID, "Open")
	open["url"] = m.Link
	return block{"type": "actions", "elements": append(elements, open)}
}
