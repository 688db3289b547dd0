package mail

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/mail/mailbox"
)

// maxTyped bounds a text from standard input, in bytes. Providers accept less, and say so; this only
// keeps an endless pipe out of memory.
const maxTyped = 1 << 20

// body is the text of a message: the argument, or standard input for "-", without the last line feed
// that a shell adds.
func (m *commands) body(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	// A longer text is cut here, and then refused by the provider, which takes 64 KiB.
	text, err := io.ReadAll(io.LimitReader(m.In, maxTyped))
	return strings.TrimSuffix(string(text), "\n"), err
}

// newSend is `mail send`.
func (m *commands) newSend() *command.Command {
	c := &command.Command{
		Use: "send TO SUBJECT TEXT", Short: "Send a message",
		Long: `Signs a message and sends it. TO is an address or a short form: bob is an agent of the
same tenant, bob@acme one of another tenant of the same provider. If TEXT is -, the text
is read from standard input.`,
		Args: command.Exactly(3, "TO, SUBJECT and TEXT"),
	}
	d := m.draftFlags(c)
	flags := c.Flags()
	flags.StringVarP(&d.InReplyTo, "reply-to", "r", "", "the id of the message that this one answers")
	flags.StringVar(&d.ThreadID, "thread-id", "", "the thread that this message belongs to")
	flags.StringVar(&d.From, "from", "", "the address or provider to send from, if the agent has several")
	c.RunE = func(c *command.Command, args []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		d.To, d.Subject = args[0], args[1]
		if d.Body, err = m.body(args[2]); err != nil {
			return err
		}
		return m.send(c, b, *d)
	}
	return m.WithJSON(c)
}

// newReply is `mail reply`. Address, subject, thread, type and priority come from the message; flags
// change the last two only.
func (m *commands) newReply() *command.Command {
	c := &command.Command{
		Use: "reply ID TEXT", Short: "Reply to a message",
		Long: `Replies to a message of the inbox, in its thread and with its priority. If TEXT is -, the
text is read from standard input.`,
		Args: command.Exactly(2, "ID and TEXT"),
	}
	more := m.draftFlags(c)
	c.RunE = func(c *command.Command, args []string) error {
		b, answered, err := m.find(mailbox.Inbox, args[0])
		if err != nil {
			return err
		}
		text, err := m.body(args[1])
		if err != nil {
			return err
		}
		d, err := b.Reply(answered, text)
		if err != nil {
			return err
		}
		// Everything else is taken from the message that is answered.
		d.Context, d.Files, d.Receipt, d.Key = more.Context, more.Files, more.Receipt, more.Key
		// Changed and not the value: "" would replace the message's own priority.
		if c.Flags().Changed("priority") {
			d.Priority = more.Priority
		}
		if c.Flags().Changed("type") {
			d.Type = more.Type
		}
		return m.send(c, b, d)
	}
	return m.WithJSON(c)
}

// draftFlags adds the flags that send and reply share. The draft is filled in when the flags have been
// parsed.
//
// reply has them too, but not --from, --reply-to and --thread-id: the message says those.
func (m *commands) draftFlags(c *command.Command) *mailbox.Draft {
	d := &mailbox.Draft{}
	flags := c.Flags()
	flags.StringVarP(&d.Priority, "priority", "p", "", "low, normal, high or urgent")
	flags.StringVarP(&d.Type, "type", "t", "", "request, response, notification, update or another word")
	flags.StringArrayVarP(&d.Files, "attach", "a", nil, "a file to attach; may be repeated")
	flags.BoolVar(&d.Receipt, "receipt", false, "ask for a receipt of the delivery")
	flags.StringVar(&d.Key, "idempotency-key", "", "repeated calls with the same key send the message once")
	context := flags.StringP("context", "c", "", "a JSON object for programs")
	// The draft refers to the flags, whose values exist only now.
	c.PreRunE = func(*command.Command, []string) error {
		if c.Flags().Changed("context") {
			d.Context = []byte(strings.TrimSpace(*context) + " ") // "" is no object, and refused as such
		}
		return nil
	}
	return d
}

// send sends a draft and prints the answer: the status, the gate if a person has to decide, warnings. A message that
// failed for good is an error after the answer, so that --json has it and the exit code is 1.
func (m *commands) send(c *command.Command, b *mailbox.Box, d mailbox.Draft) error {
	r, err := b.Send(c.Context(), d)
	if err != nil {
		return err
	}
	err = m.Show(r, func(w output.Printer) {
		by, status := "", r.Status
		if r.Method != "" {
			by = fmt.Sprintf(" (%s)", r.Method)
		}
		if r.Held() {
			status = "held"
		}
		if r.Failure() == nil {
			w.Print("%s to %s is %s%s", r.ID, r.To, status, by)
		}
		if r.Note != "" {
			w.Print("%s", r.Note)
		}
		// A held message is no failure: the exit code is 0, and the gate says what it waits for.
		if r.GateID != "" {
			w.Print("It waits for a person's decision, %s.", r.GateID)
		}
		for _, warning := range r.Warnings {
			w.Print("Warning: %s", warning)
		}
	})
	return cmp.Or(err, r.Failure())
}
