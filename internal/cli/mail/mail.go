// Package mail is `signalbox mail`: the commands of an agent for its mail (AMP v0.1.2), on its own
// folder and with any provider.
//
// Everything that matters is in mail/mailbox: the folder, the keys, the protocol. This package has
// flags, arguments and output, and decides nothing. It does not call the operators' API and needs no
// operator's token; an agent runs these commands itself.
//
// # Output
//
// Every command prints a table or a sentence, and with --json one JSON value with stable members.
// What a sender or a provider wrote goes through output.Printable or output.Lines before it reaches a
// terminal. The text of a message is shown as mailbox.Message.Text makes it, in its wrapper.
//
// # Exit codes
//
// 0 if the command did what it says, also if a person has to decide about the message; 1 if it failed or
// the provider refused it; 2 for wrong usage; 4 if the provider cannot be reached. Package cli makes them
// from the error.
//
// # Files
//
// mail.go has the group and the commands about the agent itself, send.go those that send, read.go
// those that fetch and show, bus.go the local bus.
package mail

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/mail/mailbox"
	"signalbox/internal/run/process"
)

// commands is what all commands of the group share: the program, and the flags --agent and --dir.
// Commands run one at a time in a process, so it needs no lock.
type commands struct {
	*command.App
	// where has the flags; FromEnvironment completes it when a command runs, so that the environment
	// of the process counts and not that of its start.
	where mailbox.Where
}

// New makes the group of commands `mail`, for package cli.
func New(a *command.App) *command.Command {
	m := &commands{App: a}
	c := command.Group("mail", "Send and receive mail as an agent (AMP v0.1.2), with any provider",
		m.newInit(), m.newRegister(), m.newStatus(), m.newSend(), m.newFetch(), m.newInbox(), m.newRead(), m.newReply(),
		m.newRemove(), m.newDownload(), m.newRotate(), m.newTrust(), m.newBus())
	c.Long = c.Short + ".\n\nThe agent's keys, addresses and messages are files in ~/.agent-messaging, a folder that\n" +
		"all clients of the protocol share. If it has several agents, choose one with --agent or\n" +
		"CLAUDE_AGENT_NAME. --dir or AMP_DIR is a folder for one agent alone."
	// On the group, so that they may stand before or after the command's name.
	flags := c.PersistentFlags()
	flags.StringVar(&m.where.Agent, "agent", "", "the agent's name (CLAUDE_AGENT_NAME)")
	flags.StringVar(&m.where.Dir, "dir", "", "the agent's own folder (AMP_DIR)")
	return c
}

// open reads the agent's folder that flags and environment name. An agent that does not exist is
// fault.NotFound.
func (m *commands) open() (*mailbox.Box, error) {
	where, err := m.where.FromEnvironment()
	if err != nil {
		return nil, err
	}
	b, err := mailbox.Open(where)
	if err == nil {
		b.Within = process.Handed
	}
	return b, err
}

// identity is the part of an agent that init, rotate and status print.
//
// Address is empty before the first registration; Dir is the folder, as it was given.
type identity struct {
	Name        string `json:"name"`
	Tenant      string `json:"tenant"`
	Address     string `json:"address"`
	Fingerprint string `json:"fingerprint"`
	Dir         string `json:"dir"`
}

// identityOf has no keys: what is printed can end up in a log.
func identityOf(b *mailbox.Box) identity {
	return identity{b.Name, b.Tenant, b.Address, b.Fingerprint(), b.Dir}
}

// newInit is `mail init`: keys and a folder, without asking any provider. Most people use register, which
// does both.
func (m *commands) newInit() *command.Command {
	c := &command.Command{
		Use: "init [NAME]", Short: "Create an agent's folder with a key pair", Args: command.AtMost(1, "at most one NAME"),
	}
	name := c.Flags().StringP("name", "n", "", "the agent's name")
	tenant := c.Flags().StringP("tenant", "t", "", "the tenant to register with")
	c.RunE = func(_ *command.Command, args []string) error {
		b, err := m.init(cmp.Or(strings.Join(args, ""), *name), *tenant)
		if err != nil {
			return err
		}
		return m.Show(identityOf(b), func(w output.Printer) {
			w.Print("Made the agent %s, whose key is %s.\nGet it an address with `%s register`.",
				b.Name, b.Fingerprint(), m.as(b))
		})
	}
	return m.WithJSON(c)
}

// init creates the folder. The name is the argument, --agent, CLAUDE_AGENT_NAME, or the name of the
// folder, in this order.
func (m *commands) init(name, tenant string) (*mailbox.Box, error) {
	where, err := m.where.FromEnvironment()
	if err != nil {
		return nil, err
	}
	// A folder of its own may serve as the name: `--dir agents/alice` is alice.
	if name = cmp.Or(name, m.where.Agent, os.Getenv("CLAUDE_AGENT_NAME")); name == "" && where.Dir != "" {
		name = filepath.Base(where.Dir)
	}
	if name == "" {
		return nil, command.Usage("Say what the agent is called, as in `signalbox mail init my-agent`.")
	}
	return mailbox.Init(where, name, tenant)
}

// newRegister is `mail register`: an address with a provider, in a folder that is created if necessary.
func (m *commands) newRegister() *command.Command {
	c := &command.Command{
		Use: "register [NAME]", Short: "Register the agent with a provider, for an address",
		Long: `Registers the agent with the server that --server or the data folder names, or with the
provider in --provider. An agent that has no folder yet gets one.`,
		Args: command.AtMost(1, "at most one NAME"),
	}
	// The flags write into it; Server is added when the command runs.
	var j mailbox.Joining
	flags := c.Flags()
	name := flags.StringP("name", "n", "", "the agent's name")
	provider := flags.StringP("provider", "p", "", "the provider's domain, such as crabmail.ai, or its address, http://…")
	flags.StringVarP(&j.Tenant, "tenant", "t", "", "the tenant; by default the one that the provider suggests")
	flags.StringVarP(&j.UserKey, "user-key", "k", "", "an owner's key, uk_…, or an operator's token")
	flags.StringVar(&j.Invite, "invite", "", "an invite code")
	flags.StringVar(&j.Alias, "alias", "", "a display name")
	flags.BoolVar(&j.Again, "again", false, "get a new API key for an existing address")
	flags.BoolVar(&j.Unsigned, "allow-unsigned", false, "let programs that only have the API key send too")
	c.RunE = func(c *command.Command, args []string) error {
		var err error
		// Before the folder is created: without a server nothing is left behind.
		if j.Server, err = m.provider(*provider); err != nil {
			return err
		}
		b, err := m.openOrInit(cmp.Or(strings.Join(args, ""), *name), j.Tenant)
		if err != nil {
			return err
		}
		r, err := b.Register(c.Context(), j)
		if err != nil {
			return err
		}
		// r has no API key; it is in the folder.
		return m.Show(r, func(w output.Printer) {
			w.Print("%s is %s now.\nSend with `%s send ADDRESS SUBJECT TEXT`, and receive with `%[3]s fetch`.",
				b.Name, r.Address, m.as(b))
		})
	}
	return m.WithJSON(c)
}

// provider is the address of the provider to register with: the one in --provider, --server, else https and the domain
// of --provider, else SIGNALBOX_SERVER, AMP_MAESTRO_URL, or the server of the data folder.
func (m *commands) provider(domain string) (string, error) {
	switch {
	case strings.Contains(domain, "://"): // as the specification's example has it; it says where to register
		return domain, nil
	case domain != "" && m.Server == "":
		return "https://" + domain, nil
	}
	if elsewhere := os.Getenv("AMP_MAESTRO_URL"); elsewhere != "" && m.Server == "" &&
		os.Getenv("SIGNALBOX_SERVER") == "" {
		return elsewhere, nil
	}
	return m.Address()
}

// as is the command to suggest for the same agent: with --dir or --agent if they were used.
//
// It is printed for people to copy, so it must work from where they are.
func (m *commands) as(b *mailbox.Box) string {
	switch {
	case m.where.Dir != "":
		return "signalbox mail --dir " + m.where.Dir
	case m.where.Agent != "" && filepath.Base(b.Dir) != ".agent-messaging":
		return "signalbox mail --agent " + b.Name
	}
	return "signalbox mail"
}

// openOrInit opens the agent's folder, and creates it if it does not exist. A folder that belongs to
// an agent of another name is an error: registering it again would mix two identities.
func (m *commands) openOrInit(name, tenant string) (*mailbox.Box, error) {
	// The argument selects the agent among several, as --agent does.
	if name != "" && m.where.Dir == "" && os.Getenv("AMP_DIR") == "" {
		m.where.Agent = strings.ToLower(name)
	}
	b, err := m.open()
	switch {
	case fault.Is(err, fault.NotFound):
		return m.init(name, tenant)
	// Only possible with --dir or AMP_DIR.
	case err == nil && name != "" && !strings.EqualFold(b.Name, name):
		return nil, command.Usage("The folder %s is that of %s.", b.Dir, b.Name)
	}
	return b, err
}

// status is what `mail status` prints. Damaged are files of the inbox that cannot be read.
type status struct {
	identity
	Unread        int            `json:"unread"`   // in the inbox
	Messages      int            `json:"messages"` // read and unread, in the inbox
	Damaged       []string       `json:"damaged,omitempty"`
	Registrations []registration `json:"registrations"`
}

// registration is a registration with what its provider answered just now.
type registration struct {
	mailbox.Registration
	Reachable bool   `json:"reachable"`       // it answered, and knows the key
	Waiting   int    `json:"waiting"`         // messages to fetch
	Error     string `json:"error,omitempty"` // why it is not reachable
}

// newStatus is `mail status`. It asks every provider; one that does not answer is a row with the reason,
// and no failure of the command.
//
// Waiting is asked with one poll of one message, which removes nothing.
func (m *commands) newStatus() *command.Command {
	c := &command.Command{
		Use: "status", Short: "Show the agent, its addresses, and how many messages wait", Args: command.NoArguments(),
	}
	c.RunE = func(c *command.Command, _ []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		// Only the inbox: sent messages are nobody's to read.
		messages, damaged, err := b.List(mailbox.Inbox)
		if err != nil {
			return err
		}
		s := status{identity: identityOf(b), Messages: len(messages), Damaged: damaged, Registrations: []registration{}}
		// Counted from the folder; it needs no provider.
		for i := range messages {
			if !messages[i].Read {
				s.Unread++
			}
		}
		for i := range b.Registrations {
			r := registration{Registration: b.Registrations[i]}
			// One poll for each provider, which counts against its limit.
			if r.Waiting, err = b.Waiting(c.Context(), &b.Registrations[i]); err != nil {
				r.Error = fault.From(err).Message
			}
			r.Reachable = err == nil
			s.Registrations = append(s.Registrations, r)
		}
		return m.Show(s, s.print)
	}
	return m.WithJSON(c)
}

// print is the table of status. "?" stands for a count that is unknown.
func (s status) print(w output.Printer) {
	w.Print("agent        %s\nfolder       %s\nfingerprint  %s\ninbox        %d unread of %d",
		s.Name, s.Dir, s.Fingerprint, s.Unread, s.Messages)
	for _, path := range s.Damaged {
		w.Print("damaged      %s", path)
	}
	// An agent without an address gets a sentence in place of an empty table.
	rows := make([][]string, len(s.Registrations))
	for i, r := range s.Registrations {
		rows[i] = []string{r.Address, r.Provider, fmt.Sprint(r.Waiting), "reachable"}
		if !r.Reachable {
			rows[i][2], rows[i][3] = "?", r.Error
		}
	}
	w.Print("")
	w.Table("It has no address yet. Get it one with `signalbox mail register`.",
		[]string{"ADDRESS", "PROVIDER", "WAITING", "STATE"}, rows)
}

// newTrust is `mail trust`: a person accepts the new key of a sender. It is a command of its own, and not
// a flag of read, so that no agent does it in passing.
func (m *commands) newTrust() *command.Command {
	c := &command.Command{
		Use:   "trust ADDRESS",
		Short: "Accept the new key of a sender", Args: command.Exactly(1, "ADDRESS"),
		Long: `The key of a sender is remembered from its first message on, and mail that is signed with
another key is untrusted. Ask the sender, by another channel, whether the new key is its
own. Then accept it with this command: mail that you fetch from then on is trusted.`,
	}
	c.RunE = func(_ *command.Command, args []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		// Fails if no message came with another key: nothing can be trusted in advance.
		t, err := b.Accept(args[0])
		if err != nil {
			return err
		}
		return m.Show(t, func(w output.Printer) {
			w.Print("The key of %s is %s now; it was %s.", t.Address, t.Now, t.Before)
		})
	}
	return m.WithJSON(c)
}

// newRotate is `mail rotate`: new keys with all providers. It can be repeated after a failure, and
// continues where it stopped.
func (m *commands) newRotate() *command.Command {
	c := &command.Command{
		Use: "rotate", Short: "Replace the agent's keys, with all its providers", Args: command.NoArguments(),
		Long: `Makes a new key pair, proves to every provider with the old key that the new one is the
agent's, and uses it from then on. If a provider cannot be reached, run it again later.`,
	}
	api := c.Flags().Bool("api-key", false, "replace the API keys instead; the old ones work for some time")
	c.RunE = func(c *command.Command, _ []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		if *api {
			err = b.RotateAPIKeys(c.Context())
		} else {
			err = b.Rotate(c.Context())
		}
		if err != nil {
			return err
		}
		return m.Show(identityOf(b), func(w output.Printer) {
			if *api {
				w.Print("%s has new API keys.", b.Name)
				return
			}
			w.Print("The key of %s is %s now.", b.Name, b.Fingerprint())
		})
	}
	return m.WithJSON(c)
}
