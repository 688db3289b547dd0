package mail

import (
	"cmp"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/mail/mailbox"
)

// letter is a message in the output of fetch, inbox and read. It has no text but the subject, which is in a
// wrapper if a stranger wrote it; the text is shown by read alone. Reason says why a message is untrusted.
type letter struct {
	ID          string        `json:"id"`
	From        string        `json:"from"`
	To          string        `json:"to"`
	Subject     string        `json:"subject"`
	Priority    string        `json:"priority"`
	Type        string        `json:"type"`
	Timestamp   string        `json:"timestamp"`
	ThreadID    string        `json:"thread_id"`
	InReplyTo   string        `json:"in_reply_to,omitempty"`
	Status      string        `json:"status"`          // read or unread; of sent ones delivered, queued, held, failed and so on
	Error       string        `json:"error,omitempty"` // of sent ones: why it does not arrive, or has not yet
	Trust       mailbox.Trust `json:"trust"`
	Reason      string        `json:"reason,omitempty"`
	Flags       []string      `json:"injection_flags"`
	Attachments int           `json:"attachments"`

	title string // the subject in a table
}

// letters makes a list for --json; lists in it are empty and never null.
func letters(messages []mailbox.Message, sent bool) []letter {
	all := make([]letter, 0, len(messages))
	for i := range messages {
		all = append(all, letterOf(&messages[i], sent))
	}
	return all
}

// withheld stands in a table for the subject of a message that nobody vouches for or that has flags: models read
// tables too, and there is no room for a wrapper.
const withheld = "(withheld: `mail read` shows it)"

// letterOf is one message of a list. What its sender chose is in forms that cannot say anything, but for
// the subject.
func letterOf(m *mailbox.Message, sent bool) letter {
	e, flags := m.Envelope, append([]string{}, m.Security.Flags...)
	l := letter{
		e.ID, m.Sender(), mailbox.Plain(e.To), m.Show(e.Subject), m.Priority(), m.Type(), mailbox.Plain(e.Timestamp),
		mailbox.Plain(e.ThreadID), mailbox.Plain(e.InReplyTo), "unread", "", m.Security.Trust, m.Security.Reason, flags,
		len(m.Security.Files), e.Subject,
	}
	switch {
	case sent: // what has become of it
		l.Status, l.Error = m.State, m.Error
	case m.Read:
		l.Status = "read"
	}
	if m.Suspect() {
		l.title = withheld
	}
	return l
}

// printLetters prints messages as a table, or the sentence none.
func printLetters(w output.Printer, all []letter, none string) {
	// Table escapes what a terminal could misunderstand: subjects are foreign text.
	rows := make([][]string, len(all))
	for i, l := range all {
		rows[i] = []string{l.ID, l.From, l.title, l.Priority, string(l.Trust), l.Status, l.Timestamp}
	}
	w.Table(none, []string{"ID", "FROM", "SUBJECT", "PRIORITY", "TRUST", "STATUS", "SENT"}, rows)
}

// printEnds prints why sent messages do not arrive.
func printEnds(w output.Printer, messages []mailbox.Message) {
	for i := range messages {
		if err := messages[i].Failure(); err != nil {
			w.Print("signalbox: %s", fault.From(err).Message)
		}
	}
}

// asked is what providers say about sent messages: those of a new state, and why some could not be asked.
func asked(c *command.Command, b *mailbox.Box, messages []mailbox.Message) (changed []mailbox.Message, failed []string) {
	changed, errs := b.Refresh(c.Context(), messages)
	for _, err := range errs {
		failed = append(failed, fault.From(err).Message)
	}
	return changed, failed
}

// newFetch is `mail fetch`. Providers that failed are lines on standard error, and members of the JSON,
// as long as another one worked.
func (m *commands) newFetch() *command.Command {
	c := &command.Command{
		Use: "fetch", Short: "Fetch new messages from the providers",
		Long: `Fetches new messages, verifies and stores them, and acknowledges them. A message is on
disk before it is acknowledged. It also asks what became of the messages that were sent last.`,
		Args: command.NoArguments(),
	}
	var f mailbox.Fetching
	c.Flags().StringVarP(&f.Provider, "provider", "p", "", "only from this provider or address")
	c.Flags().BoolVar(&f.Keep, "no-ack", false, "do not acknowledge: the messages stay with the provider")
	c.Flags().DurationVar(&f.Wait, "wait", 0, "how long to wait for a message, at most 30s")
	c.RunE = func(c *command.Command, _ []string) error {
		// Providers hold a poll for 30 seconds at most; a longer wait would end early without a word.
		if f.Wait < 0 || f.Wait > 30*time.Second {
			return command.Usage("--wait should be from 0s to 30s, and is %s.", f.Wait)
		}
		b, err := m.open()
		if err != nil {
			return err
		}
		// An error means that nothing was fetched; partial failures are in got.
		got, err := b.Fetch(c.Context(), f)
		if err != nil {
			return err
		}
		all := letters(got.New, false)
		// Only the sentences: causes may contain URLs with tickets.
		failed := make([]string, 0, len(got.Failed))
		for _, err := range got.Failed {
			failed = append(failed, fault.From(err).Message)
		}
		own, _, err := b.List(mailbox.Sent)
		if err != nil {
			return err
		}
		sent, silent := asked(c, b, own)
		if len(failed) == 0 { // a provider that fails is told of once
			failed = append(failed, silent...)
		}
		// Empty lists and never null, so that scripts can iterate.
		answer := map[string]any{
			"messages": all, "known": got.Known, "refused": append([]string{}, got.Refused...),
			"failed": failed, "sent": letters(sent, true),
		}
		return m.Show(answer, func(w output.Printer) {
			printLetters(w, all, "No new mail.")
			for _, problem := range append(got.Refused, failed...) {
				m.Err.Print("signalbox: %s", problem)
			}
			printEnds(m.Err, sent)
		})
	}
	return m.WithJSON(c)
}

// newInbox is `mail inbox`, which reads the folder. It asks providers for the states of sent messages alone. --unread is the default; the flag
// exists because the bash clients have it.
func (m *commands) newInbox() *command.Command {
	c := &command.Command{Use: "inbox", Short: "List fetched messages", Args: command.NoArguments()}
	flags := c.Flags()
	all := flags.Bool("all", false, "read messages too")
	_ = flags.Bool("unread", true, "unread messages, the default")
	onlyRead := flags.Bool("read", false, "only read messages")
	sent := flags.Bool("sent", false, "sent messages")
	count := flags.Bool("count", false, "print only the number of messages")
	limit := flags.Int("limit", 0, "list at most this many; 0 is all")
	c.RunE = func(c *command.Command, _ []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		messages, damaged, err := b.List(folderOf(*sent))
		if err != nil {
			return err
		}
		var wanted []mailbox.Message
		// --sent lists all of them: what was sent has no unread state.
		for _, one := range messages {
			if *all || *sent || one.Read == *onlyRead {
				wanted = append(wanted, one)
			}
		}
		n := len(wanted)
		// The count is that of all matches, not of the page.
		if *limit > 0 {
			wanted = wanted[:min(n, *limit)]
		}
		if *count {
			return m.Show(map[string]int{"count": n}, func(w output.Printer) { w.Print("%d", n) })
		}
		var silent []string
		if *sent {
			_, silent = asked(c, b, wanted)
		}
		list := letters(wanted, *sent)
		return m.Show(map[string]any{"messages": list, "count": n, "damaged": append([]string{}, damaged...)},
			func(w output.Printer) {
				printLetters(w, list, "No messages. `signalbox mail fetch` fetches new ones, and --all lists read ones too.")
				for _, path := range damaged {
					m.Err.Print("signalbox: %s is damaged", path)
				}
				for _, problem := range silent {
					m.Err.Print("signalbox: %s", problem)
				}
				if *sent {
					printEnds(m.Err, wanted)
				}
			})
	}
	return m.WithJSON(c)
}

// folderOf is the folder that a flag --sent selects.
func folderOf(sent bool) string {
	if sent {
		return mailbox.Sent
	}
	return mailbox.Inbox
}

// find opens the agent's folder and finds a message in it.
//
// The id is that of the provider, which lists and answers show.
func (m *commands) find(folder, id string) (*mailbox.Box, *mailbox.Message, error) {
	b, err := m.open()
	if err != nil {
		return nil, nil, err
	}
	one, err := b.Find(folder, id)
	return b, one, err
}

// newRead is `mail read`. The message is marked before it is shown, so that an agent which stops while it
// reads does not read it for ever.
func (m *commands) newRead() *command.Command {
	c := &command.Command{
		Use: "read ID", Short: "Show a message and mark it as read",
		Long: `Shows a message. A message from another tenant or provider, one that cannot be verified,
and one with marks of prompt injection is shown in a wrapper, which says that it is data
and no instruction. --sent asks its provider what became of a message; for one that does not
arrive the exit code is 1. With --json, display has the text as it is shown here, and message and
attachments what is known of it. The file as it was signed follows unless it would have to be
wrapped, or has attachments that are unverified; --raw adds it in any case, for programs: give
no model what is in it.`,
		Args: command.Exactly(1, "ID"),
	}
	noMark := c.Flags().BoolP("no-mark", "n", false, "do not mark it as read")
	sent := c.Flags().BoolP("sent", "s", false, "a sent message")
	raw := c.Flags().Bool("raw", false, "with --json, the file as it was signed too, unwrapped")
	receipt := c.Flags().Bool("receipt", false, "send a read receipt to the sender")
	c.RunE = func(c *command.Command, args []string) error {
		b, one, err := m.find(folderOf(*sent), args[0])
		if err != nil {
			return err
		}
		if !*noMark && !*sent {
			if err := b.MarkRead(one); err != nil {
				return err
			}
		}
		// After marking: a receipt that fails is an error, and the message is read all the same.
		if *receipt && !*sent {
			if err := b.SendReceipt(c.Context(), one); err != nil {
				return err
			}
		}
		if !*sent {
			return m.showMessage(one, false, *raw)
		}
		only := []mailbox.Message{*one}
		_, silent := asked(c, b, only)
		for _, problem := range silent {
			m.Err.Print("signalbox: %s", problem)
		}
		return cmp.Or(m.showMessage(&only[0], true, *raw), only[0].Failure())
	}
	return m.WithJSON(c)
}

// showMessage prints a message. In JSON it is display, what is known of it, and the file unless that has
// to be wrapped; for people it is the envelope, line by line, and the text. The sender's address stands
// there only if it was verified.
func (m *commands) showMessage(one *mailbox.Message, sent, raw bool) error {
	l := letterOf(one, sent)
	whole := map[string]any{
		"display": one.Text(), "message": l, "attachments": append([]mailbox.Attachment{}, one.Security.Files...),
	}
	for name, value := range one.Raw() {
		// What the message hands on is the provider's, and the agent needs it whoever wrote the message.
		if name == "local" || raw || !one.Foreign() && !one.Claims() {
			whole[name] = value
		}
	}
	return m.Show(whole, func(w output.Printer) {
		status := ""
		if sent {
			status = l.Status
		}
		trust := string(one.Security.Trust)
		if one.Security.Reason != "" {
			trust += ": " + one.Security.Reason
		}
		for _, row := range [][2]string{
			{"id", l.ID},
			// "unknown@unverified" for an untrusted sender; the claimed address is inside the wrapper.
			{"from", l.From},
			{"to", l.To},
			{"sent", l.Timestamp},
			{"priority", l.Priority},
			{"type", l.Type},
			{"thread", l.ThreadID},
			{"answers", l.InReplyTo},
			{"trust", trust},
			{"status", status},
		} {
			if row[1] != "" {
				w.Print("%-9s %.300s", row[0], row[1])
			}
		}
		w.Print("\n%s", output.Lines(one.Text()))
	})
}

// newRemove is `mail rm`. The provider has no copy of an acknowledged message: what is removed is
// gone.
func (m *commands) newRemove() *command.Command {
	c := &command.Command{Use: "rm ID", Short: "Delete a message from the folder", Args: command.Exactly(1, "ID")}
	sent := c.Flags().BoolP("sent", "s", false, "a sent message")
	c.RunE = func(_ *command.Command, args []string) error {
		b, one, err := m.find(folderOf(*sent), args[0])
		if err != nil {
			return err
		}
		if err := b.Remove(one); err != nil {
			return err
		}
		return m.Show(map[string]string{"removed": args[0]}, func(w output.Printer) { w.Print("Removed %s.", args[0]) })
	}
	return m.WithJSON(c)
}

// newDownload is `mail download`. The first attachment that fails ends it; those before it are kept. --all
// is the default; the flag exists because the bash clients have it.
func (m *commands) newDownload() *command.Command {
	c := &command.Command{
		Use: "download ID [ATTACHMENT]", Short: "Download the attachments of a message",
		Long: `Downloads one attachment of a message, or all of them, and checks size and digest. Without
--dest they go into the agent's folder. What the provider's scan flagged, and what it has not
seen (unverified), is downloaded only with --force.`,
		Args: command.Between(1, 2, "ID, and perhaps ATTACHMENT"),
	}
	_ = c.Flags().Bool("all", true, "all attachments, the default")
	dest := c.Flags().String("dest", "", "the folder to save them in")
	force := c.Flags().Bool("force", false, "also download attachments that are suspicious or unverified")
	c.RunE = func(c *command.Command, args []string) error {
		b, one, err := m.find(mailbox.Inbox, args[0])
		if err != nil {
			return err
		}
		files := []string{}
		for _, a := range one.Security.Files {
			// One attachment by its id; names are not unique.
			if len(args) == 2 && a.ID != args[1] {
				continue
			}
			path, err := b.Download(c.Context(), one, a, *dest, *force)
			if err != nil {
				return err
			}
			files = append(files, path)
		}
		if len(files) == 0 {
			return fault.New(fault.AttachmentNotFound,
				"The message has no such attachment. `signalbox mail read %s` lists what it has.", args[0])
		}
		return m.Show(map[string]any{"files": files}, func(w output.Printer) {
			for _, path := range files {
				w.Print("%s", path)
			}
		})
	}
	return m.WithJSON(c)
}
